"""Sources of the operator's command: the task's own draw, a fixed one, a demonstration, a joystick."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from robot_rl_deploy.parts import ACTION_KINDS

from robot_rl.errors import UserError, suggest
from robot_rl.view.viewer.command import POSE, CommandInfo, command_info
from robot_rl.view.viewer.drive import make_script, segment_at

if TYPE_CHECKING:
    from robot_rl_deploy.contract import Contract

EVENT = struct.Struct("<IhBB")
"""One event of Linux's joystick interface: time [ms], value, type, number."""
BUTTON, AXIS, INITIAL = 0x01, 0x02, 0x80
FULL = 32767.0
DEAD_ZONE = 0.08
STICK = ((1, -1.0), (0, -1.0), (3, -1.0))
"""Axis of the joystick and its sign for vx, vy and the yaw rate: left stick forward and sideways, right stick turns."""
QUATERNION_TOLERANCE = 0.01
BUTTONS = {0: "stand", 1: "damp", 2: "policy", 7: "policy"}


class ActionReader:
    """Turns the commands of a binary to the joints back into the policy's action."""

    def __init__(self, contract: Contract, joints: Sequence[str]) -> None:
        """Take the policy's contract, and the joints in the order of commands."""
        names = list(joints)
        self._index = [names.index(action.joint) for action in contract.actions]
        kinds = [ACTION_KINDS.index(action.kind) for action in contract.actions]
        self._pick = (np.array(kinds), np.arange(len(kinds)))
        self._scale = np.array([action.scale for action in contract.actions], np.float32)
        self._offset = np.array([action.offset for action in contract.actions], np.float32)
        parts = [component.name for component in contract.command]
        self._commanded = [parts.index(action.command) for action in contract.actions if action.command]

    def read(self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, command: np.ndarray | None) -> np.ndarray:
        """Return the action (A,) of targets (J,) [rad or m], speeds [rad/s or m/s] and efforts [N m or N]."""
        of_kind = {"position": q, "velocity": dq, "effort": tau}
        target = np.stack([np.asarray(of_kind[kind])[self._index] for kind in ACTION_KINDS])[self._pick]
        if self._commanded and command is not None:
            target = target - command[self._commanded]
        return ((target - self._offset) / self._scale).astype(np.float32)


class Commands:
    """One command all the time, or the task's own, and no requests; a subclass gives others."""

    def __init__(self, values: Sequence[float] | None = None) -> None:
        """Use a command (width,); None: the task's."""
        self._values = values

    def command(self, time_s: float) -> np.ndarray | None:
        """Return the command at a time since the policy started [s]; None: the task draws it."""
        return None if self._values is None else np.array(self._values, np.float32)

    def take_request(self) -> str:
        """Return the request since the last call: "damp", "stand", "policy" or "" for none."""
        return ""


class Demonstration(Commands):
    """Forward, sideways, turning, a curve, standing: each a share of the time."""

    def __init__(self, info: CommandInfo, seconds: float) -> None:
        """Plan it within the ranges of a velocity command."""
        self._script = make_script(info, seconds)

    def command(self, time_s: float) -> np.ndarray | None:
        """See `Commands`."""
        return np.array(segment_at(self._script, max(0.0, time_s)).command, np.float32)


class Joystick(Commands):
    """A gamepad: left stick moves, right stick turns; A stands, B damps, X or Start lets the policy walk."""

    def __init__(self, path: str, info: CommandInfo) -> None:
        """Open a device such as /dev/input/js0 for a velocity command; raise a UserError if there is none."""
        self._info, self._axes, self._request = info, dict.fromkeys(range(8), 0.0), ""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise UserError("command", path, f"cannot be opened ({error.strerror})", "name a joystick") from None
        self._rest = b""

    def _read(self) -> None:
        try:
            read = os.read(self._file, 64 * EVENT.size)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        if not read:  # it was unplugged, or its source has ended: no command any more, and damp
            self._axes, self._request = dict.fromkeys(self._axes, 0.0), "damp"
            return
        data = self._rest + read
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
        values, ends = np.clip(np.zeros(len(self._info.names)), self._info.lower, self._info.upper), self._info
        for k, (number, sign) in enumerate(STICK):
            share = sign * self._axes.get(number, 0.0)
            values[k] = share * ends.upper[k] if share >= 0 else -share * ends.lower[k]
        return values.astype(np.float32)

    def take_request(self) -> str:
        """See `Commands`."""
        self._read()
        request, self._request = self._request, ""
        return request

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)


class MotionPlayer(Commands):
    """The frames of a reference motion at the control rate, over and over if it loops; else its last one stays."""

    def __init__(self, env: Any, name: str) -> None:
        """Play a motion of the task; raise a UserError if there is none of that name."""
        clips = env.scene.reference_motions
        if name not in clips.names:
            line = f"the task {env.cfg.name} has no motion of that name"
            raise UserError("command", name, line, f"{suggest(name, clips.names)}, or add motions.{name}=<file>")
        self._frames, self._dt = clips.commands(name).astype(np.float32), env.step_dt
        self._loops = clips.motions[name].loops
        self._state, self._motion = env.state, clips.names.index(name)

    def command(self, time_s: float) -> np.ndarray | None:
        """See `Commands`; the environment compares the robot with the same frame, by which it ends episodes."""
        last = len(self._frames) - 1
        frame = max(0, round(time_s / self._dt))
        frame = frame % last if self._loops else min(frame, last)
        self._state.motion_id[0] = self._motion
        self._state.motion_start[0] = frame - self._state.step_count[0]
        return self._frames[frame]


def make_commands(text: str, env: Any, seconds: float) -> Commands:
    """Return the source of commands that a `command=` option specifies.

    Args:
        text: "task", "script", the path of a joystick, numbers such as "0.5,0,0", one a component, or of a task that
            follows motions the name of one; its first one by default.
        env: The environment.
        seconds: Length of the session [s].

    Raises:
        UserError: The option is invalid, or needs a velocity command that the task does not have.
    """
    info = command_info(env)
    if info is not None and info.is_motion:
        return MotionPlayer(env, env.scene.reference_motions.names[0] if text in ("", "task") else text)
    if text in ("", "task"):
        return Commands()
    if text == "script" or text.startswith("/"):
        if info is None or not info.is_velocity:
            raise UserError("command", text, f"the task {env.cfg.name} has no velocity command", "leave it out")
        return Demonstration(info, seconds) if text == "script" else Joystick(text, info)
    if info is None:
        raise UserError("command", text, f"the task {env.cfg.name} has no command", "leave it out")
    try:
        values = np.array([float(part) for part in text.strip("[]()").split(",")])
    except ValueError:
        values = np.zeros(0)
    if len(values) != len(info.names) or not np.isfinite(values).all():
        others = "script, a joystick such as /dev/input/js0, " if info.is_velocity else ""
        raise UserError("command", text, f"must be task, {others}or {','.join(info.names)}")
    if not info.is_velocity:
        _check_ranges(text, info, values)
        values = info.clip(values)
    return Commands(values.tolist())


def _check_ranges(text: str, info: CommandInfo, values: np.ndarray) -> None:
    """Refuse a component outside of its range, which the binary would clip, and a quaternion of another length."""
    for name, value, low, high in zip(info.names, values, info.lower, info.upper, strict=True):
        if not low <= value <= high:
            raise UserError("command", text, f"{name}={value:g} must be in [{low:g}, {high:g}]")
    if info.draws == POSE and abs(np.linalg.norm(values[3:]) - 1) > QUATERNION_TOLERANCE:
        raise UserError("command", text, f"{','.join(info.names[3:])} must be a quaternion of length 1")
