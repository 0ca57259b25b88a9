"""The trainer's evaluation, run once by the trainer and once by the robot's binary, in the same worlds.

Seeds, randomization, commands, pushes and metrics are the same. The binary receives a state at each control step, with
`all_states` at each physics step, and answers in lockstep: its metrics do not depend on the speed of the machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError, UserError
from robot_rl.evaluate.meter import describe_metrics
from robot_rl.metrics.description import Descriptions, judged
from robot_rl.sim2sim.binary import Binary
from robot_rl.sim2sim.commands import ActionReader
from robot_rl.sim2sim.link import LOOPBACK, Link, Lockstep, free_ports, make_link
from robot_rl.sim2sim.plant import TICK_S, Body, ClockedBody, Plant

if TYPE_CHECKING:
    from robot_rl_deploy.contract import Contract
    from robot_rl_envs.task import Task

SURVIVAL_BOUND, ERROR_BOUND = 0.02, 0.05
PATIENT = {
    "stand_s": 0.0,
    "blend_s": 0.0,
    "writer_period_s": 0.001,
    "limits.state_age_s": 1e6,
    "limits.state_frozen_s": 1e6,
    "limits.operator_s": 0.0,
    "limits.missed_deadlines": 1e6,
}
"""Settings of a binary in lockstep: it stands up at once and waits for states without a limit."""


@dataclass(kw_only=True, slots=True)
class ParityCfg:
    """Settings of the comparison.

    Attributes:
        episodes: Number of worlds, with one episode each.
        seconds: Length of an episode [s].
        seed: Seed of the worlds.
        tick_s: Physics step of the simulated robot [s]; 0: the trainer's.
        all_states: Send the state of each physics step; else only those at which the policy runs.
        transport: "udp" or "shm".
        settings: Settings of the binary in addition to `PATIENT`.
    """

    episodes: int = 20
    seconds: float = 10.0
    seed: int = 0
    tick_s: float = TICK_S
    all_states: bool = False
    transport: str = "udp"
    settings: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Responder:
    """A robot's binary that answers each state, for all worlds."""

    link: Link
    steps: Lockstep
    binary: Binary
    contract: Contract


def start_responder(
    body: Body,
    bundle: Path,
    cfg: ParityCfg,
    folder: Path,
    stack: contextlib.ExitStack,
    *,
    words: Sequence[str] = (),
) -> Responder:
    """Start a robot's binary in lockstep, until `stack` closes; `words` are further ones of its command line."""
    from robot_rl_deploy.bundle import read_bundle

    port = free_ports(1)[0]
    address = f"udp:{LOOPBACK}:{port}" if cfg.transport == "udp" else f"shm:sim2sim-{port}"
    link = make_link(body, address, bundle)
    stack.callback(link.close)
    states = body.env.cfg.sim.decimation if cfg.all_states else 1
    binary = Binary(
        bundle,
        folder,
        transport=address,
        operator="robot",
        settings=PATIENT | {"steps_per_state": float(states)} | (cfg.settings or {}),
        arguments=["--fifo-writer", "0", "--fifo-policy", "0", "--no-watchdog", *words],
    )
    stack.callback(binary.stop)
    return Responder(link, Lockstep(link, binary, states), binary, read_bundle(bundle).contract)


class BinaryController:
    """The binary of one robot as a controller: it acts on raw states, not on the environment's observation.

    Attributes:
        faults: Faults of the binary so far.
    """

    PATIENCE, REPEAT = 100, 5
    """How often a request is repeated, and after how many commands of the writer."""

    def __init__(self, body: ClockedBody, responder: Responder) -> None:
        """Control a robot by its binary; its contract turns targets back into actions."""
        self._body, self._link, self._steps = body, responder.link, responder.steps
        self._actions = ActionReader(responder.contract, body.joint_names)
        command = getattr(body.env.state, "command", None)
        self._has_command = command is not None and command.ndim == 2 and command.shape[1] > 0
        self.faults: list[str] = []

    def act(self, env: Any, obs: Any) -> torch.Tensor:
        """Send the state, wait for the policy's command, and return its action (1, num_actions)."""
        return torch.from_numpy(self.answer())[None]

    def answer(self) -> np.ndarray:
        """Send the state, wait for the policy's command, and return its action (num_actions,)."""
        self._operate("")
        command = self._steps.request(self._body)
        if self._link.phase == "DAMPING" and (not self.faults or self.faults[-1] != self._link.fault):
            self.faults.append(self._link.fault)
        return self._actions.read(command.q, command.dq, command.tau, self._command() if self._has_command else None)

    def reset(self, done: torch.Tensor) -> None:
        """Begin an episode, if the world's has ended."""
        if bool(done[0]):
            self.begin()

    def begin(self) -> None:
        """Begin an episode: damp, stand and start the policy again, while the simulation's clock is stopped."""
        self._body.was_reset()
        if not self._link.notes:
            self._steps.connect(self._body)
        self._steps.align(self._body)
        for request, phase in (("damp", "DAMPING"), ("stand", "STAND"), ("policy", "POLICY")):
            self._reach(request, phase)
        # The policy resets itself in its first step, which is the episode's.
        self._steps.fill(self._body)

    def _reach(self, request: str, phase: str) -> None:
        """Request a phase until it is granted."""
        for _ in range(self.PATIENCE):
            self._operate(request)
            if self._steps.wait(self.REPEAT).phase == phase:
                return
        raise PeerError(f"robot-rl-infer does not go to {phase}: it is in {self._link.phase}, fault {self._link.fault}")

    def _operate(self, request: str) -> None:
        self._link.operate(request, self._command() if self._has_command else None)

    def _command(self) -> np.ndarray:
        return self._body.env.state.command[self._body.row].cpu().numpy()


