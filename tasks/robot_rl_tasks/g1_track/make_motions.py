"""Make the G1's library of motions by inverse kinematics: squat, wave, step, turn, get up.

    python -m robot_rl_tasks.g1_track.make_motions

It writes them to the folder ``motions`` next to the robot's model. Feet stay flat on the floor but for their steps, the
center of mass stays above the feet that carry it, and everything moves on smooth steps 10 x^3 - 15 x^4 + 6 x^5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Robot
from robot_rl_envs.motions import Motion, rotation
from robot_rl_envs.motions.kinematics import Solver, Targets

RATE_HZ = 30.0
STAND_Z = 0.74
"""Height of the pelvis while standing [m]: a little below the default pose, for legs that can lengthen."""
SHIFT_S = 1.0
"""Time in which the weight moves to the other foot: the zero moment point stays within the soles."""
OVER_FOOT = 0.42
"""How far from the middle between the feet it moves, in distances of the feet: a little inside of the sole's middle."""
FEET = ("left_foot_foot", "right_foot_foot")
ARMS_DOWN = {"left_shoulder_roll_joint": 0.2, "right_shoulder_roll_joint": -0.2}


def smooth(t: float, start: float, end: float) -> float:
    """Return 0 before ``start``, 1 after ``end``, and the smooth step between [s]."""
    x = float(np.clip((t - start) / (end - start), 0.0, 1.0))
    return x**3 * (10.0 - 15.0 * x + 6.0 * x**2)


def bump(t: float, start: float, end: float, edge: float) -> float:
    """Return 1 between ``start`` and ``end`` with smooth edges of ``edge`` [s], else 0."""
    return smooth(t, start, start + edge) - smooth(t, end - edge, end)


def yaw_quat(yaw: float) -> np.ndarray:
    """Return the orientation (w, x, y, z) of a heading [rad]."""
    return np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])


def pitch_quat(yaw: float, pitch: float) -> np.ndarray:
    """Return the orientation of a body that faces ``yaw`` and leans forward by ``pitch`` [rad]."""
    return rotation.multiply(yaw_quat(yaw), np.array([np.cos(pitch / 2), 0.0, np.sin(pitch / 2), 0.0]))


@dataclass(slots=True)
class Step:
    """One step: a foot moves to its place after a turn, between two times [s]."""

    foot: int
    start: float
    end: float
    turn: float = 0.0
    height: float = 0.07


