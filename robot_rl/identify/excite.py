"""An excitation for a robot that hangs or is bolted: another sweep of frequencies on each joint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from robot_rl_assets.robot import Robot

from robot_rl.errors import UserError
from robot_rl.identify.plant_model import joint_limits

Array = NDArray[np.float64]
SPEED_SHARE, TORQUE_SHARE, RANGE_SHARE = 0.8, 0.5, 0.9
"""Most of a joint's speed limit, of its torque limit (for its inertia, without weight), and of its range."""
AMPLITUDE = 0.4
"""The most that a joint swings [rad or m]."""
SLOW_HZ, FAST_HZ = (0.2, 0.5), (3.0, 4.5)
"""Ranges of the frequencies at which sweeps begin and end."""
FADE_S = 1.0
"""Time in which the sweep grows at the start and fades at the end [s]."""
GOLDEN = 0.6180339887498949


def excite(robot: Robot, seconds: float = 20.0, rate: float = 500.0, share: float = 1.0) -> dict[str, Any]:
    """Return the targets of an excitation as arrays of an .npz: time, target, kp, kd, joints.

    Args:
        robot: The robot; feet and arms have to be free of contacts.
        seconds: Length [s].
        rate: Rows a second.
        share: Of the usual amplitude.

    Raises:
        UserError: A length, rate or share out of range, or a robot without servos of positions.
    """
    for name, value, low, high in (
        ("seconds", seconds, 4.0, 600.0),
        ("rate", rate, 20.0, 2000.0),
        ("share", share, 0.01, 1.0),
    ):
        if not low <= value <= high:
            raise UserError(name, f"{value:g}", f"must be in [{low:g}, {high:g}]")
    driven = [n for n, joint in enumerate(robot.joints) if joint.kp > 0]
    if not driven:
        raise UserError("robot", robot.name, "none of its joints follows a target of its position")
    time = np.arange(round(seconds * rate)) / rate
    target = np.repeat(np.array(robot.default_pos())[None], len(time), 0)
    limits, inertia = joint_limits(robot)
    for place, n in enumerate(driven):
        shape = _shape(time, (place + 1) * GOLDEN % 1.0)
        fastest = SPEED_SHARE * robot.joints[n].velocity_limit / np.abs(np.gradient(shape, time)).max()
        acceleration = np.abs(np.gradient(np.gradient(shape, time), time)).max()
        strongest = TORQUE_SHARE * robot.joints[n].effort_limit / (inertia[n] * acceleration)
        widest = 0.5 * RANGE_SHARE * float(limits[n, 1] - limits[n, 0])
        amplitude = share * min(AMPLITUDE, fastest, strongest, widest)
        target[:, n] = _place(robot.joints[n].default_pos, limits[n], amplitude, time) + amplitude * shape
    kp, kd = (np.array([getattr(joint, name) for joint in robot.joints]) for name in ("kp", "kd"))
    return {"time": time, "target": target, "kp": kp, "kd": kd, "joints": np.array(robot.joint_names)}


def _shape(time: Array, place: float) -> Array:
    """Return a sweep within -1 and 1 that grows from 0 and fades; `place` in [0, 1) is different for each joint."""
    seconds = time[-1]
    slow = SLOW_HZ[0] + place * (SLOW_HZ[1] - SLOW_HZ[0])
    fast = FAST_HZ[0] + (place * 7.0 % 1.0) * (FAST_HZ[1] - FAST_HZ[0])
    phase = 2.0 * np.pi * place
    sweep = np.sin(2.0 * np.pi * (slow * time + 0.5 * (fast - slow) * time**2 / seconds) + phase)
    # A slow swing moves the sweep through the range: gravity's torque shows the encoder's offset.
    return _envelope(time) * (0.7 * sweep + 0.3 * np.sin(2.0 * np.pi * 0.5 * slow * time - phase))


def _place(default: float, limits: Array, amplitude: float, time: Array) -> Array:
    """Return the middle of the swing: from the default pose to one with room for the swing, and back."""
    margin = 0.5 * (1.0 - RANGE_SHARE) * float(limits[1] - limits[0]) if np.isfinite(limits).all() else 0.0
    center = np.clip(default, limits[0] + margin + amplitude, limits[1] - margin - amplitude)
    return default + (center - default) * _envelope(time)


def _envelope(time: Array) -> Array:
    fade = np.clip(np.minimum(time, time[-1] - time) / FADE_S, 0.0, 1.0)
    return 0.5 - 0.5 * np.cos(np.pi * fade)


def save(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays as an .npz, whole or not at all."""
    import io

    from robot_rl.files import write_atomic

    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    write_atomic(path, stream.getvalue())
