"""Adapt any vector environment of Gymnasium to the environment that the learner takes.

Handled here: with SAME_STEP the observation at the end of an episode is the next episode's first, and the last one is
in the info. With NEXT_STEP it is the last one, the step after it resets the world with any action, and nothing
may be learned from that step. With DISABLED the world has to be reset explicitly. Only an episode that was truncated is
bootstrapped; one that was also terminated is not. A world with a number that is not finite is quarantined until its
next episode, which begins at once if the environment resets single worlds (docs/quarantine.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Dict
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.evaluation.policies import Policy
from robot_rl.sources.gymnasium.spaces import ActionMap, ObservationReader
from robot_rl.sources.host import HostEnv, Statistics
from robot_rl.sources.quarantine import Quarantine

MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}


class GymEnv(HostEnv):
    """Worlds of a Gymnasium vector environment, for the learner.

    Args:
        env: The environment; it is closed with this one.
        seed: Of all its worlds; the same seed gives the same episodes. None draws one.
        device: Device of the learner.
        actions: Mapping of actions to a Box: see `ActionMap`.
        autoreset: One of MODES; by default that of the environment's metadata.
        max_episode_length: By default that of its registration.

    Attributes:
        num_actions: Components of an action.
        action_choices: Number of values of each component of an action; None if they are real numbers.
        max_episode_length: Largest number of steps of an episode; 0 if it is not known.
        step_dt: Length of a step [s], from the frames a second that the environment declares; 1 if it does not.
        groups: Name -> shape of an observation group, without the worlds.
        default_groups: The groups that "actor" and "critic" see by default.
        cfg: The environment's registration, if it has one.

    Raises:
        UserError: A space that cannot be learned from or acted in, or an unknown way to reset.
    """

    cfg: Any

    def __init__(
        self,
        env: VectorEnv,
        *,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        actions: str = "clip",
        autoreset: str | None = None,
        max_episode_length: int | None = None,
    ) -> None:
        self.env, self.device, self.num_envs = env, str(device), int(env.num_envs)
        self.cfg = getattr(env, "spec", None)
        self.autoreset = _autoreset(env, autoreset)
        self._reader = ObservationReader(env.single_observation_space)
        self.groups, self.default_groups = self._reader.groups, self._reader.default
        is_dict = isinstance(env.single_observation_space, Dict)
        self._words = (
            {name: f"observation '{name}'" for name in self.groups} if is_dict else {"actor": "the observation"}
        )
        self._actions = ActionMap(env.single_action_space, actions)
        self.num_actions, self.action_choices = self._actions.num_actions, self._actions.choices
        limit = getattr(self.cfg, "max_episode_steps", None) if max_episode_length is None else max_episode_length
        self.max_episode_length = max(0, int(limit or 0))  # -1: none, as for `gymnasium.make`.
        fps = env.metadata.get("render_fps") or 0
        self.step_dt = 1.0 / fps if fps > 0 else 1.0
        self._statistics = Statistics(self.num_envs, self.step_dt)
        self._quarantine = Quarantine(str(getattr(self.cfg, "id", None) or env), self.num_envs)
        can_reset_one = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._can_reset_one = can_reset_one or self.autoreset is AutoresetMode.DISABLED
        self.reset(seed)

    @property
    def action_bounds(self) -> tuple[Tensor, Tensor] | None:
        """Return (A,) least and greatest actions that reach the Box's limits; None if actions are choices."""
        if self.action_choices is not None:
            return None
        low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in self._actions.bounds())
        return low, high

    def reset(self, seed: int | None = None) -> TensorDict:
        """Reset all worlds and return the first observations; without a seed their random streams continue."""
        obs, _ = self.env.reset(seed=seed)
        self._over = np.zeros(self.num_envs, dtype=bool)
        self._statistics.clear()
        self._groups = self._reader.read(obs, self.device)
        self._quarantine.restart(self._unsound(self._groups))
        self._obs = self._seen()
        return self._obs

    def get_observations(self) -> TensorDict:
        """Return the current observation groups, (N, ...) each."""
        return self._obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply actions (N, num_actions) for one step.

        Returns:
            observations: Groups (N, ...) to act on next.
            rewards: (N,).
            dones: (N,) bool, the next observation is of another episode; also if this step was a reset (NEXT_STEP).
            extras: "time_outs" (N,) bool, the episode was truncated and did not terminate; "final_obs", groups with the
                last observation in the rows of episodes that ended; "valid" (N,) bool, False if this step was a
                reset (NEXT_STEP) or the world is in quarantine, absent if neither can be; "log", empty.

        Raises:
            UserError: An episode was truncated and the environment does not provide its last observation.
        """
        is_lost = self._quarantine.check("action", {"the action": actions})
        if is_lost.any():
            actions = torch.where(self._flags(is_lost)[:, None], 0.0, actions)
        obs, reward, terminated, truncated, info = self.env.step(self._actions.to_env(actions))
        skipped = self._over if self.autoreset is AutoresetMode.NEXT_STEP else np.zeros_like(self._over)
        terminated = np.array(terminated, dtype=bool) & ~skipped
        time_out = np.array(truncated, dtype=bool) & ~skipped & ~terminated
        with np.errstate(over="ignore"):  # A reward beyond float32 is found below.
            reward = np.where(skipped, 0.0, np.asarray(reward)).astype(np.float32)
        self._over = terminated | time_out
        self._groups = final = self._reader.read(obs, self.device)
        if self._over.any() and self.autoreset is AutoresetMode.SAME_STEP:
            final = self._last_groups(info, time_out)
        broken = self._find_broken(is_lost & ~skipped, reward, final, skipped)
        reward[broken] = 0.0
        self._statistics.drop(broken)
        self._statistics.add(reward, self._over & ~broken, terminated & ~broken, skipped | broken)
        final = self._as_observations(_blank(self._flags(broken), final))
        self._begin(skipped)
        extras = {"time_outs": self._flags(time_out & ~broken), "final_obs": final, "log": {}}
        if self.autoreset is AutoresetMode.NEXT_STEP or broken.any():
            extras["valid"] = self._flags(~skipped & ~broken)
        done = self._flags(self._over | skipped | broken)
        return self._obs, torch.from_numpy(reward).to(self.device), done, extras

    def _begin(self, skipped: np.ndarray) -> None:
        """Reset worlds if this is due, and set the observations (`_groups`, `_obs`) to act on next."""
        broken = self._quarantine.broken > 0
        begun = skipped if self.autoreset is AutoresetMode.NEXT_STEP else self._over
        due = self._over & (self.autoreset is AutoresetMode.DISABLED)
        due |= broken & ~self._over & ~skipped & self._can_reset_one
        if due.any():
            self._restart(due)
        if broken.any() or self._over.any() or skipped.any():
            self._quarantine.begin(begun | due, self._unsound(self._groups))
        self._obs = self._seen()

    def _unsound(self, obs: Mapping[str, Tensor]) -> np.ndarray:
        return self._quarantine.check("observation", {label: obs[name] for name, label in self._words.items()})

    def _seen(self) -> TensorDict:
        """Return the current observations, zeros in quarantined worlds."""
        self._groups = _blank(self._flags(self._quarantine.broken > 0), self._groups)
        return self._as_observations(self._groups)

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()

    def _as_observations(self, groups: Mapping[str, Tensor]) -> TensorDict:
        return TensorDict(dict(groups), batch_size=[self.num_envs], device=self.device)

    def _flags(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    def _last_groups(self, info: Mapping[str, Any], time_out: np.ndarray) -> dict[str, Tensor]:
        """Return the current observations, with the last ones of the episodes that ended in this step in their rows.

        Gymnasium defines a list of one observation a world, None if no episode ended; a batch is also accepted.
        """
        last = info.get("final_obs", [None] * self.num_envs)
        if not (isinstance(last, list) or (isinstance(last, np.ndarray) and last.dtype == object)):
            batch, over = self._reader.read(last, self.device), self._flags(self._over)
            return {name: _choose(over, batch[name], group) for name, group in self._groups.items()}
        ended = [int(k) for k in np.flatnonzero(self._over) if last[k] is not None]
        missing = set(np.flatnonzero(time_out).tolist()) - set(ended)
        if missing:
            lack = f"the episode of world {min(missing)} was truncated and info['final_obs'] does not hold its last"
            raise UserError(f"{self.env}: {lack} observation; a time-out cannot be learned from without it")
        if not ended:
            return self._groups
        final = {name: group.clone() for name, group in self._groups.items()}
        index = torch.tensor(ended, device=self.device)
        for name, group in self._reader.read_rows([last[k] for k in ended], self.device).items():
            final[name][index] = group
        return final

    def _restart(self, worlds: np.ndarray) -> None:
        """Reset the worlds (N,) bool; the others' observations stay."""
        obs, _ = self.env.reset(options={"reset_mask": worlds.copy()})
        fresh, mask = self._reader.read(obs, self.device), self._flags(worlds)
        self._groups = {name: _choose(mask, fresh[name], group) for name, group in self._groups.items()}


