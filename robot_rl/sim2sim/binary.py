"""The robot's binary as a child process: started, told what to do, stopped, and its report read."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, as_user_error

STOP_S = 5.0
HURRY = -15
"""Niceness of what has to keep time."""


def load_runtime() -> Any:
    """The module `robot_rl_runtime`.

    Raises:
        UserError: It is not installed.
    """
    try:
        return importlib.import_module("robot_rl_runtime")
    except ImportError as error:
        from robot_rl_deploy.tarball import find_runtime

        with as_user_error():
            sources = shlex.quote(str(find_runtime()))
        line = f"the robot's runtime is not here ({error}); pip install {sources} compiles it, with a C++20 compiler"
        raise UserError(line) from None


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Lets this thread go before those of other programs, where that is permitted; a robot does not stop for them."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, HURRY)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


_TIE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(words: Sequence[str]) -> list[str]:
    """A command that is asked to end where this process dies, however that is."""
    return [sys.executable, "-ISc", _TIE, str(os.getpid()), *words]


class Binary:
    """`robot-rl-infer`, running.

    Attributes:
        folder: Where its report and log go.
        process: The process.
    """

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
        """Starts it.

        Args:
            bundle: The policy bundle.
            folder: A directory for report.json and stderr.txt.
            transport: Address of the robot, such as "udp:127.0.0.1:9870".
            operator: Where it listens for the operator; "robot": through the robot; "none": nobody.
            settings: Settings by name, such as {"limits.tilt_rad": 0.8}.
            arguments: Further words of its command line.

        Raises:
            UserError: The runtime is not installed.
        """
        runtime = load_runtime()
        self.folder, self._report = folder, folder / "report.json"
        folder.mkdir(parents=True, exist_ok=True)
        self._report.unlink(missing_ok=True)
        words = [str(runtime.binary()), "--bundle", str(bundle), "--transport", transport, "--operator", operator]
        words += ["--report", str(self._report), *arguments]
        for name, value in (settings or {}).items():
            words += ["--set", f"{name}={value:.17g}"]
        self._stderr = open(folder / "stderr.txt", "wb")  # noqa: SIM115 - it is the child's as long as that lives
        self.process = subprocess.Popen(
            tied(words), stdin=subprocess.DEVNULL, stdout=self._stderr, stderr=self._stderr, env=runtime_environment()
        )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def check(self) -> None:
        """Raise where it has ended by itself.

        Raises:
            UserError: It has; with its last line.
        """
        if not self.alive:
            raise UserError(f"robot-rl-infer ended with {self.process.returncode}: {self.last_line()}")

    def ask_to_stop(self) -> None:
        """Ask it to end, which it does after a moment of damping."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to end, wait, and kill it where it does not; its exit code."""
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        if self.alive:
            self.process.kill()
            self.process.wait()
        self._stderr.close()
        return int(self.process.returncode)

    def report(self) -> dict[str, Any]:
        """What it reported at its end; empty where it wrote nothing."""
        try:
            return json.loads(self._report.read_text())
        except (OSError, ValueError):
            return {}

    def said(self) -> str:
        """All that it said so far."""
        return (self.folder / "stderr.txt").read_text(errors="replace")

    def last_line(self) -> str:
        """The last line it said."""
        lines = [line for line in self.said().splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"


def runtime_environment() -> dict[str, str]:
    """This process's environment, with the ONNX Runtime of this Python where none is named."""
    environment = dict(os.environ)
    if "ROBOT_RL_ONNXRUNTIME" not in environment:
        spec = importlib.util.find_spec("onnxruntime")
        folder = Path(spec.origin).parent / "capi" if spec is not None and spec.origin else Path(sys.prefix)
        found = sorted(folder.glob("libonnxruntime.so*"))
        if found:
            environment["ROBOT_RL_ONNXRUNTIME"] = str(found[-1])
    return environment
