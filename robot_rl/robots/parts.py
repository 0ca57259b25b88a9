"""What is known of a robot while it is drafted: what was read, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(slots=True)
class Limits:
    """What a source says of a joint's motor; None where it says nothing."""

    effort: float | None = None
    velocity: float | None = None


@dataclass(slots=True)
class Source:
    """A robot that was read.

    Attributes:
        path: its file.
        spec: the `mujoco.MjSpec`, with nothing in it but the robot.
        limits: by joint.
        default: positions of joints in the source's first keyframe; empty without one.
        base: name of the floating base's body; None for a fixed one.
        coupled: joint -> the joint that leads it, by equalities of the model, and factor and offset, counted from where
            the model has them at rest.
        passive: joints that nothing drives, though others have motors.
        turned: by the name of a body that floats how the first keyframe turns it, a quaternion w x y z.
        is_urdf: whether the file is a URDF.
        middle: joints that the default pose has in the middle of their range, since it has no zero.
        said: what was left out or guessed, in lines.
    """

    path: Path
    spec: Any
    limits: dict[str, Limits] = field(default_factory=dict)
    default: dict[str, float] = field(default_factory=dict)
    base: str | None = None
    coupled: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    passive: list[str] = field(default_factory=list)
    turned: dict[str, np.ndarray] = field(default_factory=dict)
    is_urdf: bool = False
    middle: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Gains:
    """How stiff a joint is: its natural frequency [Hz] and damping ratio with the inertia that it moves."""

    frequency: float
    damping: float


@dataclass(slots=True)
class Draft:
    """A robot in the form of ours.

    Attributes:
        spec: its model.
        joints: by name the fields of `robot_rl_assets.robot.Joint`.
        base: name of the base's body; None for a fixed one.
        height: of the base in the default pose [m].
        feet: names, in pairs where there are two sides.
        radius: of a foot [m].
        foot_mirror: index of each foot on the other side.
        imu: name of the site of the IMU; None for a fixed base.
        wheels: joints of driven wheels, with their radii [m].
        turn: by how much what is in the base is turned in the source, a quaternion w x y z.
        problems: what is wrong with it, in lines.
        said: what was guessed, left out or replaced, in lines.
    """

    spec: Any
    joints: dict[str, dict[str, Any]]
    base: str | None
    height: float = 0.0
    feet: list[str] = field(default_factory=list)
    radius: float = 0.0
    foot_mirror: list[int] = field(default_factory=list)
    imu: str | None = None
    wheels: dict[str, float] = field(default_factory=dict)
    turn: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
