"""Make the G1's library of motions by inverse kinematics: squat, wave, step, turn.

    python -m robot_rl_tasks.g1_track.make_motions

It writes them to the folder ``motions`` beside the robot's model. Feet stay flat on the floor but for their steps, the
centre of mass stays above the feet that carry it, and everything moves on smooth steps 10 x^3 - 15 x^4 + 6 x^5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """One step: a foot moves to where it is after a turn, between two times [s]."""

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
        self.centre = 0.5 * (self.home[0] + self.home[1])[:2]

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
        found = Targets(feet=feet, com_xy=self.centre, base_z=STAND_Z, base_quat=yaw_quat(0.0), joints=dict(ARMS_DOWN))
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
        """Step after step in place; the centre of mass moves over the foot that carries before the other one lifts."""

        def yaw(t: float, foot: int) -> float:
            return sum(step.turn * smooth(t, step.start, step.end) for step in steps if step.foot == foot)

        def at(t: float) -> Targets:
            feet, places = {}, []
            for k, foot in enumerate(FEET):
                turn = yaw_quat(yaw(t, k))
                pos = rotation.rotate(turn, np.append(self.home[k][:2] - self.centre, 0.0))
                pos[:2] += self.centre
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


def main() -> None:
    """Write every motion of the library."""
    robot = get_robot("unitree_g1")
    library = Library(robot)
    folder = Path(robot.model).parent / "motions"
    for make in (library.squat, library.wave, library.step, library.turn):
        motion = make()
        motion.save(folder / f"{motion.name}.npz")


if __name__ == "__main__":
    main()
