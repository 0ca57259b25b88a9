"""The typed graph of a flow: steps, their commands and files, and the gates that a measured figure has to pass.

A command is a list of words. A word may contain a file of another step, ``step["figures"]``, written as
``@{step.figures}`` until the paths are known; the step then comes after that one.
"""

from __future__ import annotations

import dataclasses
import graphlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from robot_rl.errors import UserError, suggest

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
REFERENCE = re.compile(r"@\{([^{}.]*)\.([^{}]*)\}")
ABOVE, BELOW = ">=", "<="


class Computer(StrEnum):
    """The three computers of a robot: one that trains, one that simulates, and the one on the robot."""

    TRAIN = "train"
    SIMULATION = "simulation"
    EDGE = "edge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a step needs; on this machine only a note, on OSMO a request.

    Attributes:
        computer: Which of the three computers.
        cpus: Cores.
        gpus: GPUs.
        memory_gb: Memory [GiB].
        minutes: Longest time [min].
    """

    computer: Computer = Computer.SIMULATION
    cpus: int = 2
    gpus: int = 0
    memory_gb: int = 8
    minutes: int = 30

    def __post_init__(self) -> None:
        """Raise ValueError for a number that cannot be requested."""
        for name, least in (("cpus", 1), ("gpus", 0), ("memory_gb", 1), ("minutes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {least}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """A file or directory that a step writes.

    Attributes:
        path: Where, relative to the directory that the flow runs in, or absolute.
        proof: Of a directory, the file in it whose content stands for it; empty: all of its files.
    """

    path: str
    proof: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """A bound that a figure of a JSON file has to keep.

    Attributes:
        name: Its name within the step; `gates.<name>=` sets the bound.
        path: The figure: the keys to it, with dots.
        bound: The bound.
        op: "<=" or ">=".
        text: What the figure is, with its unit.
        unless: Path of a flag of the same file; if it is true, the gate is passed at any figure.
    """

    name: str
    path: str
    bound: float
    op: str = BELOW
    text: str = ""
    unless: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an operator that there is not."""
        if self.op not in (ABOVE, BELOW):
            raise ValueError(f"op={self.op}: must be {BELOW} or {ABOVE}")

    def word(self, owner: str = "") -> str:
        """Return the gate as a word of `robot-rl flow gate`; `owner` is the step that was measured."""
        name = f"{owner}.{self.name}" if owner else self.name
        unless = f"|{self.unless}" if self.unless else ""
        return f"{name}:{self.path}{self.op}{self.bound!r}{unless}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A command of a flow.

    Attributes:
        name: Its name: a letter, then letters, digits and _.
        command: The words; `step["<output>"]` in a word is the path of an output of another step or of this one.
        after: Names of steps that come first, in addition to those of which it uses an output. If computers do
            not share a directory, a step has the files of these and of no others.
        outputs: What it writes, by name.
        resources: What it needs.
        codes: Exit codes with which it is done.
        files: Files of the user's that it reads.
        secrets: The same for files that must not be copied anywhere, such as a private key.
        gates: Of a step of gates: which; its command is made from them.
    """

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    codes: tuple[int, ...] = (0,)
    files: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()

    def __getitem__(self, output: str) -> str:
        """Return the word that stands for the path of an output."""
        if output not in self.outputs:
            raise UserError(f"step {self.name}: does not have an output '{output}'; {suggest(output, self.outputs)}")
        return f"@{{{self.name}.{output}}}"

    def references(self) -> Iterator[tuple[str, str]]:
        """Yield (step, output) of each output that the command uses, its own ones too."""
        for word in self.command:
            for match in REFERENCE.finditer(word):
                yield match[1], match[2]

    def needs(self) -> tuple[str, ...]:
        """Return the names of the steps that come first."""
        used = (step for step, _ in self.references() if step != self.name)
        return tuple(dict.fromkeys((*used, *self.after)))


def gate_step(measured: Step, output: str, gates: Sequence[Gate], *, name: str = "") -> Step:
    """Return the step that checks figures of a JSON file that another step wrote.

    Args:
        measured: The step that wrote it.
        output: Which of its outputs.
        gates: The bounds.
        name: Name of the step, by default gate_<name of the measured step>.
    """
    small = Resources(cpus=1, memory_gb=2, minutes=5)
    step = Step(name=name or f"gate_{measured.name}", command=(), gates=tuple(gates), resources=small)
    return dataclasses.replace(step, command=_gate_command(step, measured[output]))


def _gate_command(step: Step, file: str) -> tuple[str, ...]:
    owner = next(match[1] for match in REFERENCE.finditer(file))
    return ("robot-rl", "flow", "gate", file, *(gate.word(owner) for gate in step.gates))


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A graph of steps, checked when it is made.

    Attributes:
        name: Its name.
        id: The id of this one.
        steps: The steps; those that may run at the same time start in this order.
        notes: Lines about it, such as omitted steps.
        links: Files for the summary: text -> path.

    Raises:
        UserError: A name twice or unknown, an output that there is not, or a cycle.
    """

    name: str
    id: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the graph."""
        if not self.steps:
            raise UserError(f"flow {self.name}: does not have any steps; give it one")
        known: dict[str, Step] = {}
        for step in self.steps:
            if not NAME.fullmatch(step.name):
                raise UserError(f"step {step.name!r}: must be a letter, then up to 39 of a to z, 0 to 9 and _")
            if step.name in known:
                raise UserError(f"step {step.name}: is there twice; give one of them another name")
            if not step.command:
                raise UserError(f"step {step.name}: does not have a command; give it a list of words")
            known[step.name] = step
        for step in self.steps:
            _check_step(step, known)
        self.order()

    def __getitem__(self, name: str) -> Step:
        """Return a step by its name."""
        return next(step for step in self.steps if step.name == name)

    def order(self) -> list[Step]:
        """Return the steps so that each comes after those that it needs; raise UserError for a cycle."""
        places = {step.name: place for place, step in enumerate(self.steps)}
        sorter = graphlib.TopologicalSorter({step.name: step.needs() for step in self.steps})
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise UserError(f"flow {self.name}: its steps wait for each other ({circle}); omit one of these") from None
        ordered: list[Step] = []
        ready: list[str] = []
        while sorter.is_active():
            ready = sorted((*ready, *sorter.get_ready()), key=places.__getitem__)
            first = ready.pop(0)
            ordered.append(self[first])
            sorter.done(first)
        return ordered

    def words(self, step: Step, folder: str = "") -> list[str]:
        """Return a step's command with the paths of the outputs; `folder` is put in front of each path."""
        return [REFERENCE.sub(lambda match: folder + self.path(match[1], match[2]), word) for word in step.command]

    def path(self, step: str, output: str) -> str:
        """Return the path of a step's output."""
        return self[step].outputs[output].path

    def with_bounds(self, bounds: Mapping[str, float]) -> Flow:
        """Return the flow with other bounds of gates.

        Args:
            bounds: <gate>, for each step that has one of that name, or <step>.<gate>, with the step that was measured
                -> the bound.

        Raises:
            UserError: A gate does not exist.
        """
        known = self.gate_names()
        for name in bounds:
            if name not in known:
                raise UserError(f"gates.{name}: is not a gate of {self.name}; {suggest(name, known)}")
        steps = []
        for step in self.steps:
            gates = tuple(
                dataclasses.replace(gate, bound=_bound_of(gate, gate_owner(step), bounds)) for gate in step.gates
            )
            if gates != step.gates:
                changed = dataclasses.replace(step, gates=gates)
                step = dataclasses.replace(changed, command=_gate_command(changed, step.command[3]))  # noqa: PLW2901
            steps.append(step)
        return dataclasses.replace(self, steps=tuple(steps))

    def gate_names(self) -> list[str]:
        """Return the names by which a gate's bound can be set."""
        every = [(gate_owner(step), gate.name) for step in self.steps for gate in step.gates]
        return list(dict.fromkeys((*(name for _, name in every), *(f"{owner}.{name}" for owner, name in every))))