def evaluate_binary(
    task: Task, bundle: Path, cfg: ParityCfg, folder: Path, *, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Evaluate a bundle as the robot runs it.

    Args:
        task: The task, as it is evaluated.
        bundle: Directory of the bundle.
        cfg: The settings.
        folder: Directory for the binary's report.
        say: Called with a line after each episode.

    Returns:
        "episodes" (metric -> one value per world, NaN where it has none), "faults" (of each world) and "binary" (its
        report).

    Raises:
        UserError: The runtime is not installed.
        PeerError: The binary ended or does not answer.
    """
    with contextlib.ExitStack() as stack:
        first = Plant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        responder = start_responder(first, bundle, cfg, folder, stack)

        def control(plant: Plant) -> BinaryController:
            del responder.link.notes[:-1]
            plant.connect(responder.steps)
            return BinaryController(plant, responder)

        found = evaluate_worlds(
            first, lambda world: Plant(task, seed=cfg.seed, world=world, tick_s=cfg.tick_s), control, cfg, say
        )
    return found | {"binary": responder.binary.report()}


def evaluate_worlds(
    first: Any,
    make_plant: Callable[[int], Any],
    control: Callable[[Any], Any],
    cfg: ParityCfg,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Run the episode of each world, and close its plant.

    Args:
        first: The plant of world 0.
        make_plant: Makes the plant of another world.
        control: Returns the controller of a plant; it has `faults`.
        cfg: The settings.
        say: Called with a line after each episode.

    Returns:
        "episodes" and "faults" of `evaluate_binary`.
    """
    from robot_rl.evaluate.rollout import evaluate

    rows: list[dict[str, float]] = []
    metrics: Descriptions = {}
    faults: list[list[str]] = []
    for world in range(cfg.episodes):
        with contextlib.closing(make_plant(world) if world else first) as plant:
            metrics = describe_metrics(plant.env)
            controller = control(plant)
            summary = evaluate(plant.env, controller, seconds=cfg.seconds)
        rows.append({name: value["mean"] for name, value in summary.items() if value is not None})
        faults.append(controller.faults)
        shown = (f"{name} {rows[-1][name]:.4g}" for name in judged(metrics) if name in rows[-1])
        say(f"world {world}: {', '.join(shown)}")
    names = [name for name in metrics if any(name in row for row in rows)]
    return {"episodes": {name: [row.get(name, float("nan")) for row in rows] for name in names}, "faults": faults}


def compare(
    binary: Mapping[str, Sequence[float]], trainer: Mapping[str, Any], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare the binary's metrics with the trainer's.

    Args:
        binary: Metric -> one value per world, of the binary.
        trainer: Metric -> {"mean", "std"} or None over the same worlds, as in `robot-rl eval`.
        metrics: What they are, see `robot_rl.metrics.description`.

    Returns:
        "survival" and each metric of the task that has better values: {"binary", "trainer", "difference", "bound",
        "holds"}, and "holds": whether all do. The difference is absolute for survival, the share of episodes that did
        not fail, else relative to the trainer's mean unless that is 0; such a metric also has "better", and holds
        where the binary is.

    Raises:
        UserError: All episodes of one of them were quarantined.
    """
    result: dict[str, Any] = {}
    for name in [name for name in trainer if name.rpartition(".")[2] == "failure_rate"]:
        if name not in binary or trainer.get(name) is None:
            raise UserError(
                "all episodes were quarantined, so that there is nothing to compare; see docs/quarantine.md"
            )
        survival = 1.0 - float(np.nanmean(binary[name])), 1.0 - trainer[name]["mean"]
        result[name.replace("failure_rate", "survival")] = _row(*survival, 1.0, SURVIVAL_BOUND)
    for name in judged(metrics):
        if name in binary and trainer.get(name) is not None:
            mean = float(trainer[name]["mean"])
            found = float(np.nanmean(binary[name]))
            result[name] = _row(found, mean, abs(mean) or 1.0, ERROR_BOUND)
            result[name]["better"] = found < mean if metrics[name]["better"] == "smaller" else found > mean
            result[name]["holds"] |= result[name]["better"]
    result["holds"] = all(row["holds"] for row in result.values())
    return result


def _row(binary: float, trainer: float, unit: float, bound: float) -> dict[str, Any]:
    difference = abs(binary - trainer) / unit
    holds = difference <= bound + 1e-12
    return {"binary": binary, "trainer": trainer, "difference": difference, "bound": bound, "holds": holds}
