"""An environment stepped by a policy of either kind, and what it is told to do meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

AXES = ("vx", "vy", "yaw")
"""The components of a velocity command: forward and leftward velocity [m/s], yaw rate [rad/s]."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Segment:
    """A part of a demonstration: from `start_s` on, every world is told `command` (vx, vy, yaw)."""

    start_s: float
    label: str
    command: tuple[float, float, float]


class Driver:
    """Steps an environment by a policy, and says how well the robots follow.

    Attributes:
        env: the environment.
        time_s: simulated time since the driver was made [s].
        episode_return: (N,) reward summed over the running episodes.
        resets: worlds that were reset so far, because their episode ended.
    """

    def __init__(self, env: Any, policy: Any | None) -> None:
        """Takes over an environment where it stands.

        Args:
            env: `robot_rl_envs.env.Env` or what looks like it.
            policy: a function from observations to actions (a network; one that remembers has a `reset(done)`), an
                object with `act(robot_state)` and `reset(mask)` (a bundle, for as many robots as `env` has worlds), or
                None for no action at all.
        """
        self.env, self._policy = env, policy
        self.time_s, self.resets = 0.0, 0
        self.episode_return = torch.zeros(env.num_envs)
        self._obs = env.get_observations()
        self._forget = getattr(policy, "reset", lambda mask=None: None)
        self._forget()

    @property
    def _is_bundle(self) -> bool:
        return self._policy is not None and not callable(self._policy)

    def reset(self) -> None:
        """Starts every world anew."""
        self._obs = self.env.reset()
        self.episode_return.zero_()
        self._forget()

    @torch.no_grad()
    def step(self) -> np.ndarray:
        """One control step.

        Returns:
            (N,) bool, worlds whose episode ended in it.
        """
        self._obs, reward, done, _ = self.env.step(self._act())
        done = done.bool().cpu()
        self.episode_return = torch.where(done, 0.0, self.episode_return + reward.float().cpu())
        self.time_s += self.env.step_dt
        mask = done.numpy().copy()
        self.resets += int(mask.sum())
        if mask.any():
            self._forget(mask if self._is_bundle else done)
        return mask

    def _act(self) -> torch.Tensor:
        env = self.env
        if self._policy is None:
            return torch.zeros(env.num_envs, env.num_actions, device=env.device)
        if not self._is_bundle:
            return self._policy(self._obs)
        state = {name: value.cpu().numpy() for name, value in env.robot_state().items()}
        _, action, _ = self._policy.act(state)
        return torch.as_tensor(np.asarray(action), dtype=torch.float32, device=env.device)

    @property
    def qpos(self) -> np.ndarray:
        """(N, nq) where every world stands, in MuJoCo's order."""
        return self.env.state.qpos.detach().cpu().numpy().astype(np.float64)

    def command(self) -> np.ndarray:
        """(N, 3) the command: vx, vy [m/s], yaw rate [rad/s]."""
        return self.env.state.command.detach().cpu().numpy().copy()

    def velocity(self) -> np.ndarray:
        """(N, 3) what the command is about, as measured: planar velocity and yaw rate in the base frame."""
        state = self.env.state
        planar = state.base_lin_vel_b[:, :2].detach().cpu().numpy()
        return np.concatenate([planar, state.base_ang_vel_b[:, 2:3].detach().cpu().numpy()], axis=1)


def scene_model(env: Any) -> Any:
    """The MuJoCo model to draw: the one with visual geoms where the environment has one, else the simulated one."""
    scene = getattr(env, "scene", None)
    return scene.render_model if scene is not None else env.engine.model


def velocity_ranges(env: Any) -> dict[str, tuple[float, float]] | None:
    """The ranges of a task's velocity command {"vx": (low, high), "vy": ..., "yaw": ...}; None when it has none."""
    for term in getattr(env.cfg, "commands", {}).values():
        params = term.params
        if all(f"{axis}_{end}" in params for axis in AXES for end in ("lo", "hi")):
            return {axis: (float(params[f"{axis}_lo"]), float(params[f"{axis}_hi"])) for axis in AXES}
    return None


def make_script(ranges: dict[str, tuple[float, float]], seconds: float) -> list[Segment]:
    """A demonstration within the ranges: forward, sideways, turning, a curve, standing; each a share of the time.

    Args:
        ranges: of the command, as `velocity_ranges` gives them.
        seconds: length of the whole [s].
    """
    vx, vy, yaw = (0.75 * max(ranges[axis][1], 0.0) for axis in AXES)
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
            segments.append(Segment(start_s=start, label=label, command=command))
            start += share * seconds
    return segments


def segment_at(script: list[Segment], time_s: float) -> Segment:
    """The segment that is on at `time_s` [s]."""
    return [segment for segment in script if segment.start_s <= time_s + 1e-9][-1]


def heading(quat_wxyz: np.ndarray) -> np.ndarray:
    """Rotation about the vertical of an orientation (4,), as a (2, 2) matrix from the heading frame to the world."""
    w, x, y, z = quat_wxyz
    angle = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