def gate_owner(step: Step) -> str:
    """Return the name of the step whose figures a step of gates checks."""
    return next((name for name, _ in step.references()), step.name)


def _bound_of(gate: Gate, owner: str, bounds: Mapping[str, float]) -> float:
    return bounds.get(f"{owner}.{gate.name}", bounds.get(gate.name, gate.bound))


def _check_step(step: Step, known: Mapping[str, Step]) -> None:
    for name in step.after:
        if name not in known:
            raise UserError(f"step {step.name}: comes after '{name}', which is not a step; {suggest(name, known)}")
        if name == step.name:
            raise UserError(f"step {step.name}: comes after itself; omit that")
    for name, output in step.references():
        if name not in known:
            raise UserError(f"step {step.name}: uses @{{{name}.{output}}}, which is not a step; {suggest(name, known)}")
        if output not in known[name].outputs:
            hint = suggest(output, known[name].outputs)
            raise UserError(f"step {step.name}: uses @{{{name}.{output}}}, which that step does not write; {hint}")


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowCfg:
    """What the user gave: from it, a flow's file makes the graph.

    Attributes:
        task: The task.
        id: The flow's id, also the training's run id.
        root: Where runs are.
        key: File of the private key to sign with; empty: no signature. <file>.pub is the public one.
        train: Settings of the training, as words such as "max_iterations=60".
        cpus, gpus, minutes: Cores, GPUs and longest time [min] of the training; gpus 0: those of this machine.
        certify: Episodes of the bundle's certificate; 0: it gets none.
        log: Logs of the robot, for a flow that identifies it.
        held: A log that is only predicted.
    """

    task: str
    id: str
    root: str = "runs"
    key: str = ""
    train: tuple[str, ...] = ()
    cpus: int = 8
    gpus: int = 0
    minutes: int = 240
    certify: int = 0
    log: tuple[str, ...] = ()
    held: str = ""

    @property
    def folder(self) -> str:
        """The directory of the flow's own files."""
        return f"{self.root}/.flows/{self.id}"
