"""The robot's binary as a child process: start it, stop it, read its report."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, as_user_error, require_linux
from robot_rl.files import read_json
from robot_rl.processes import tied

STOP_S = 5.0
NICENESS = -15
"""Niceness of threads that keep time, if a real-time priority is not permitted."""
REALTIME = 50
"""Real-time priority (SCHED_FIFO) of threads that keep time; the binary's are 70 and 80."""
DAY_S = 86_400.0
"""Length of an episode of a session, which is without an end [s]."""


def load_runtime() -> Any:
    """Return the module `robot_rl_runtime`.

    Raises:
        UserError: It is not installed, or this is not Linux.
    """
    require_linux("the robot's runtime")
    try:
        return importlib.import_module("robot_rl_runtime")
    except ImportError as error:
        from robot_rl_deploy.tarball import find_runtime

        with as_user_error():
            sources = shlex.quote(str(find_runtime()))
        line = f"the robot's runtime is not here ({error}); pip install {sources} compiles it, with a C++20 compiler"
        raise UserError(line) from None


@contextlib.contextmanager
def high_priority() -> Iterator[None]:
    """Raise the priority of this thread, as far as permitted; a robot does not wait for other programs."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    is_realtime = False
    with contextlib.suppress(AttributeError, OSError):  # Not Linux, or not permitted.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(REALTIME))
        is_realtime = True
    if not is_realtime:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    try:
        yield
    finally:
        if is_realtime:
            os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


def end_process(process: subprocess.Popen[Any]) -> None:
    """Terminate a process, wait, and kill it if it does not end."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
        return
    process.kill()
    process.wait()


def read_report(path: Path, default: Any) -> Any:
    """Return the JSON that a child process wrote at its end, `default` if there is none."""
    try:
        return read_json(path)
    except UserError:
        return default


class ModuleProcess:
    """A module of Python as a child process.

    Attributes:
        process: The process.
        output: Its standard output.
    """

    def __init__(self, module: str, *arguments: str, **options: Any) -> None:
        """Start it with words of its command line, and options of `subprocess.Popen`."""
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(tied([sys.executable, "-m", module, *arguments]), **pipes, **options)
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def close(self) -> None:
        """End the process."""
        end_process(self.process)
        self.output.close()


class Binary:
    """`robot-rl-infer`, running; `process` is the process."""

    def __init__(
        self,
        bundle: Path,
        folder: Path,
        *,
        transport: str,
        operator: str = "none",
        settings: Mapping[str, float] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Start the binary.

        Args:
            bundle: Directory of the policy bundle.
            folder: Directory for report.json and stderr.txt.
            transport: Address of the robot, such as "udp:127.0.0.1:9870".
            operator: Address of the operator; "robot": through the robot; "none": no operator.
            settings: Settings by name, such as {"limits.tilt_rad": 0.8}.
            arguments: Further words of the command line.

        Raises:
            UserError: The runtime is not installed.
        """
        runtime = load_runtime()
        self._folder, self._report = folder, folder / "report.json"
        folder.mkdir(parents=True, exist_ok=True)
        self._report.unlink(missing_ok=True)
        command = [str(runtime.binary()), "--bundle", str(bundle), "--transport", transport, "--operator", operator]
        command += ["--report", str(self._report), *arguments]
        for name, value in (settings or {}).items():
            command += ["--set", f"{name}={value:.17g}"]
        with open(folder / "stderr.txt", "wb") as stderr:
            self.process = subprocess.Popen(
                tied(command), stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=runtime_environment()
            )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def check(self) -> None:
        """Raise a UserError with the last line of the output if the process ended by itself."""
        if not self.alive:
            raise UserError(f"robot-rl-infer ended with {self.process.returncode}: {self.last_line()}")

    def request_stop(self) -> None:
        """Send SIGTERM; the binary damps for a moment and ends."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """End the process and return its exit code."""
        end_process(self.process)
        return int(self.process.returncode)

    def report(self) -> dict[str, Any]:
        """Return the report that the binary wrote at its end; empty if there is none."""
        return read_report(self._report, {})

    def last_line(self) -> str:
        """Return the last line of the output so far."""
        text = (self._folder / "stderr.txt").read_text(errors="replace")
        return next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


def runtime_environment() -> dict[str, str]:
    """Return this process's environment, with the ONNX Runtime of this Python unless another is set."""
    environment = dict(os.environ)
    if "ROBOT_RL_ONNXRUNTIME" not in environment:
        spec = importlib.util.find_spec("onnxruntime")
        folder = Path(spec.origin).parent / "capi" if spec is not None and spec.origin else Path(sys.prefix)
        if libraries := sorted(folder.glob("libonnxruntime.so*")):
            environment["ROBOT_RL_ONNXRUNTIME"] = str(libraries[-1])
    return environment
