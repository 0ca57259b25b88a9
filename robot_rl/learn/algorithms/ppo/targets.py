"""From a rollout to the policy's advantages and the critic's targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.gae import advantages, policy_advantages, timeout_bonus
from robot_rl.learn.auxiliaries.auxiliary import Auxiliaries
from robot_rl.learn.networks.actor_critic import Critic
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.learn.rollout import Rollout


class TargetEstimator:
    """Estimates advantages and returns by a critic, from the rewards of the task and of auxiliary objectives.

    Attributes:
        reward_weights: (K,) weight of each critic's advantages; all 1 by default.
    """

    def __init__(
        self,
        critic: Critic,
        cfg: PPOCfg,
        *,
        auxiliaries: Auxiliaries,
        reward_weights: Sequence[float],
        ranks: ProcessGroup,
    ) -> None:
        self._critic, self._cfg, self._auxiliaries, self._ranks = critic, cfg, auxiliaries, ranks
        device = next(critic.parameters()).device
        self.reward_weights = torch.tensor(list(reward_weights) or [1.0] * critic.num_values, device=device)

    def values(self, rollout: Rollout, critic_in: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the values of a rollout's encoded states (T + 1, N, F), and record the critic's memory after it.

        They are (T + 1, N), or (T + 1, N, K) with several critics; with them comes a recurrent critic's state after
        each observation, (T + 1, N, S), None without a memory.
        """
        shape, states = critic_in.shape[:2], None
        if rollout.critic_state is None or rollout.critic_after is None:
            values = self._critic.values(critic_in.flatten(0, 1))
        else:
            starts = rollout.starts()
            values, states = self._critic.trace(critic_in.flatten(0, 1), (rollout.critic_state, starts))
            rollout.critic_after.copy_(states[-2].masked_fill(starts[-1, :, None], 0.0))
        return values.unflatten(0, shape), states

    def advantages(
        self, rollout: Rollout, values: Tensor, states: Tensor | None = None, trace: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's advantages, and those that the critic's targets are made of: the same but for V-trace.

        They are (T, N), or (T, N, K) with several critics. `values` and `states` are those of `values`, and `trace` is
        that of the `ProximalPolicy`.
        """
        found, lam = self._rewards(rollout, values, states), self._cfg.lam
        if trace is not None and values.ndim == 3:
            trace = trace[..., None]
        traced = advantages(*found, self._cfg.gamma, lam, trace=trace)
        return traced if trace is None else policy_advantages(*found, self._cfg.gamma, lam, traced=traced), traced

    def combine(self, advantage: Tensor, valid: Tensor | None) -> Tensor:
        """Return the policy's advantages (B,), of mean 0 and deviation 1 over the valid samples.

        With several critics each one's are normalized separately, weighted and added, so that no group of rewards
        dominates another by its scale (Mysore et al. 2022); the sum is normalized again.
        """
        if advantage.ndim == 1:
            return normalize(advantage, valid, self._ranks)
        parts = [normalize(part, valid, self._ranks) for part in advantage.unbind(-1)]
        return normalize(torch.stack(parts, dim=-1) @ self.reward_weights, valid, self._ranks)

    def _rewards(self, rollout: Rollout, values: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return rewards, values and episode ends as `gae.advantages` takes them."""
        reward, done, time_out = self._auxiliaries.add_reward(rollout), rollout.done, rollout.time_out
        valid = rollout.valid if rollout.has_invalid else None
        if values.ndim == 3:  # Each critic has its own value; episodes end for all of them.
            done, time_out = done[..., None], time_out[..., None]
            valid = None if valid is None else valid[..., None]
        reward = reward + timeout_bonus(self._timeout_values(rollout, values, states), time_out, self._cfg.gamma)
        if valid is not None:
            # A quarantined sample passes nothing on to the samples before it, not even a value of its state: the one
            # before it continues with its own.
            before = torch.cat((values[:1], values[:-2]))
            values = torch.cat((torch.where(valid, values[:-1], before), values[-1:]))
            reward, done = torch.where(valid, reward, values[:-1]), done | ~valid
        return reward, values, done

    def _timeout_values(self, rollout: Rollout, values: Tensor, states: Tensor | None) -> Tensor:
        """Return (T, N), or (T, N, K), the value at which an episode that was cut short would have continued."""
        if self._cfg.bootstrap == "state" or not rollout.has_final_obs:
            return values[:-1]
        final, past = rollout.final_obs.flatten(0, 1), None if states is None else states[:-1].flatten(0, 1)
        if final.device.type != "cpu":
            return self._critic.value(final, past).view_as(rollout.reward)
        cut = rollout.time_out.reshape(-1, self._critic.group_size)
        if self._critic.group_size > 1:  # whole worlds
            cut = cut.any(1, keepdim=True).expand_as(cut)
        rows = cut.reshape(-1).nonzero().squeeze(-1)  # No device waits here: this is the CPU.
        result = torch.zeros_like(values[:-1].flatten(0, 1))
        result[rows] = self._critic.value(final[rows], None if past is None else past[rows])
        return result.view_as(rollout.reward)


def normalize(advantage: Tensor, valid: Tensor | None, ranks: ProcessGroup) -> Tensor:
    """Return advantages (B,) with mean 0 and deviation 1 over the valid ones of all ranks; the others become 0."""
    if valid is None and ranks.size == 1:
        deviation = advantage.std(correction=min(1, advantage.numel() - 1))  # A single sample has none.
        return (advantage - advantage.mean()) / (deviation + 1e-8)
    valid = torch.ones_like(advantage, dtype=torch.bool) if valid is None else valid
    count, total = ranks.sum_(torch.stack((valid.sum(), torch.where(valid, advantage, 0.0).sum()))).unbind()
    count = count.clamp(min=2)
    centered = torch.where(valid, advantage - total / count, 0.0)
    return centered / ((ranks.sum_(centered.square().sum()) / (count - 1)).sqrt() + 1e-8)
