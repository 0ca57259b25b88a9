"""What a flow has done so far: state.json, the lock of its process, and whether a step has to run again.

A step is not repeated if its command and the contents of the files that it uses and that it wrote are the same as when
it was done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.cluster.flow.dag import Flow, Output, Step
from robot_rl.errors import UserError
from robot_rl.files import open_plain, read_json, write_json

WAITING, RUNNING, DONE, FAILED, STOPPED = "waiting", "running", "done", "failed", "stopped"
VERSION = 1
MAX_STATE = 16 * 2**20
LEFTOVER_S = 120.0
"""How long a resumed flow waits for a step that the killed one left to end [s]."""


@dataclass(kw_only=True, slots=True)
class StepState:
    """What is known about a step.

    Attributes:
        state: "waiting", "running", "done", "failed" or "stopped".
        started: When it was started last [s since 1970].
        seconds: How long it ran last [s].
        runs: How often it was started.
        code: Its exit code; negative for a signal's number.
        line: Its last line.
        pid, ticks: Its process, and when the system started that.
        command, inputs, written: Digests of its command, inputs and outputs when it was done.
    """

    state: str = WAITING
    started: float = 0.0
    seconds: float = 0.0
    runs: int = 0
    code: int | None = None
    line: str = ""
    pid: int = 0
    ticks: int = 0
    command: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)


class FlowState:
    """The state of a flow in its folder.

    Attributes:
        folder: <root>/.flows/<id>.
        about: What was requested: "flow" (name, file or module), "options".
        state: "running", "done", "failed" or "stopped".
        steps: By name.
        reached: Names of the steps that are done, as far as this process knows.
    """

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder, self.about, self.state = folder, about, WAITING
        self.created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self.steps: dict[str, StepState] = {}
        self.reached: set[str] = set()
        self._lock: Any = None

    @property
    def file(self) -> Path:
        """The file of the state."""
        return self.folder / "state.json"

    def log(self, step: str) -> Path:
        """Return the file with the output of a step."""
        return self.folder / "log" / f"{step}.txt"

    @classmethod
    def load(cls, folder: Path) -> FlowState:
        """Read the state of a flow; raise UserError if there is none or it is damaged."""
        file = folder / "state.json"
        if not file.is_file():
            raise UserError(
                "id", folder.name, f"no such flow in {folder.parent}", "robot-rl flow <flow> task=... begins one"
            )
        content = read_json(file, MAX_STATE)
        try:
            if content["version"] != VERSION:
                raise UserError(f"{file}: is of version {content['version']}, this robot-rl reads {VERSION}")
            state = cls(folder, dict(content["about"]))
            state.state, state.created = str(content["state"]), str(content["created"])
            state.steps = {str(name): StepState(**row) for name, row in content["steps"].items()}
            if not isinstance(state.about["flow"], str) or not isinstance(state.about["options"], list):
                raise TypeError
        except (LookupError, TypeError, AttributeError):
            raise UserError(
                f"{file}: damaged, it is not the state of a flow; remove the folder to begin again"
            ) from None
        return state

    def save(self) -> None:
        """Write state.json, whole or not at all."""
        rows = {name: dataclasses.asdict(row) for name, row in self.steps.items()}
        about = {"version": VERSION, "about": self.about, "created": self.created, "state": self.state}
        write_json(self.file, {**about, "steps": rows})

    def acquire(self) -> None:
        """Make the folder and lock it until the process ends; raise UserError if another process has it."""
        from robot_rl.metrics.rows import lock

        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = lock(self.folder / "lock")
        except UserError:
            raise UserError("id", self.folder.name, "another process runs this flow", "wait for its end") from None

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def wait_for_leftovers(self) -> None:
        """Wait for steps of a killed flow that still save; raise UserError if one does not end."""
        end = time.monotonic() + LEFTOVER_S
        for name, row in self.steps.items():
            while row.pid and process_ticks(row.pid) == row.ticks:
                if time.monotonic() > end:
                    raise UserError(f"step {name}: process {row.pid} still runs; end it first")
                time.sleep(0.1)
            row.pid = row.ticks = 0
            if row.state == RUNNING:
                row.state = STOPPED


def process_ticks(pid: int) -> int:
    """Return when a process was started, in the system's ticks; 0 if there is none, or it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if words[0] == "Z" else int(words[19])
    return 0


def command_digest(flow: Flow, step: Step) -> str:
    """Return the digest of a step's command."""
    return hashlib.sha256(json.dumps(flow.words(step)).encode()).hexdigest()


def input_digests(flow: Flow, step: Step) -> dict[str, str]:
    """Return file -> digest, for the files of other steps and of the user that a step reads."""
    digests = {
        f"{name}.{output}": digest(flow[name].outputs[output])
        for name, output in step.references()
        if name != step.name
    }
    return digests | {f"file {path}": digest(Output(path=path)) for path in (*step.files, *step.secrets)}


def output_digests(step: Step) -> dict[str, str]:
    """Return output -> its digest, "" for an output that is missing."""
    return {name: digest(output) for name, output in step.outputs.items()}


def digest(output: Output) -> str:
    """Return a digest of a file or directory; "" if it is missing."""
    path = Path(output.path)
    path = path / output.proof if output.proof else path
    if path.is_dir():
        files = sorted((str(each.relative_to(path)), _content(each)) for each in path.rglob("*") if each.is_file())
        return hashlib.sha256(json.dumps(files).encode()).hexdigest()
    return _content(path)


def _content(path: Path) -> str:
    """Return the digest of a plain file; "" if it is missing or cannot be read."""
    try:
        with os.fdopen(open_plain(path.resolve()), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UserError, RuntimeError):  # The last: a link to itself.
        return ""


def stamps(step: Step) -> dict[str, object]:
    """Return output -> when its files were written, of outputs that exist without a file that stands for them.

    A directory with such a file, a run, may be found complete by a step that continues it.
    """
    times: dict[str, object] = {}
    for name, output in step.outputs.items():
        path = Path(output.path)
        if output.proof or not path.exists():
            continue
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        times[name] = sorted((str(each), (status := each.stat()).st_mtime_ns, status.st_ino) for each in files)
    return times


def is_current(flow: Flow, step: Step, row: StepState) -> bool:
    """Return whether a step was done and nothing that it depends on has changed."""
    written = output_digests(step)
    return (
        row.state == DONE
        and row.command == command_digest(flow, step)
        and row.inputs == input_digests(flow, step)
        and row.written == written
        and all(written.values())
    )


def flow_folder(root: str, flow_id: str) -> Path:
    """Return the folder of a flow."""
    return Path(root) / ".flows" / flow_id


def remove_outputs(step: Step) -> None:
    """Remove the files of an earlier try of a step that counts as done with a code other than 0."""
    for output in step.outputs.values() if any(step.codes) else ():
        if os.path.isfile(output.path):
            os.unlink(output.path)
