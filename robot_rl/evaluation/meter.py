"""The metrics of an evaluation, per episode, in SI units: the task's own, and those that apply to any robot."""

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.metrics.description import Descriptions

GENERIC: dict[str, tuple[str, str, str]] = {
    "failure_rate": ("1", "share of episodes that ended by a termination that is not a time-out", "smaller"),
    "torque_rms": ("N m", "root of the mean square over time and driven joints (N for a slider)", ""),
    "power": ("W", "time mean of the sum over joints of max(torque * velocity, 0)", ""),
    "foot_slip": ("m/s", "mean horizontal speed of the feet while they touch the ground", ""),
    "action_rate": ("rad/s", "time mean of the root mean square over joints of the target's rate of change", ""),
    "return": ("1", "sum of the rewards of an episode", "larger"),
    "quarantine_rate": ("1", "share of episodes that were quarantined; they count in nothing else", "smaller"),
}
"""Metrics that apply to any robot: unit, meaning and which values are better."""


def describe_metrics(env: Any) -> Descriptions:
    """Return the metrics of an evaluation in an environment, in the order in which they are shown.

    The task's own metrics are the first ones; one with the name of a generic metric takes its place. Those of a team
    of several roles begin with the role's name and a dot.
    """
    parts = env.parts() if hasattr(env, "parts") else {}
    if len(parts) > 1:
        return {
            f"{role}.{name}": row for role, (crew, _) in parts.items() for name, row in describe_metrics(crew).items()
        }
    known = env.describe_metrics()
    endings = {f"ended/{name}": ("1", f"share of episodes that ended {text}", "") for name, text in _endings(env)}
    generic = {"failure_rate": GENERIC["failure_rate"]} | endings | GENERIC
    keys = ("unit", "meaning", "better")
    return known | {name: dict(zip(keys, row, strict=True)) for name, row in generic.items() if name not in known}


