"""What a step returns, twice and in turn: the last step's results stay readable while the next one is under way."""

from __future__ import annotations

from typing import Any

import torch
import warp as wp
from tensordict import TensorDict

from robot_rl_envs import build
from robot_rl_envs.entity.state import State
from robot_rl_envs.fuse import Layout


class HandOut:
    """The buffers that :meth:`fill` copies a step's results into, nothing is allocated.

    Args:
        layout: the observation groups.
        out: the group arrays that the step writes.
        final: the arrays of the last observations of episodes.
        num_envs: number of worlds N.
        device: where they are.

    Attributes:
        returned: two dicts of group arrays.
        observations: two TensorDicts over them.
        final_obs: two TensorDicts over ``final``.
    """

    def __init__(
        self, layout: Layout, out: dict[str, wp.array], final: dict[str, wp.array], num_envs: int, device: str
    ):
        self._out = out
        self.returned = [build.group_arrays(layout, num_envs, device) for _ in range(2)]
        self.observations, self.final_obs = (
            [
                TensorDict(
                    {name: wp.to_torch(array) for name, array in groups.items()}, batch_size=[num_envs], device=device
                )
                for groups in two
            ]
            for two in (self.returned, [final, final])
        )
        kinds = (torch.float32, torch.bool, torch.bool, torch.bool)
        self._results = [[torch.zeros(num_envs, dtype=kind, device=device) for kind in kinds] for _ in range(2)]
        groups = layout.reward_groups
        self._parts = [torch.zeros(num_envs, len(groups), device=device) for _ in range(2)] if groups else []
        self._turn = 0

    @property
    def current(self) -> TensorDict:
        """The observation groups handed out last."""
        return self.observations[self._turn]

    def restart(self) -> None:
        """Begin with the same buffers as a new environment."""
        self._turn = 0

    def fill(self, state: State) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Copy the results of the step that ``state`` is after; see :meth:`robot_rl_envs.env.Env.step`."""
        self._turn = 1 - self._turn
        # By Warp: torch would wake its thread pool for arrays of this size, which costs more than the copy.
        for name, array in self.returned[self._turn].items():
            wp.copy(array, self._out[name])
        rewards, dones, time_outs, valid = self._results[self._turn]
        rewards.copy_(state.reward)
        time_outs.copy_(state.time_out)
        torch.logical_or(state.terminated, state.time_out, out=dones)
        torch.logical_not(state.quarantined, out=valid)
        extras = {"time_outs": time_outs, "final_obs": self.final_obs[self._turn], "valid": valid, "log": {}}
        if self._parts:
            extras["rewards"] = self._parts[self._turn].copy_(state.reward_parts)
        return self.current, rewards, dones, extras
