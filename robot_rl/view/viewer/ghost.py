"""The reference motion of a task that follows one, for those who show it next to the robot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from robot_rl.errors import UserError, suggest
from robot_rl.view.viewer.drive import yaw

OFFSET_M = 1.0
"""Where the ghost stands: this far to the robot's left."""


class Motions:
    """The motions of an environment.

    Attributes:
        names: of the motions.
    """

    def __init__(self, env: Any, names: Sequence[str]) -> None:
        """Show the motions of an environment that has some; see `of`."""
        self._env, self.names = env, tuple(names)

    @classmethod
    def of(cls, env: Any) -> Motions | None:
        """Return the motions of an environment; None if its task follows none."""
        motions = getattr(getattr(env, "scene", None), "reference_motions", None)
        return cls(env, motions.names) if motions is not None and motions.names else None

    def choose(self, name: str) -> None:
        """Follow one motion only, from its first frame on, from the next reset on; "" for all, anywhere.

        Raises:
            UserError: the motion does not exist.
        """
        if name and name not in self.names:
            raise UserError("motion", name, "the task lacks a motion of that name", suggest(name, self.names))
        for path in self._env.params():
            if path.startswith("events.") and path.endswith(".only"):
                event = path.rpartition(".")[0]
                self._env.set_param(path, self.names.index(name) if name else -1)
                self._env.set_param(f"{event}.phase", 0.0 if name else -1.0)

    def _place(self, world: int) -> tuple[int, int]:
        """Return the motion of a world and the frame of it that is its reference."""
        state = self._env.state
        motion = int(state.motion_id[world])
        at, count = int(state.motion_start[world]) + int(state.step_count[world]), int(state.motion_frames[motion])
        return motion, at % count if int(state.motion_loops[motion]) else min(at, count - 1)

    def facts(self, world: int = 0) -> dict[str, str]:
        """Return the name of a world's motion with the time in it, and the joints' error."""
        motion, frame = self._place(world)
        state = self._env.state
        row = int(state.motion_first[motion]) + frame
        error = (state.joint_pos[world] - state.reference_joint_pos[row]).square().mean().sqrt()
        seconds = f"{self.names[motion]}, {frame * self._env.step_dt:.1f} s"
        return {"Motion": seconds, "Joint error": f"{float(error):.3f} rad rms"}

    def ghost(self, qpos: np.ndarray, world: int = 0) -> np.ndarray:
        """Return the reference's positions (nq,), next to the robot with ``qpos`` (nq,) and facing as it does.

        It is moved in the plane and turned about the vertical, as the task's terms compare it; its height is its own.
        """
        env, state = self._env, self._env.state
        motion, frame = self._place(world)
        row, entity = int(state.motion_first[motion]) + frame, env.scene.entity
        reference = {
            name: getattr(state, f"reference_{name}")[row].cpu().numpy().astype(np.float64)
            for name in ("base_pos_w", "base_quat_wxyz", "joint_pos")
        }
        at, pose = entity.base_qpos, qpos.copy()
        robot = qpos[at + 3 : at + 7]
        angle = _twist(reference["base_quat_wxyz"], robot)
        left = angle + yaw(reference["base_quat_wxyz"]) + math.pi / 2
        pose[at : at + 2] = qpos[at : at + 2] + OFFSET_M * np.array([math.cos(left), math.sin(left)])
        pose[at + 2] = reference["base_pos_w"][2] + env.cfg.sim.floor_height
        turn = np.array([math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])
        pose[at + 3 : at + 7] = _product(turn, reference["base_quat_wxyz"])
        pose[entity.joint_qpos] = reference["joint_pos"]
        return pose


def _twist(start: np.ndarray, end: np.ndarray) -> float:
    """Return the angle about the vertical [rad] of the rotation from one orientation (4,) to another."""
    turn = _product(end, start * [1.0, -1.0, -1.0, -1.0])
    return 2.0 * math.atan2(turn[3], turn[0])


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the Hamilton product (4,) of quaternions w, x, y, z."""
    scalar = a[0] * b[0] - a[1:] @ b[1:]
    return np.array([scalar, *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])
