"""A reference motion: joints and base of one robot at equal steps in time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.motions import rotation
from robot_rl_envs.terms.checks import nearest

MIN_RATE_HZ, MAX_RATE_HZ = 1.0, 1000.0
MEETS_RAD, MEETS_M = 0.1, 0.02
"""A motion loops if its ends differ by less in every joint and in tilt [rad], and in height [m]."""


@dataclass(kw_only=True, slots=True, frozen=True, eq=False)
class Motion:
    """A trajectory of one robot.

    Attributes:
        name: its name in the task.
        rate_hz: frames a second.
        joint_names: names of the joints in the columns of `joint_pos`.
        joint_pos: (T, joints) positions [rad or m].
        base_pos: (T, 3) position of the base's origin above the floor [m], world frame.
        base_quat_wxyz: (T, 4) orientation of the base.
        robot: name of the robot that it is for; "" if the file omits it.
    """

    name: str
    rate_hz: float
    joint_names: tuple[str, ...]
    joint_pos: np.ndarray
    base_pos: np.ndarray
    base_quat_wxyz: np.ndarray
    robot: str = ""

    def __post_init__(self) -> None:
        """Check shapes, rate and numbers.

        Raises:
            ValueError: the line begins with the element.
        """
        if not MIN_RATE_HZ <= self.rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"rate={self.rate_hz:g}: must be between {MIN_RATE_HZ:g} and {MAX_RATE_HZ:g} Hz")
        twice = next((name for name in self.joint_names if self.joint_names.count(name) > 1), "")
        if twice:
            raise ValueError(f"joint {twice!r}: is there twice; each joint has one column")
        count = self.joint_pos.shape[0] if self.joint_pos.ndim else 0
        if count < 2:
            raise ValueError(f"frames={count}: a motion needs at least 2")
        wanted = {"joint_pos": len(self.joint_names), "base_pos": 3, "base_quat_wxyz": 4}
        for name, width in wanted.items():
            value = getattr(self, name)
            if value.shape != (count, width):
                raise ValueError(f"{name}: has shape {value.shape}; must be {(count, width)}")
            bad = np.argwhere(~np.isfinite(value))
            if len(bad):
                raise ValueError(f"{name}: frame {bad[0][0]}, column {bad[0][1]} is not a finite number")
        lengths = np.linalg.norm(self.base_quat_wxyz, axis=1)
        off = np.abs(lengths - 1.0)
        if off.max() > 0.02:
            line = f"frame {int(off.argmax())} has length {lengths[off.argmax()]:.3g}"
            raise ValueError(
                f"base_quat_wxyz: {line}; a unit quaternion is needed, in the order that the file declares"
            )

    @property
    def seconds(self) -> float:
        """Time from the first frame to the last one [s]."""
        return (len(self.joint_pos) - 1) / self.rate_hz

    @property
    def loops(self) -> bool:
        """Whether the ends meet: the last frame is the first one, apart from the robot's place and heading."""
        if np.abs(self.joint_pos[-1] - self.joint_pos[0]).max() > MEETS_RAD:
            return False
        down = rotation.rotate(rotation.conjugate(self.base_quat_wxyz[[0, -1]]), np.array([[0.0, 0.0, -1.0]] * 2))
        tilt = np.arccos(np.clip(down[0] @ down[1], -1.0, 1.0))
        return bool(tilt < MEETS_RAD and abs(self.base_pos[-1, 2] - self.base_pos[0, 2]) < MEETS_M)

    def resampled(self, rate_hz: float) -> Motion:
        """Return the motion at another rate, from its first frame on: linear, orientations on the shorter arc."""
        count = int(np.floor(self.seconds * rate_hz + 1e-6)) + 1
        at = np.minimum(np.arange(count) / rate_hz * self.rate_hz, len(self.joint_pos) - 1.0)
        low = np.minimum(at.astype(int), len(self.joint_pos) - 2)
        share = at - low

        def between(values: np.ndarray) -> np.ndarray:
            return values[low] + share[:, None] * (values[low + 1] - values[low])

        quat = rotation.slerp(self.base_quat_wxyz[low], self.base_quat_wxyz[low + 1], share)
        return replace(
            self,
            rate_hz=float(rate_hz),
            joint_pos=between(self.joint_pos),
            base_pos=between(self.base_pos),
            base_quat_wxyz=quat,
        )

    def for_robot(self, robot: Robot) -> Motion:
        """Return the motion with all joints of ``robot`` in its order; one that the file lacks keeps its default pose.

        Raises:
            ValueError: it is another robot's, or has a joint that this one lacks.
        """
        if self.robot and self.robot != robot.name:
            raise ValueError(f"robot={self.robot!r}: the motion is for another robot; this one is {robot.name!r}")
        if robot.base_body is None:
            raise ValueError(f"robot={robot.name!r}: is bolted down; motions are for robots with a floating base")
        for name in self.joint_names:
            if name not in robot.joint_names:
                line = f"robot {robot.name!r} lacks a joint of that name"
                raise ValueError(f"joint {name!r}: {line}; {nearest(name, robot.joint_names)}")
        if not self.joint_names:
            raise ValueError(f"joints: the file has none of robot {robot.name!r}")
        columns = {name: self.joint_pos[:, k] for k, name in enumerate(self.joint_names)}
        still = np.ones(len(self.joint_pos))
        joints = [columns.get(joint.name, joint.default_pos * still) for joint in robot.joints]
        return replace(self, robot=robot.name, joint_names=tuple(robot.joint_names), joint_pos=np.stack(joints, axis=1))

    def save(self, path: Path | str) -> None:
        """Write the motion as a compressed npz in float32; see :mod:`robot_rl_envs.motions.files`."""
        arrays: dict[str, Any] = {
            "fps": np.float64(self.rate_hz),
            "joint_names": np.array(self.joint_names),
            "joint_pos": self.joint_pos.astype(np.float32),
            "base_pos": self.base_pos.astype(np.float32),
            "base_quat_wxyz": self.base_quat_wxyz.astype(np.float32),
            "robot": np.array(self.robot),
        }
        np.savez_compressed(path, **arrays)
