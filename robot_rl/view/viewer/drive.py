"""An environment stepped by a policy, and demonstrations of velocity commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from robot_rl.evaluation.policies import Loadable, load_policy
from robot_rl.view.viewer.command import CommandInfo, command_info
from robot_rl.view.viewer.eyes import camera_images
from robot_rl.view.viewer.shapes import height_above_base

SMOOTHING_S = 0.15
"""Time constant of the measured velocity that is shown [s]; that of a single control step is noisy."""
CLEAR_M = 0.06
"""Space between the robot's head and the lines of its velocities [m]."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Segment:
    """A part of a demonstration: from `start_s` on, the command of every world is `command` (width,)."""

    start_s: float
    label: str
    command: tuple[float, ...]


class Driver:
    """Steps an environment by a policy.

    Attributes:
        env: the environment.
        info: description of its command; None without one.
        time_s: simulated time since the start [s].
        episode_return: (N,) reward summed over the current episodes.
        above_m: height above the base at which velocities are drawn [m]: over the robot's head.
        measured: (N, 3) smoothed planar velocity and yaw rate in the base frame; 0 without a velocity command.
        failures: number of episodes that ended, other than by a time-out.
    """

    def __init__(self, env: Any, policy: Loadable) -> None:
        """Drive an environment, a `robot_rl_envs.env.Env` or compatible, in its current state; see `load_policy`."""
        self.env, self._policy = env, load_policy(policy, env)
        self.info = command_info(env)
        self.time_s, self.failures = 0.0, 0
        self.episode_return, self.measured = torch.zeros(env.num_envs), np.zeros((env.num_envs, 3))
        self.above_m = height_above_base(scene_model(env)) + CLEAR_M
        self._obs = env.get_observations()
        self._policy.reset()

    @property
    def tracks(self) -> bool:
        """Whether the robot is to follow a velocity, so that its motion can be compared with it."""
        return self.info is not None and self.info.is_velocity

    def camera_images(self, world: int, width: int) -> dict[str, np.ndarray]:
        """Return the images of a world's cameras; see `robot_rl.view.viewer.eyes.camera_images`."""
        return camera_images(self.env, self._obs, world, width)

    def reset(self) -> None:
        """Reset every world."""
        self._obs = self.env.reset()
        self.episode_return.zero_()
        self.measured[:] = 0.0
        self._policy.reset()

    @torch.no_grad()
    def step(self) -> np.ndarray:
        """Run one control step and return the worlds (N,) bool whose episode ended."""
        self._obs, reward, done, extras = self.env.step(self._policy(self._obs))
        done, timed_out = done.bool().cpu(), extras["time_outs"].bool().cpu()
        self.episode_return = torch.where(done, 0.0, self.episode_return + reward.float().cpu())
        self.time_s += self.env.step_dt
        mask = done.numpy().copy()
        self.failures += int((done & ~timed_out).sum())
        if mask.any():
            self._policy.reset(done)
        if self.tracks:
            self.measured += (1 - math.exp(-self.env.step_dt / SMOOTHING_S)) * (self.velocity() - self.measured)
            self.measured[mask] = 0.0
        return mask

    @property
    def qpos(self) -> np.ndarray:
        """(N, nq) positions in MuJoCo's order."""
        return world_qpos(self.env)

    def rows(self, world: int) -> range:
        """Return the rows of a world: one for each of its robots."""
        count = self.env.num_envs // num_worlds(self.env)
        return range(world * count, (world + 1) * count)

    def command(self) -> np.ndarray:
        """Return the command (N, width)."""
        return self.env.state.command.detach().cpu().numpy().copy()

    def velocity(self) -> np.ndarray:
        """Return planar velocity and yaw rate (N, 3) in the base frame."""
        state = self.env.state
        planar = state.base_lin_vel_b[:, :2].detach().cpu().numpy()
        return np.concatenate([planar, state.base_ang_vel_b[:, 2:3].detach().cpu().numpy()], axis=1)


def num_worlds(env: Any) -> int:
    """Return the number of worlds, of which a team's have several rows."""
    return int(getattr(env, "num_worlds", env.num_envs))


