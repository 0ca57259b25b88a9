"""Standard output and error that cannot end a training: what nobody takes is dropped."""

from __future__ import annotations

import contextlib
import io
import os
import sys

TYPE_CHECKING = False  # Not from typing, which takes as long as all the rest to import.
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def open_missing() -> None:
    """Give a process that was started without standard input, output or error /dev/null in their place.

    Otherwise the next file that is opened takes their number, and gets what libraries print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # The lowest number that is free: this one.
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class LenientStreams:
    """While it is entered, writing to standard output and error never fails: a terminal, a reader or a disk may go."""

    def __init__(self) -> None:
        """Change nothing yet."""
        self._before: dict[str, io.TextIOWrapper] = {}

    def __enter__(self) -> LenientStreams:
        """Replace the streams that belong to a file; others, such as a test's, stay."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
            with contextlib.suppress(OSError, ValueError, AttributeError):
                raw = DroppingFile(stream.fileno())
                lenient = io.TextIOWrapper(
                    io.BufferedWriter(raw), stream.encoding, errors="backslashreplace", line_buffering=True
                )
                self._before[name] = stream
                setattr(sys, name, lenient)
        return self

    def __exit__(self, *_: object) -> None:
        """Put the streams back."""
        for name, stream in self._before.items():
            with contextlib.suppress(OSError, ValueError):
                getattr(sys, name).flush()
            setattr(sys, name, stream)


class DroppingFile(io.RawIOBase):
    """A file to write to by its descriptor; what cannot be written is dropped."""

    def __init__(self, descriptor: int) -> None:
        """Write to a descriptor, which stays open."""
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
        """Write bytes and return how many of them are done with."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return memoryview(data).nbytes