class Library:
    """Makes each motion of a robot like the G1."""

    def __init__(self, robot: Robot):
        self.robot, self.solver = robot, Solver(robot)
        data, model = self.solver.data, self.solver.model
        self.home = [data.site_xpos[model.site(foot).id].copy() for foot in FEET]
        for pos in self.home:
            pos[2] = robot.foot_radius
        self.center = 0.5 * (self.home[0] + self.home[1])[:2]

    def _film(self, name: str, seconds: float, at: Callable[[float], Targets]) -> Motion:
        """Solve a motion frame by frame; the first frame is solved twice, so that it starts from its own solution."""
        self.solver.stand()
        times = np.arange(round(seconds * RATE_HZ) + 1) / RATE_HZ
        self.solver.solve(at(0.0))
        frames = np.array([self.solver.solve(at(float(t))) for t in times])
        base = self.solver.base_qpos
        return Motion(
            name=name,
            rate_hz=RATE_HZ,
            joint_names=tuple(self.robot.joint_names),
            joint_pos=frames[:, self.solver.qpos],
            base_pos=frames[:, base : base + 3],
            base_quat_wxyz=frames[:, base + 3 : base + 7],
            robot=self.robot.name,
        )

    def _standing(self, **changes: object) -> Targets:
        feet = {foot: (pos, yaw_quat(0.0)) for foot, pos in zip(FEET, self.home, strict=True)}
        found = Targets(feet=feet, com_xy=self.center, base_z=STAND_Z, base_quat=yaw_quat(0.0), joints=dict(ARMS_DOWN))
        for field, value in changes.items():
            setattr(found, field, value)
        return found

    def squat(self) -> Motion:
        """Go down by 22 cm and up again, arms stretched out to the front."""

        def at(t: float) -> Targets:
            down = bump(t, 0.4, 4.6, 1.8)
            arms = {f"{side}_shoulder_pitch_joint": 0.2 - 1.3 * down for side in ("left", "right")}
            arms |= {f"{side}_elbow_joint": 0.6 + 0.5 * down for side in ("left", "right")}
            lean = pitch_quat(0.0, 0.3 * down)
            return self._standing(
                base_z=STAND_Z - 0.22 * down,
                base_quat=lean,
                body_quat={"torso_link": lean},
                joints=ARMS_DOWN | arms,
            )

        return self._film("squat", 5.0, at)

    def wave(self) -> Motion:
        """Raise the right arm and wave three times."""

        def at(t: float) -> Targets:
            up = bump(t, 0.3, 4.7, 1.0)
            swing = bump(t, 1.2, 3.8, 0.4) * np.sin(2.0 * np.pi * (t - 1.2) / 0.867)
            arms = {
                "right_shoulder_pitch_joint": 0.2 - 0.4 * up,
                "right_shoulder_roll_joint": -0.2 - 1.1 * up,
                "right_shoulder_yaw_joint": -1.3 * up,
                "right_elbow_joint": 0.6 - 0.8 * up + 0.45 * swing,
            }
            return self._standing(joints=ARMS_DOWN | arms)

        return self._film("wave", 5.0, at)

    def _walk(self, name: str, seconds: float, steps: list[Step]) -> Motion:
        """Step after step in place; the center of mass moves over the foot that carries before the other one lifts."""

        def yaw(t: float, foot: int) -> float:
            return sum(step.turn * smooth(t, step.start, step.end) for step in steps if step.foot == foot)

        def at(t: float) -> Targets:
            feet, places = {}, []
            for k, foot in enumerate(FEET):
                turn = yaw_quat(yaw(t, k))
                pos = rotation.rotate(turn, np.append(self.home[k][:2] - self.center, 0.0))
                pos[:2] += self.center
                lift = sum(s.height * bump(t, s.start, s.end, 0.5 * (s.end - s.start)) for s in steps if s.foot == k)
                pos[2] = self.home[k][2] + lift
                places.append(pos[:2])
                feet[foot] = (pos, turn)
            over = sum((1 - 2 * s.foot) * bump(t, s.start - SHIFT_S, s.end + SHIFT_S, SHIFT_S) for s in steps)
            share = 0.5 + OVER_FOOT * over  # 0 above the left foot, 1 above the right one
            com = (1.0 - share) * places[0] + share * places[1]
            heading = yaw_quat(0.5 * (yaw(t, 0) + yaw(t, 1)))
            return self._standing(feet=feet, com_xy=com, base_quat=heading, body_quat={"torso_link": heading})

        return self._film(name, seconds, at)

    def step(self) -> Motion:
        """Lift the right foot, then the left one, in place."""
        return self._walk("step", 4.4, [Step(1, 1.1, 1.7), Step(0, 2.7, 3.3)])

    def turn(self) -> Motion:
        """Turn left by 60 degrees in four steps."""
        turn = np.radians(30.0)
        feet = (0, 1, 0, 1)
        steps = [Step(foot, 1.1 + 1.6 * k, 1.7 + 1.6 * k, turn, 0.05) for k, foot in enumerate(feet)]
        return self._walk("turn", 7.6, steps)

    def get_up(self) -> Motion:
        """Rise from lying face down: onto hands and knees, one foot after the other below the body, and up."""
        self.solver.stand()
        # From the end on: the solver begins with standing, and each pose is near the next one.
        poses = [(at, self._solved(targets)) for at, targets in reversed(self._rising())][::-1]
        times = np.arange(round(poses[-1][0] * RATE_HZ) + 1) / RATE_HZ
        frames = np.array([self._between(poses, float(t)) for t in times])
        base = self.solver.base_qpos
        frames[:, base + 2] -= [self.solver.lowest(frame) for frame in frames]
        return Motion(
            name="get_up",
            rate_hz=RATE_HZ,
            joint_names=tuple(self.robot.joint_names),
            joint_pos=frames[:, self.solver.qpos],
            base_pos=frames[:, base : base + 3],
            base_quat_wxyz=frames[:, base + 3 : base + 7],
            robot=self.robot.name,
        )

    def _rising(self) -> list[tuple[float, Targets]]:
        """Return the times [s] and poses of rising; hands keep their place until the feet carry everything."""
        hands = {f"{side}_wrist_yaw_link": np.array([0.40, y, 0.08]) for side, y in (("left", 0.2), ("right", -0.2))}

        def feet(x: float, z: float, pitch: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
            moved = np.array([x, 0.0, z])
            return {foot: (pos + moved, pitch_quat(0.0, pitch)) for foot, pos in zip(FEET, self.home, strict=True)}

        flat, back, over = feet(0.0, 0.0, 0.0), feet(-0.42, 0.045, 1.1), feet(-0.2, 0.1, 0.5)
        above = feet(0.0, 0.07, 0.0)
        loose = {"base_z": 20.0, "base_quat": 4.0, "feet": 20.0, "body_pos": 40.0, "com": 10.0}

        def pose(where: dict[str, Any], height: float, pitch: float, com: float | None = None, **more: Any) -> Targets:
            xy = None if com is None else np.array([com, 0.0])
            base = pitch_quat(0.0, pitch)
            return Targets(feet=where, com_xy=xy, base_z=height, base_quat=base, weights=loose, **more)

        left, right = FEET
        spread = {"shoulder_pitch": 0.0, "shoulder_roll": 1.1, "shoulder_yaw": 1.3, "elbow": 0.0}
        arms = {f"left_{joint}_joint": angle for joint, angle in spread.items()}
        arms |= {f"right_{joint}_joint": -angle for joint, angle in spread.items()}
        lying = pose(feet(-0.55, 0.06, 1.3), 0.1, 1.57, joints=arms)
        kneeling = pose(back, 0.36, 1.25, body_pos=hands)
        left_over = pose({left: over[left], right: back[right]}, 0.44, 1.25, body_pos=hands)
        one_foot = pose({left: flat[left], right: back[right]}, 0.42, 1.1, body_pos=hands)
        right_over = pose({left: flat[left], right: over[right]}, 0.44, 1.15, 0.26, body_pos=hands)
        right_above = pose({left: flat[left], right: above[right]}, 0.40, 1.05, 0.16, body_pos=hands)
        both_feet = pose(flat, 0.36, 1.0, 0.12, body_pos=hands)
        squatting = self._standing(base_z=0.42, base_quat=pitch_quat(0.0, 0.6))
        standing = self._standing()
        return [
            (0.0, lying),
            (0.5, lying),
            (2.0, kneeling),
            (2.8, left_over),
            (3.6, one_foot),
            (4.3, right_over),
            (4.9, right_above),
            (5.4, both_feet),
            (6.8, squatting),
            (8.6, standing),
            (9.2, standing),
        ]

    def _solved(self, targets: Targets) -> np.ndarray:
        """Return qpos of a pose far from the last one."""
        for _ in range(9):
            self.solver.solve(targets)
        return self.solver.solve(targets)

    def _between(self, poses: list[tuple[float, np.ndarray]], t: float) -> np.ndarray:
        """Return qpos at a time [s], smooth from each pose to the next."""
        k = max(j for j, (at, _) in enumerate(poses[:-1]) if at <= t)
        (start, one), (end, two) = poses[k], poses[k + 1]
        share, at = smooth(t, start, end), self.solver.base_qpos + 3
        qpos = one + share * (two - one)
        qpos[at : at + 4] = rotation.slerp(one[at : at + 4], two[at : at + 4], np.array(share))
        return qpos


def main() -> None:
    """Write every motion of the library."""
    robot = get_robot("unitree_g1")
    library = Library(robot)
    folder = Path(robot.model).parent / "motions"
    for make in (library.squat, library.wave, library.step, library.turn, library.get_up):
        motion = make()
        motion.save(folder / f"{motion.name}.npz")


if __name__ == "__main__":
    main()