class EpisodeMeter:
    """Measures the first episode of every world of an environment.

    The task's own metrics are `env.state.metric_values`, which a step writes after its physics and before a reset: the
    last step of an episode counts. The rest of `env.state` is that after the reset, so that the generic metrics leave
    the last step out; the return does not.

    Attributes:
        alive: (N,) bool, worlds in their first episode.
        failed: (N,) bool, worlds in which it ended by a termination that is not a time-out.
        quarantined: (N,) bool, worlds in which it ended in quarantine; it counts in nothing else.
    """

    def __init__(self, env: Any) -> None:
        """Choose the metrics that apply to an environment, which has been reset."""
        self._env, n, description = env, env.num_envs, env.describe_policy()
        self._dt = env.step_dt
        self._names = list(describe_metrics(env))
        self.alive = torch.ones(n, dtype=torch.bool, device=env.device)
        self._here = self.alive  # Those that take part in the running step.
        self.failed, self.quarantined = torch.zeros_like(self.alive), torch.zeros_like(self.alive)
        self._endings = [f"ended/{name}" for name, _ in _endings(env)]
        self._ended = torch.zeros(n, dtype=torch.int32, device=env.device)
        self._return = torch.zeros(n, dtype=torch.float64, device=env.device)
        rows = env.describe_metrics().items()
        self._own = [(name, row["after_s"], _Taken(row["over"], self._return)) for name, row in rows]
        self._generic: dict[str, _Taken] = {}
        self._steps = 0
        # The controls of a model's own actuators need not be torques.
        self._has_torques = description.get("action_kind") != "direct"
        self._driven = [i for i, joint in enumerate(description["joints"]) if joint["effort_limit"] > 0]
        scale = [action["scale"] for action in description["actions"]]
        self._scale = torch.tensor(scale, dtype=torch.float64, device=env.device)
        self._bound = description.get("action_clip") or float("inf")
        self._target: Tensor | None = None
        self._has_feet = _width(env.state, "foot_contact") > 0

    def after_step(
        self,
        action: Tensor,
        reward: Tensor,
        done: Tensor,
        time_out: Tensor,
        valid: Tensor,
        *,
        acted: Tensor | None = None,
    ) -> None:
        """Add a step: action (N, num_actions), and reward, done, time_out, valid (N,), as `env.step` returns them.

        `acted` (N,) is False for robots of a team that took no part: their step counts in nothing.
        """
        self._steps += 1
        absent = torch.zeros_like(self.alive) if acted is None else self.alive & ~acted
        state, counts = self._env.state, self.alive & valid
        for k, (_, after_s, taken) in enumerate(self._own):
            if self._steps * self._dt > after_s + 1e-9:
                taken.add(state.metric_values[:, k].double(), counts)
        self._return += torch.where(counts, reward.double(), 0.0)
        self.failed |= counts & done & ~time_out
        self._ended |= torch.where(counts & done, state.termination_bits, 0)
        self.quarantined |= self.alive & ~valid & ~absent
        self.alive &= (~done & valid) | absent
        before, self._here = self._here, self.alive & ~absent
        if self._has_torques:
            torque, speed = state.joint_torque[:, self._driven].double(), state.joint_vel[:, self._driven].double()
            self._add("torque_rms", torque.square().mean(1))
            self._add("power", (torque * speed).clamp(min=0).sum(1))
        if self._has_feet:
            speed, contact = state.foot_vel_w[..., :2].double().norm(dim=2), state.foot_contact.double()
            self._add("foot_slip", (speed * contact).sum(1), weight=contact.sum(1))
        target = action.double().clamp(-self._bound, self._bound) * self._scale
        if self._target is not None:
            self._add("action_rate", ((target - self._target) / self._dt).square().mean(1).sqrt(), also=before)
        self._target = target

    def episodes(self) -> dict[str, Tensor]:
        """Return metric -> (N,) float64 on the CPU, in the order of `describe_metrics`.

        NaN stands for an episode that does not have it: too short for it, quarantined, or it was not finite.
        """
        values = {name: taken.value() for name, taken in self._generic.items()}
        if "torque_rms" in values:
            values["torque_rms"] = values["torque_rms"].sqrt()
        values |= {name: ((self._ended >> k) & 1).double() for k, name in enumerate(self._endings)}
        values |= {"failure_rate": self.failed.double(), "return": self._return}
        values |= {name: taken.value() for name, _, taken in self._own}
        values = {name: value.masked_fill(self.quarantined, math.nan) for name, value in values.items()}
        values = {"quarantine_rate": self.quarantined.double()} | values
        return {name: values[name].cpu() for name in self._names if name in values}

    def _add(self, name: str, value: Tensor, weight: Tensor | None = None, also: Tensor | None = None) -> None:
        if name not in self._generic:
            self._generic[name] = _Taken("mean", self._return)
        self._generic[name].add(value, self._here if also is None else self._here & also, weight)


class _Taken:
    """What is taken of a quantity over the steps of each episode, as `Metric.over` names it.

    Args:
        over: "mean", "end", "max" or "min".
        like: (N,) float64.
    """

    START: ClassVar[dict[str, float]] = {"mean": 0.0, "end": math.nan, "max": -math.inf, "min": math.inf}

    def __init__(self, over: str, like: Tensor) -> None:
        self._over, self._count = over, torch.zeros_like(like)
        self._found = torch.full_like(like, self.START[over])

    def add(self, value: Tensor, where: Tensor, weight: Tensor | None = None) -> None:
        """Add a step's values (N,) in the worlds `where` (N,); for a mean, sums of `weight` (N,) values each."""
        old, new = self._found, value
        if self._over == "mean":
            new = old + value
            self._count += where.double() if weight is None else torch.where(where, weight, 0.0)
        elif self._over != "end":
            new = torch.maximum(old, value) if self._over == "max" else torch.minimum(old, value)
        self._found = torch.where(where, new, old)

    def value(self) -> Tensor:
        """Return (N,), NaN if no step was added or one was not finite."""
        value = self._found / self._count if self._over == "mean" else self._found
        return value.where(value.isfinite(), math.nan)


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


def _endings(env: Any) -> list[tuple[str, str]]:
    """Return the names of the task's terminations, and their meanings as the end of a sentence, with their numbers."""
    found = []
    for name, term in env.cfg.terminations.items():
        text = getattr(getattr(term, "info", None), "summary", "").removesuffix(".")
        for key, value in getattr(term, "params", {}).items():
            text = re.sub(rf"\b{key} \[(.*?)\]", rf"{value} \1", text)
        found.append((name, f"because {text[0].lower()}{text[1:]}" if text else "by it"))
    return found
