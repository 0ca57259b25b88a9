"""Sources of the operator's command: the task's own draw, a fixed one, a demonstration, a joystick."""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np

from robot_rl.errors import UserError
from robot_rl.viewer.drive import AXES, make_script, segment_at, velocity_ranges

EVENT = struct.Struct("<IhBB")
"""One event of Linux's joystick interface: time [ms], value, type, number."""
BUTTON, AXIS, INITIAL = 0x01, 0x02, 0x80
FULL = 32767.0
DEAD_ZONE = 0.08
STICK = {"vx": (1, -1.0), "vy": (0, -1.0), "yaw": (3, -1.0)}
"""Axis of the joystick and its sign for each component: left stick forward and sideways, right stick turns."""
BUTTONS = {0: "stand", 1: "damp", 2: "policy", 7: "policy"}

Ranges = dict[str, tuple[float, float]]


class Commands:
    """The task's own command and no requests; a subclass gives others."""

    def command(self, time_s: float) -> np.ndarray | None:
        """Return the command at a time since the policy started [s]; None: what the task draws."""
        return None

    def take_request(self) -> str:
        """Return the request since the last call: "damp", "stand", "policy" or "" for none."""
        return ""


class Fixed(Commands):
    """One command all the time."""

    def __init__(self, values: tuple[float, ...]) -> None:
        """Use a command (vx, vy, yaw)."""
        self._values = values

    def command(self, time_s: float) -> np.ndarray | None:
        """See `Commands`."""
        return np.array(self._values, np.float32)


class Demonstration(Commands):
    """Forward, sideways, turning, a curve, standing: each a share of the time."""

    def __init__(self, ranges: Ranges, seconds: float) -> None:
        """Plan it within the ranges of the command."""
        self._script = make_script(ranges, seconds)

    def command(self, time_s: float) -> np.ndarray | None:
        """See `Commands`."""
        return np.array(segment_at(self._script, max(0.0, time_s)).command, np.float32)


class Joystick(Commands):
    """A gamepad: left stick moves, right stick turns; A stands, B damps, X or Start lets the policy walk."""

    def __init__(self, path: str, ranges: Ranges) -> None:
        """Open a device such as /dev/input/js0; raise a UserError if there is none."""
        self._ranges, self._axes, self._request = ranges, dict.fromkeys(range(8), 0.0), ""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise UserError(f"command={path}: cannot be opened ({error.strerror}); name a joystick") from None
        self._rest = b""

    def _read(self) -> None:
        try:
            data = self._rest + os.read(self._file, 64 * EVENT.size)
        except BlockingIOError:
            return
        except OSError:  # it was unplugged: let the robot stand, and damp
            self._axes, self._request = dict.fromkeys(self._axes, 0.0), "damp"
            return
        whole = len(data) - len(data) % EVENT.size
        self._rest = data[whole:]
        for _, value, kind, number in EVENT.iter_unpack(data[:whole]):
            if kind & ~INITIAL == AXIS:
                share = value / FULL
                self._axes[number] = 0.0 if abs(share) < DEAD_ZONE else float(np.clip(share, -1.0, 1.0))
            elif kind == BUTTON and value and number in BUTTONS and self._request != "damp":
                self._request = BUTTONS[number]

    def command(self, time_s: float) -> np.ndarray | None:
        """See `Commands`."""
        self._read()
        values = []
        for axis in AXES:
            number, sign = STICK[axis]
            share, (low, high) = sign * self._axes.get(number, 0.0), self._ranges[axis]
            values.append(share * high if share >= 0 else -share * low)
        return np.array(values, np.float32)

    def take_request(self) -> str:
        """See `Commands`."""
        self._read()
        request, self._request = self._request, ""
        return request

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)


def make_commands(text: str, env: Any, seconds: float) -> Commands:
    """Return the source of commands that a `command=` option specifies.

    Args:
        text: "task", "script", the path of a joystick, or numbers such as "0.5,0,0".
        env: The environment.
        seconds: Length of the session [s].

    Raises:
        UserError: The option is invalid, or needs a velocity command that the task does not have.
    """
    if text in ("", "task"):
        return Commands()
    if text == "script" or text.startswith("/"):
        ranges = velocity_ranges(env)
        if ranges is None:
            raise UserError(f"command={text}: the task {env.cfg.name} has no velocity command; leave it out")
        return Demonstration(ranges, seconds) if text == "script" else Joystick(text, ranges)
    try:
        values = tuple(float(part) for part in text.strip("[]()").split(","))
    except ValueError:
        values = ()
    if len(values) != len(AXES) or not np.isfinite(values).all():
        raise UserError(f"command={text}: must be task, script, a joystick such as /dev/input/js0, or vx,vy,yaw")
    return Fixed(values)
