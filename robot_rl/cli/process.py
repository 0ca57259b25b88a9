"""What the process of a command needs at its start: writable caches, and output streams that cannot end a training."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

TYPE_CHECKING = False  # Not from typing, which takes as long as all the rest to import.
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

VARIABLES = ("XDG_CACHE_HOME", "MPLCONFIGDIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
"""Variables that move the caches of Warp, PyTorch, Mesa and fontconfig, of Matplotlib, and of W&B."""


def cache_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to set so that every cache is writable; empty if the usual place is.

    The user of a container often has a read-only home, or none: Warp would end with a traceback at its start, others
    would make folders in the current directory. Variables that are set stay, except that of an unwritable cache.
    """
    usual = Path(environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    if _is_writable(usual):
        return {}
    folder = str(_temporary_folder())
    return {name: folder for name in VARIABLES if name == "XDG_CACHE_HOME" or name not in environ}


def _is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, which is created if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return folder.is_absolute() and os.access(folder, os.W_OK | os.X_OK)


def _temporary_folder() -> Path:
    """Return this user's folder for temporary files, the same one in every process, so that compiled code is kept."""
    folder = Path(tempfile.gettempdir()) / f"robot-rl-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="robot-rl-"))
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_private else Path(tempfile.mkdtemp(prefix="robot-rl-"))


def open_missing() -> None:
    """Open /dev/null as standard input, output or error if the process was started without it.

    Otherwise the next file that is opened gets its descriptor, and receives the output of libraries.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # The lowest free descriptor: this one.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class LenientStreams:
    """Context in which writing to standard output and error never fails: a terminal, a reader or a disk may go away.

    Only streams that belong to a file are replaced; others, such as a test's, stay.
    """

    def __init__(self) -> None:
        self._before: dict[str, io.TextIOWrapper] = {}

    def __enter__(self) -> LenientStreams:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            with contextlib.suppress(OSError, ValueError, AttributeError):
                buffer = io.BufferedWriter(DroppingFile(stream.fileno()))
                lenient = io.TextIOWrapper(buffer, stream.encoding, errors="backslashreplace", line_buffering=True)
                self._before[name] = stream
                setattr(sys, name, lenient)
        return self

    def __exit__(self, *_: object) -> None:
        for name, stream in self._before.items():
            with contextlib.suppress(OSError, ValueError):
                getattr(sys, name).flush()
            setattr(sys, name, stream)


class DroppingFile(io.RawIOBase):
    """A file to write to by its descriptor, which stays open; bytes that cannot be written are dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal that is still there."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes and return how many were written or dropped."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return memoryview(data).nbytes
