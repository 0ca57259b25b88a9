"""MuJoCo's warnings, for which a process has one function; without one they go to stderr and MUJOCO_LOG.TXT."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from mujoco import get_mju_user_warning, set_mju_user_warning


def ignore(warning: str) -> None:
    """Omit a warning, of which something else reports the cause."""


def omit_warnings() -> None:
    """Omit the warnings from now on, unless a function has them already, such as a user's."""
    if get_mju_user_warning() is None:
        set_mju_user_warning(ignore)


@contextlib.contextmanager
def take_warnings(hear: Callable[[str], Any]) -> Iterator[None]:
    """Pass the warnings inside to a function; afterwards the one before has them again."""
    before = get_mju_user_warning()
    set_mju_user_warning(hear)
    try:
        yield
    finally:
        set_mju_user_warning(before)
