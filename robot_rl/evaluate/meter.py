"""The metrics of an evaluation, per episode, in SI units."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

SETTLING_S = 1.0

# Metric -> unit and meaning.
METRICS: dict[str, tuple[str, str]] = {
    "lin_vel_error": ("m/s", "time mean of |v*_xy - v_xy| in the base frame, after the first second"),
    "yaw_vel_error": ("rad/s", "time mean of |w*_z - w_z|, after the first second"),
    "fall_rate": ("1", "share of episodes that ended before their time"),
    "torque_rms": ("N m", "root of the mean square over time and driven joints (N for a slider)"),
    "power": ("W", "time mean of the sum over joints of max(torque * velocity, 0)"),
    "foot_slip": ("m/s", "mean horizontal speed of the feet while they touch the ground"),
    "action_rate": ("rad/s", "time mean of the root mean square over joints of the target's rate of change"),
    "return": ("1", "sum of the rewards of an episode"),
}


class EpisodeMeter:
    """Measures the first episode of every world of an environment.

    `env.state` gives torch views (N, ...) that the environment updates in every step. A world is reset within the step
    that ends its episode, so the last state does not count; the last reward does.

    Attributes:
        alive: (N,) bool, worlds in their first episode.
        fell: (N,) bool, worlds in which the first episode terminated before its time limit.
    """

    def __init__(self, env: Any, description: Mapping[str, Any]) -> None:
        """Choose the metrics that apply to an environment, which has been reset, by its `describe_policy()`."""
        self._env, state, n = env, env.state, env.num_envs
        self._dt = env.step_dt
        self.alive = torch.ones(n, dtype=torch.bool, device=env.device)
        self.fell = torch.zeros_like(self.alive)
        self._return = torch.zeros(n, dtype=torch.float64, device=env.device)
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}
        self._steps = 0
        # The controls of a model's own actuators need not be torques.
        self._has_torques = description.get("action_kind") != "direct"
        self._driven = [i for i, joint in enumerate(description["joints"]) if joint["effort_limit"] > 0]
        scale = [action["scale"] for action in description["actions"]]
        self._scale = torch.tensor(scale, dtype=torch.float64, device=env.device)
        self._bound = description.get("action_clip") or float("inf")
        self._target: Tensor | None = None
        self._tracks = bool(description.get("command")) and _width(state, "command") == 3
        self._feet = _width(state, "foot_contact") > 0
        self._command = torch.zeros(0)

    def before_step(self) -> None:
        """Record the command that the next step is to follow; the step may draw the next one."""
        if self._tracks:
            self._command = self._env.state.command.clone()

    def after_step(self, action: Tensor, reward: Tensor, done: Tensor, time_out: Tensor) -> None:
        """Add a step: action (N, num_actions), and reward, done, time_out (N,)."""
        self._steps += 1
        self._return += torch.where(self.alive, reward.double(), 0.0)
        self.fell |= self.alive & done & ~time_out
        self.alive &= ~done
        state = self._env.state
        if self._tracks:
            self._track(state)
        if self._has_torques:
            torque, speed = state.joint_torque[:, self._driven].double(), state.joint_vel[:, self._driven].double()
            self._add("torque_rms", torque.square().mean(1), self.alive)
            self._add("power", (torque * speed).clamp(min=0).sum(1), self.alive)
        if self._feet:
            self._slip(state)
        target = action.double().clamp(-self._bound, self._bound) * self._scale
        if self._target is not None:
            rate = (target - self._target) / self._dt
            self._add("action_rate", rate.square().mean(1).sqrt(), self.alive)
        self._target = target

    def episodes(self) -> dict[str, Tensor]:
        """Return metric -> (N,) float64 on the CPU, NaN for an episode that was too short to have it."""
        values = {name: total / count for name, (total, count) in self._sums.items()}
        if self._has_torques:
            values["torque_rms"] = values["torque_rms"].sqrt()
        values |= {"fall_rate": self.fell.double(), "return": self._return}
        return {name: values[name].cpu() for name in METRICS if name in values}

    def _track(self, state: Any) -> None:
        settled = self.alive & (self._steps * self._dt > SETTLING_S + 1e-9)
        error = (self._command[:, :2] - state.base_lin_vel_b[:, :2]).double().norm(dim=1)
        self._add("lin_vel_error", error, settled)
        self._add("yaw_vel_error", (self._command[:, 2] - state.base_ang_vel_b[:, 2]).double().abs(), settled)

    def _slip(self, state: Any) -> None:
        speed = state.foot_vel_w[..., :2].double().norm(dim=2)
        contact = state.foot_contact.double()
        self._add("foot_slip", (speed * contact).sum(1), self.alive, weight=contact.sum(1))

    def _add(self, name: str, value: Tensor, where: Tensor, weight: Tensor | None = None) -> None:
        if name not in self._sums:
            self._sums[name] = (torch.zeros_like(self._return), torch.zeros_like(self._return))
        total, count = self._sums[name]
        total += torch.where(where, value, 0.0)
        count += where.double() if weight is None else torch.where(where, weight, 0.0)


def summarize(episodes: Mapping[str, Tensor]) -> dict[str, dict[str, float] | None]:
    """Return metric -> {"mean", "std"} over episodes, None if no episode has it.

    Args:
        episodes: Metric -> (N,), NaN for an episode that does not have it. The sample standard deviation of a single
            episode is 0.
    """
    summary: dict[str, dict[str, float] | None] = {}
    for name, values in episodes.items():
        known = values[~values.isnan()]
        if len(known) == 0:
            summary[name] = None
            continue
        std = known.std().item() if len(known) > 1 else 0.0
        summary[name] = {"mean": known.mean().item(), "std": std}
    return summary


def _width(state: Any, name: str) -> int:
    value = getattr(state, name, None)
    return 0 if value is None or value.ndim < 2 else value.shape[1]