def is_team(env: Any) -> bool:
    """Whether the worlds of an environment have several robots."""
    return num_worlds(env) < env.num_envs


def world_qpos(env: Any) -> np.ndarray:
    """Return (N, nq) positions of every world in MuJoCo's order."""
    qpos = env.world_qpos if hasattr(env, "world_qpos") else env.state.qpos
    return qpos.detach().cpu().numpy().astype(np.float64)


def goal(env: Any, world: int) -> np.ndarray | None:
    """Return the position (3,) [m] of the goal that a world's robots share; None without one."""
    position = getattr(env.state, "goal_pos_w", None)
    rows = env.num_envs // num_worlds(env)
    return None if position is None else position[world * rows].detach().cpu().numpy().astype(np.float64)


def scene_model(env: Any) -> Any:
    """Return the MuJoCo model to draw: the one with visual geoms if the environment has one, else the simulated one."""
    scene = getattr(env, "scene", None)
    return scene.render_model if scene is not None else env.engine.model


def can_be_pushed(env: Any) -> bool:
    """Whether an environment can push its robot: only one with a floating base moves."""
    scene = getattr(env, "scene", None)
    return hasattr(env, "push") and (scene is None or scene.base)


def free_objects(env: Any, world: int = 0) -> dict[str, np.ndarray]:
    """Return the poses (7,) of a world's free objects: position [m] and orientation w, x, y, z."""
    elements = getattr(getattr(env, "scene", None), "elements", None)
    places = {name: thing.qpos for name, thing in elements.objects.items() if not thing.fixed} if elements else {}
    qpos = world_qpos(env)[world]
    return {name: qpos[at : at + 7] for name, at in places.items()}


def base_pose(env: Any, row: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the pose of a base frame in the world: position (3,) [m] and orientation (4,) w, x, y, z."""
    scene, state = getattr(env, "scene", None), env.state
    is_mounted = hasattr(env, "crews") and bool(env.agents)  # A team's robots stand as the task puts them.
    if scene is not None and not scene.base and not is_mounted:
        return np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
    parts = (state.base_pos_w[row], state.base_quat_wxyz[row])
    position, quat = (part.detach().cpu().numpy().astype(np.float64) for part in parts)
    return position, quat


def command_frame(env: Any, info: CommandInfo, row: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the pose of the frame of a row's command in the world, as `base_pose` does."""
    return base_pose(env, row) if info.frame == "base" else (np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]))


def make_script(info: CommandInfo, seconds: float) -> list[Segment]:
    """Return a demonstration of a velocity command: forward, sideways, turning, a curve, standing.

    It lasts `seconds` [s] and stays within the ranges; components after the first three are zero or next to it.
    """
    vx, vy, yaw = (0.75 * max(float(high), 0.0) for high in info.upper[:3])
    further = tuple(np.clip(0.0, info.lower, info.upper)[3:].tolist())
    parts = [
        ("forward", (vx, 0.0, 0.0), 0.26),
        ("sideways", (0.0, vy, 0.0), 0.2),
        ("turn", (0.0, 0.0, yaw), 0.18),
        ("curve", (0.7 * vx, 0.0, -0.7 * yaw), 0.22),
        ("stand", (0.0, 0.0, 0.0), 0.14),
    ]
    segments, start = [], 0.0
    for label, command, share in parts:
        if label == "stand" or any(command):
            segments.append(Segment(start_s=start, label=label, command=command + further))
            start += share * seconds
    return segments


def segment_at(script: list[Segment], time_s: float) -> Segment:
    """Return the segment at a time [s]."""
    return [segment for segment in script if segment.start_s <= time_s + 1e-9][-1]


def yaw(quat_wxyz: np.ndarray) -> float:
    """Return the angle about the vertical [rad] of the heading of an orientation (4,)."""
    w, x, y, z = quat_wxyz
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def heading(quat_wxyz: np.ndarray) -> np.ndarray:
    """Return the rotation (2, 2) from the heading frame of an orientation (4,) to the world."""
    angle = yaw(quat_wxyz)
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def rotation(quat: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) from the frame of a unit quaternion (4,) w, x, y, z to the one it is given in."""
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
