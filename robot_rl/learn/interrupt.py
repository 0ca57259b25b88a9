"""Ctrl-C as a request: the iteration in hand is finished, so that what is saved is a whole state."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """While it is entered, the first Ctrl-C sets `requested` and the second raises KeyboardInterrupt.

    Outside the main thread, where Python allows no signal handlers, it does nothing.

    Attributes:
        requested: the user wants to stop.
    """

    def __init__(self) -> None:
        """Start with no request."""
        self.requested = False
        self._previous: Any = None
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> StopRequest:
        """Take over SIGINT."""
        if self._is_main:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Give SIGINT back."""
        if self._is_main:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
