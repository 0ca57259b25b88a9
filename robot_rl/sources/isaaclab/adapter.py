"""Adapt an environment of Isaac Lab to the environment that the learner takes.

Isaac Lab resets worlds within the step in which their episode ends, so that the returned observation is of the next
episode already; `compute_final_obs` makes it keep the last observation before. If terms have a history, that
observation would lack its newest frame: here it is computed with it, and the history restored. A truncated episode is
bootstrapped unless the environment declares a finite horizon.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.sources.external import channels_last, refuse_twice


@dataclass(kw_only=True, slots=True)
class Advance:
    """A step as Isaac Lab returns it.

    Attributes:
        obs: Observation groups after it, those of the next episode if one ended.
        final: Those before the reset; None if no world was reset.
        reward: (N,).
        terminated, truncated: (N,) bool.
        was_reset: Worlds that Isaac Lab has reset, bool.
        log: Its values about the episodes that ended.
    """

    obs: Mapping[str, Any]
    final: Mapping[str, Any] | None
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    was_reset: Tensor
    log: dict[str, Any]


class LabEnv(VecEnv):
    """Worlds of an environment of Isaac Lab, for the learner, in rows: a world each, or more in a subclass.

    A subclass has its rows and their actions (`num_envs`, `num_actions`), and implements `_advance`.

    Args:
        env: The environment, unwrapped.
        name: The task, for errors.
        action_clip: Bound of the actions; None without one.
        on_close: Called once at the end.

    Attributes:
        num_actions: Components of an action.
        max_episode_length: Largest number of steps of an episode.
        step_dt: Length of a step [s].
        cfg: The environment's configuration.
    """

    cfg: Any

    def __init__(
        self, env: Any, *, name: str, action_clip: float | None = None, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self.env, self.name, self.cfg = env, name, env.cfg
        self.device = str(env.device)
        self.action_clip, self._on_close = action_clip, on_close
        self.max_episode_length = int(env.max_episode_length)
        self.step_dt = float(env.step_dt)
        self._endless = not bool(getattr(env.cfg, "is_finite_horizon", False))

    def reset(self, seed: int | None = None) -> TensorDict:
        """Reset all worlds and return the first observations; without a seed their random streams continue."""
        self._obs = self._read(self._begin(seed))
        return self._obs

    def get_observations(self) -> TensorDict:
        """Return the current observation groups, (N, ...) each."""
        return self._obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply actions (N, num_actions) for one step.

        A world in a state that is not finite any more ends its episode without a reward and is reset.

        Returns:
            observations: Groups (N, ...) to act on next.
            rewards: (N,).
            dones: (N,) bool, episodes that ended.
            extras: "time_outs" (N,) bool, the episode was truncated and did not terminate; "final_obs", groups with the
                last observation in the rows of episodes that ended; "log", Isaac Lab's values about the episodes that
                ended in this step.
        """
        advance = self._advance(actions)
        self._obs, reward = self._read(advance.obs), advance.reward
        final = self._obs if advance.final is None else self._read(advance.final)
        broken, was_reset = ~torch.isfinite(reward), self._rows(advance.was_reset)
        for name in self._groups:
            broken |= ~torch.isfinite(self._obs[name]).flatten(1).all(dim=1)
            broken |= ~torch.isfinite(final[name]).flatten(1).all(dim=1) & was_reset
        worlds = self._worlds(broken)
        self._over = advance.was_reset | worlds
        broken = self._rows(worlds)
        done = advance.terminated | advance.truncated | broken
        time_outs = advance.truncated & ~advance.terminated & ~broken
        if bool(worlds.any()):
            advance.log["worlds/broken"] = worlds.sum()
            reward = torch.where(broken, 0.0, reward)
            self._repair(worlds & ~advance.was_reset)
        extras = {
            "time_outs": time_outs if self._endless else torch.zeros_like(time_outs),
            "final_obs": self._obs if advance.final is None else self._read(advance.final, finite=True),
            "log": advance.log,
        }
        return self._obs, reward.clone(), done, extras

    def close(self) -> None:
        """Close the environment and everything that was started for it."""
        self._on_close()
        self._on_close = lambda: None

    def _begin(self, seed: int | None) -> Mapping[str, Any]:
        """Reset all worlds and return the observation groups as Isaac Lab has them."""
        raise NotImplementedError

    def _advance(self, actions: Tensor) -> Advance:
        """Take a step in Isaac Lab."""
        raise NotImplementedError

    def _worlds(self, rows: Tensor) -> Tensor:
        """Return the worlds in which a flag (N,) is set."""
        return rows

    def _rows(self, worlds: Tensor) -> Tensor:
        """Return a world's flag at each of its rows (N,)."""
        return worlds

    def _read(self, obs: Mapping[str, Any], *, finite: bool = False) -> TensorDict:
        groups: dict[str, Tensor] = {}
        keys: dict[str, tuple[str, ...]] = {}
        for name, group in obs.items():
            parts = group if isinstance(group, Mapping) else {"": group}
            for part, value in parts.items():
                tensor, full = _channels_first(value), f"{name}.{part}" if part else name
                if full in keys:
                    refuse_twice(full, keys[full], (name, part) if part else (name,))
                keys[full] = (name, part) if part else (name,)
                groups[full] = _finite(tensor) if finite else tensor
        self._groups = tuple(groups)
        return TensorDict(groups, batch_size=[self.num_envs], device=self.device)  # type: ignore[arg-type]

    def _clipped(self, actions: Tensor) -> Tensor:
        return actions if self.action_clip is None else actions.clamp(-self.action_clip, self.action_clip)

    def _repair(self, worlds: Tensor) -> None:
        """Reset broken worlds that were not reset, and replace observations that are not finite."""
        which = worlds.nonzero().squeeze(-1).int()
        if len(which):
            self.env._reset_idx(which)
        for name in self._groups:
            self._obs[name] = _finite(self._obs[name])