def _autoreset(env: VectorEnv, wanted: str | None) -> AutoresetMode:
    """Return how an environment resets worlds, from its metadata or its user."""
    if wanted is not None:
        if wanted not in MODES:
            raise UserError("autoreset", wanted, f"must be one of {', '.join(MODES)}")
        return MODES[wanted]
    mode = env.metadata.get("autoreset_mode")
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        right = f"give autoreset= one of {', '.join(MODES)}"
        raise UserError(f"{env}: metadata['autoreset_mode']={mode!r}: no way to reset worlds; {right}") from None


def _choose(mask: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the rows of `first` at which the mask (N,) is True, the others of `second`."""
    return torch.where(mask.view(-1, *(1,) * (first.ndim - 1)), first, second)


def _blank(mask: Tensor, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return groups with zeros in the rows at which the mask (N,) is True."""
    if not bool(mask.any()):
        return dict(groups)
    return {name: _choose(mask, torch.zeros_like(group), group) for name, group in groups.items()}


def frames(env: GymEnv, policy: Policy, seconds: float, fps: int) -> Iterator[np.ndarray]:
    """Step one world, just reset, and yield its frames (H, W, 3) uint8, of even sides.

    Args:
        env: The world, made with render_mode="rgb_array".
        policy: The policy.
        seconds: Length of the film [s].
        fps: Frames a second, by the length of a step that the environment declares.
    """
    obs, steps = env.get_observations(), 0
    for k in range(round(seconds * fps)):
        while steps * env.step_dt < k / fps - 1e-9:
            obs, _, done, _ = env.step(policy(obs))
            policy.reset(done)
            steps += 1
        frame = _draw(env)
        yield np.ascontiguousarray(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2], dtype=np.uint8)


def _draw(env: GymEnv) -> np.ndarray:
    """Return the image (H, W, 3) of the first world."""
    try:
        frames = env.env.render()
    except Exception as error:  # Each renders by its own library, which may be missing or fail in its own way.
        line = next(iter(str(error).splitlines()), repr(error))
        raise UserError(f"video: {env.env} cannot render itself here: {line}") from error
    frame = None if not frames else np.asarray(frames[0])
    if frame is None or frame.ndim != 3 or frame.shape[2] != 3:
        raise UserError(f"video: {env.env} renders no images in render_mode rgb_array")
    return frame
