"""Peaks of episodes as lines of a certificate: a quantity, its limit, and whether it stays within."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robot_rl.certify.worlds import Episodes

MOST_AT_LIMIT = 0.1
"""Largest share of the time that a joint's torque may be at its limit."""
MOST_BEYOND = 0.05
"""How far a joint may be beyond its range, which a soft limit of the simulation allows [rad or m]."""


def peak_lines(found: Episodes, env: Any) -> list[dict[str, Any]]:
    """Return a line for each quantity: "name", "meaning", "value", "unit", "limit" and "holds"; None without a limit.

    A line about joints names the worst "joint"; "share" is the share of episodes beyond the limit.
    """
    robot, scene = env.scene.robot, env.scene
    limits = np.array([joint.velocity_limit for joint in robot.joints])
    driven = np.array([not joint.passive for joint in robot.joints])
    units = ["m" if scene.model.joint(joint.name).type[0] == 2 else "rad" for joint in robot.joints]
    worst = int(np.argmax(np.where(driven, (found.speed / limits).max(0), -1.0)))
    over = (found.speed > limits)[:, driven].any(1)
    lines = [
        {
            "name": "joint_speed",
            "meaning": "largest speed of a joint, of the one that is the farthest beyond its limit",
            "joint": robot.joints[worst].name,
            "value": _digits(found.speed[:, worst].max()),
            "unit": f"{units[worst]}/s",
            "limit": float(limits[worst]),
            "share": _digits(over.mean()),
            "holds": not bool(over.any()),
        }
    ]
    worst = int(np.argmax(np.where(driven, found.torque.mean(0), -1.0)))
    share = float(found.torque[:, worst].mean())
    lines.append(
        _of_joint("torque", "share of the time with a joint's torque at its limit", share, "1", MOST_AT_LIMIT)
        | {"joint": robot.joints[worst].name}
    )
    worst = int(np.argmax(found.beyond.max(0)))
    beyond = float(found.beyond[:, worst].max())
    lines.append(
        _of_joint("joint_range", "how far a joint was beyond its range", beyond, units[worst], MOST_BEYOND)
        | {"joint": robot.joints[worst].name}
    )
    if not scene.base:
        return lines
    for name, text, value, unit in (
        ("base_height", "least height of the base above its start", np.nanmin(found.height), "m"),
        ("tilt", "largest tilt of the base", np.nanmax(found.tilt), "rad"),
    ):
        row = {"name": name, "meaning": text, "value": _digits(value), "unit": unit, "limit": None}
        lines.append(row | {"holds": None})
    return lines


def _of_joint(name: str, text: str, value: float, unit: str, limit: float) -> dict[str, Any]:
    row = {"name": name, "meaning": text, "value": _digits(value), "unit": unit}
    return row | {"limit": limit, "holds": value <= limit}


def _digits(value: float) -> float | None:
    return float(f"{float(value):.4g}") if math.isfinite(value) else None