class IsaacEnv(LabEnv):
    """Worlds of an environment of one agent, direct or manager-based; see `LabEnv` for the arguments.

    Attributes:
        action_choices: Number of values of each component of an action; None if they are real numbers.
        policy_groups: The observation groups that an exported policy sees.

    Raises:
        UserError: Its actions are neither numbers nor choices.
    """

    def __init__(self, env: Any, *, name: str, **options: Any) -> None:
        super().__init__(env, name=name, **options)
        self.num_envs = int(env.num_envs)
        self.num_actions, self.action_choices = read_actions(env.single_action_space, name)
        self.policy_groups: tuple[str, ...] = ("policy",)
        self._single = self.action_choices is not None and not hasattr(env.single_action_space, "nvec")
        manager = getattr(env, "observation_manager", None)
        if manager is not None and next(iter(_buffers(manager)), None) is not None:
            manager.compute = _CompleteHistory(manager)
        self.reset()

    @property
    def episode_length_buf(self) -> Tensor:
        """Return (N,) steps since each world's reset; writing to it takes effect."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.env.episode_length_buf[:] = value

    def describe_policy(self) -> dict[str, Any]:
        """Return the inputs and outputs of a policy, for the exported contract: see `describe.py`."""
        from robot_rl.sources.isaaclab.describe import describe_policy

        return describe_policy(self, self.policy_groups)

    def robot_state(self) -> dict[str, Tensor]:
        """Return the robot's signals by the contract's names, (N, size) each."""
        from robot_rl.sources.isaaclab.describe import robot_state

        return robot_state(self)

    def _begin(self, seed: int | None) -> Mapping[str, Any]:
        obs = self.env.reset(seed=seed)[0]
        self.env.extras.pop("final_obs", None)
        return obs

    def _advance(self, actions: Tensor) -> Advance:
        obs, reward, terminated, truncated, extras = self.env.step(self._to_env(actions))
        # Isaac Lab keeps its extras: reported values would be reported again after the next step.
        final, log = extras.pop("final_obs", None), dict(extras.pop("log", None) or {})
        return Advance(
            obs=obs,
            final=final,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            was_reset=terminated | truncated,
            log=log,
        )

    def _to_env(self, actions: Tensor) -> Tensor:
        actions = actions.to(self.device)
        if self.action_choices is not None:
            return actions[:, 0].long() if self._single else actions.long()
        return self._clipped(actions)


class _CompleteHistory:
    """An observation manager's `compute`, with the newest frame in the history of the observations before a reset."""

    def __init__(self, manager: Any) -> None:
        self._manager, self._compute = manager, manager.compute

    def __call__(self, update_history: bool = False) -> Any:
        """Compute the observations; the history changes only with `update_history`."""
        if update_history:
            return self._compute(update_history=True)
        buffers = list(_buffers(self._manager))
        states = [copy.deepcopy(buffer.__dict__) for buffer in buffers]
        try:
            return self._compute(update_history=True)
        finally:
            for buffer, before in zip(buffers, states, strict=True):
                buffer.__dict__.update(before)


def _buffers(manager: Any) -> Any:
    for kind in ("history", "delay"):
        for group in getattr(manager, f"_group_obs_term_{kind}_buffer", {}).values():
            yield from group.values()


def read_actions(space: Any, name: str) -> tuple[int, tuple[int, ...] | None]:
    """Return the number of components of an action, and how many values each has; None if they are numbers.

    Raises UserError, which names the task, for actions that are neither.
    """
    kind = type(space).__name__
    if kind == "Box":
        return int(torch.Size(space.shape).numel()), None
    if kind == "Discrete":
        return 1, (int(space.n),)
    if kind == "MultiDiscrete" and len(space.shape) == 1:
        return len(space.nvec), tuple(int(n) for n in space.nvec)
    raise UserError("task", name, f"its actions are a {kind}", "numbers (Box) or choices can be learned")


def _finite(value: Tensor) -> Tensor:
    return torch.nan_to_num(value, posinf=0.0, neginf=0.0)


def _channels_first(value: Tensor) -> Tensor:
    """Return images (N, H, W, C) as (N, C, H, W)."""
    value = value.float()
    return value.permute(0, 3, 1, 2) if value.ndim == 4 and channels_last(value.shape) else value
