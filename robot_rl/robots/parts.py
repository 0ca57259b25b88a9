"""Facts about a robot while it is drafted: the contents of its file, and the draft that is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Reasons = list[str]
"""Lines that say why a guess is as it is."""


@dataclass(slots=True)
class Limits:
    """Limits of a joint's motor; None if the file has none."""

    effort: float | None = None
    velocity: float | None = None


@dataclass(slots=True)
class Source:
    """A robot as its file has it.

    Attributes:
        path: its file.
        spec: the `mujoco.MjSpec`, with nothing in it but the robot.
        limits: by joint.
        default: positions of joints in the first keyframe; empty without one.
        base: name of the floating base's body; None for a fixed one.
        coupled: joint -> the joint that leads it, by equalities of the model, and factor and offset, counted from
            their positions at rest in the model.
        passive: joints without a motor, if others have one.
        turned: orientation of floating bodies in the first keyframe by name, a quaternion w x y z.
        folders: of the models that the file attaches; empty for a URDF.
        notes: one line for everything removed or guessed.
    """

    path: Path
    spec: Any
    limits: dict[str, Limits] = field(default_factory=dict)
    default: dict[str, float] = field(default_factory=dict)
    base: str | None = None
    coupled: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    passive: list[str] = field(default_factory=list)
    turned: dict[str, np.ndarray] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Gains:
    """Stiffness of a joint: its natural frequency [Hz] and damping ratio with the inertia that it moves."""

    frequency: float
    damping: float


@dataclass(slots=True)
class Draft:
    """A robot in this project's form.

    Attributes:
        spec: its model.
        joints: by name the fields of `robot_rl_assets.robot.Joint`.
        base: name of the base's body; None for a fixed one.
        height: of the base in the default pose [m].
        feet: names, in pairs if there are two sides.
        radius: of a foot [m].
        foot_mirror: index of each foot on the other side.
        imu: name of the site of the IMU; None for a fixed base.
        wheels: joints of driven wheels, with their radii [m].
        turn: rotation of the contents of the base in the source, a quaternion w x y z.
        problems: faults, in lines.
        notes: one line for everything guessed, removed or replaced.
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
    notes: list[str] = field(default_factory=list)


def listed(names: Sequence[str]) -> str:
    """Return names for a line, at most five of them."""
    return ", ".join(names if len(names) <= 5 else [*names[:5], "..."])


def free_file(path: Path, taken: Iterable[str]) -> str:
    """Return the name of a file, with the lowest number from 2 that makes it different from those that are taken."""
    taken = {*taken}
    names = (path.name, *(f"{path.stem}_{k}{path.suffix}" for k in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def free_name(stem: str, taken: Iterable[str], start: int = 1) -> str:
    """Return `<stem>_<k>` with the lowest k from `start` that is not taken."""
    taken = set(taken)
    return next(name for k in range(start, 10_000) if (name := f"{stem}_{k}") not in taken)


def base_joint_name(spec: Any) -> str:
    """Return a name for the joint of a floating base that no other joint has."""
    taken = {joint.name for joint in spec.joints}
    return free_name("base_joint", taken, 2) if "base_joint" in taken else "base_joint"


def remove_all(spec: Any, elements: Iterable[Any]) -> int:
    """Remove elements from a `mujoco.MjSpec`; return their number."""
    found = list(elements)
    for element in found:
        spec.delete(element)
    return len(found)


def rounded(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")
