"""What a task's command is, for those who show it or give it by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

VELOCITY, POSITION, POSE, MOTION = "velocity", "position", "pose", "motion"
TITLES = ("forward", "left", "turn left")
"""What the first components of a velocity command are called."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CommandInfo:
    """The components of a command, see `robot_rl_envs.describe.describe_command`.

    Attributes:
        names, units: of the components.
        lower, upper: (width,) their ranges.
        frame: of its vectors: "base", "world" or "none".
        draws: "velocity", "position", "pose", "phase", "motion" or "" (only numbers).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    frame: str
    draws: str

    @property
    def is_velocity(self) -> bool:
        """Whether it begins with forward and leftward velocity [m/s] and yaw rate [rad/s] in the base frame."""
        return self.draws == VELOCITY

    @property
    def is_target(self) -> bool:
        """Whether it begins with a point [m]."""
        return self.draws in (POSITION, POSE)

    @property
    def is_motion(self) -> bool:
        """Whether it is a frame of a reference motion, which nobody gives by hand."""
        return self.draws == MOTION

    @property
    def labels(self) -> list[str]:
        """Names and units of the components, to be read."""
        titles = [*TITLES, *self.names[3:]] if self.is_velocity else self.names
        return [name if unit == "1" else f"{name} [{unit}]" for name, unit in zip(titles, self.units, strict=True)]

    def clip(self, values: Any) -> np.ndarray:
        """Return a command (width,) within its ranges; a quaternion has unit length and w >= 0."""
        values = np.clip(np.asarray(values, dtype=np.float64), self.lower, self.upper)
        if self.draws == POSE:
            length = float(np.linalg.norm(values[3:]))
            values[3:] = values[3:] / length if length > 1e-6 else (1.0, 0.0, 0.0, 0.0)
            values[3:] *= 1.0 if values[3] >= 0 else -1.0
        return values


def command_info(env: Any) -> CommandInfo | None:
    """Return the description of an environment's command; None without one."""
    described = getattr(env, "describe_command", lambda: None)()
    if described is None:
        return None
    rows = described["components"].values()
    return CommandInfo(
        names=tuple(described["components"]),
        units=tuple(row["unit"] for row in rows),
        lower=np.array([float(row["lower"]) for row in rows]),
        upper=np.array([float(row["upper"]) for row in rows]),
        frame=described["frame"],
        draws=described["draws"],
    )
