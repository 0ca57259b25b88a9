"""Terms that are torch functions over the batch, outside the fused kernels.

They run between the after-physics and the observe kernel, on the state the step ended in, and complete
the work of the first: the reward's sum, its floor, and which worlds end.
"""

from __future__ import annotations

from typing import Any

import torch

from robot_rl_envs.codegen.layout import TaskLayout
from robot_rl_envs.engine import FAULT_OBSERVATION, FAULT_REWARD
from robot_rl_envs.task import Task, TorchTerm


class TorchTerms:
    """A task's torch terms; false if it has none. ``log`` is an (n,) float64 view of the log array."""

    def __init__(self, task: Task, layout: TaskLayout, state: Any, log: torch.Tensor):
        self.task, self.layout, self.state, self.log = task, layout, state, log
        self.rewards = [(name, term) for name, term in task.rewards.items() if isinstance(term, TorchTerm)]
        self.terminations = [(name, term) for name, term in task.terminations.items() if isinstance(term, TorchTerm)]
        self.observations = [
            (group, slot)
            for group, slots in layout.groups.items()
            for slot in slots
            if isinstance(slot.term, TorchTerm)
        ]

    def __bool__(self) -> bool:
        return bool(self.rewards or self.terminations or self.observations)

    def _value(self, path: str, term: TorchTerm) -> torch.Tensor:
        """Return the value of a term's function, (N,) or (N, size); refuse anything else."""
        try:
            value, worlds = term.fn(self.state), self.state.reward.shape[0]
        except Exception as error:  # Any error of a user's function.
            raise ValueError(f"{path}: its function raised {type(error).__name__}: {error}") from error
        shape = (worlds, term.size) if term.kind == "observation" else (worlds,)
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{path}: its function returned {type(value).__name__}, must be a tensor {shape}")
        if tuple(value.shape) != shape and not (term.size == 1 and tuple(value.shape) == (worlds,)):
            raise ValueError(f"{path}: its function returned a tensor {tuple(value.shape)}, must be {shape}")
        return value

    def finish(self, final: dict[str, torch.Tensor]) -> None:
        """Add rewards and terminations, and write observations into the rows of ``final`` that are done."""
        state = self.state
        if self.rewards:
            self._add_rewards()
        for name, term in self.terminations:
            hit = self._value(f"terminations.{name}", term).to(torch.int32)
            target = state.time_out if term.time_out else state.terminated
            torch.maximum(target, hit, out=target)
            self.log[self.layout.log[f"termination/{name}"]] += hit.sum()
            state.termination_bits.bitwise_or_((hit != 0).to(torch.int32) << list(self.task.terminations).index(name))
        if self.observations:
            self._check_observations()
        state.time_out.masked_fill_(state.terminated > 0, 0)
        self.observe(final, (state.terminated + state.time_out > 0) & (state.quarantined == 0))

    def observe(self, groups: dict[str, torch.Tensor], where: torch.Tensor | None = None) -> None:
        """Write the observations of the current state into ``groups``, in the worlds ``where`` (N,) (None: all)."""
        for group, slot in self.observations:
            view = groups[group][:, slot.offset : slot.offset + slot.size]
            # What is not finite even after the reset is caught in the next step; no learner is given it meanwhile.
            value = (
                self._value(f"observations.{group}.{slot.name}", slot.term)
                .reshape(view.shape)
                .nan_to_num(0.0, 0.0, 0.0)
            )
            view.copy_(value if where is None else torch.where(where[:, None], value, view))

    def _check_observations(self) -> None:
        """Quarantine the worlds in which an observation of the present state is not finite."""
        state = self.state
        bad, fine = torch.zeros_like(state.terminated, dtype=torch.bool), state.quarantined == 0
        for group, slot in self.observations:
            value = self._value(f"observations.{group}.{slot.name}", slot.term)
            invalid = ~value.reshape(bad.shape[0], -1).isfinite().all(dim=1)
            index = self.layout.observations.index(f"{group}.{slot.name}")
            state.fault_term.masked_fill_(invalid & fine & ~bad, index)
            bad |= invalid
        bad &= fine
        state.quarantined.bitwise_or_(bad.to(torch.int32) * FAULT_OBSERVATION)
        state.terminated.masked_fill_(bad, 1)
        state.episode_return.sub_(state.reward * bad)
        state.reward.masked_fill_(bad, 0.0)
        if self.layout.reward_groups:
            state.reward_parts.masked_fill_(bad[:, None], 0.0)

    def _add_rewards(self) -> None:
        """Complete the sum that the fused kernel began; a term that is not finite quarantines its world."""
        state = self.state
        bad, groups = state.quarantined > 0, self.layout.reward_groups
        for name, term in self.rewards:
            value = term.weight * self._value(f"rewards.{name}", term) * self.task.sim.step_dt
            invalid, index = ~value.isfinite(), self.layout.rewards.index(name)
            state.fault_term.masked_fill_(invalid & ~bad, index)
            bad = bad | invalid
            value = value.nan_to_num(0.0, 0.0, 0.0)
            state.reward.add_(value)
            state.reward_sums[:, index] += value
            if groups:
                state.reward_parts[:, groups.index(term.group)] += value
        if self.task.only_positive_rewards:
            state.reward.clamp_(min=0.0)
        state.reward.masked_fill_(bad, 0.0)
        if groups:
            state.reward_parts.masked_fill_(bad[:, None], 0.0)
        state.episode_return.add_(state.reward)
        state.quarantined.bitwise_or_((bad & (state.quarantined == 0)).to(torch.int32) * FAULT_REWARD)
        state.terminated.masked_fill_(bad, 1)
