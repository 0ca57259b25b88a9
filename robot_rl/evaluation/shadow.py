"""Comparison of a torch policy with its bundle on the same states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.evaluation.policies import ExportedPolicy, robot_state

ACTION_BOUND = 1e-4
"""Difference of actions that float32 itself may make between two programs; the largest one ever seen is smaller."""
Bound = Callable[..., Tensor]
"""Takes observations (N, D), of a policy with a memory its state, and the differences of observations (N, D) or None;
returns the differences of actions (N, A) that they allow."""


class Shadow:
    """Bundles that compute their actions in the torch policies' states, to compare the two.

    Attributes:
        action_error: Largest difference of an action so far.
        action_bound: Largest difference that the policies' arithmetic allows in the states so far.
        are_within: Whether no difference was larger than its own state allows.
        observation_error: Largest difference of an observation, relative for values above 1; None if the environment's
            groups have another size than a bundle's observation.
    """

    def __init__(self, policy: ExportedPolicy, bounds: Mapping[str, Bound | None] | None = None) -> None:
        """Compare with bundles.

        Args:
            policy: The bundles.
            bounds: The allowed differences of each bundle by its name, or of all as ""; `ACTION_BOUND` by default.
        """
        self._policy, self._bounds = policy, bounds or {}
        self.action_bound, self.are_within, self.action_error = ACTION_BOUND, True, 0.0
        self.observation_error: float | None = 0.0

    def compare(self, obs: Any, action: Tensor) -> None:
        """Compare the bundles' actions and observations with the torch policies', before the step."""
        for robots, bundle, name in self._policy.parts:
            bound = self._bounds.get(name, self._bounds.get(""))
            self._compare(robots, bundle, bound, robots.observed(obs), action[robots.rows, : robots.num_actions])

    def _compare(self, robots: Any, bundle: Any, bound: Bound | None, obs: Any, action: Tensor) -> None:
        contract, state = bundle.contract, torch.from_numpy(bundle.network_state.copy())
        acted, seen = (torch.from_numpy(part) for part in bundle.act(robot_state(robots))[1:])
        # In a team the environment computes nothing for robots that take no part, and nobody runs their actions.
        counted = getattr(robots, "taking_part", torch.ones(len(acted), dtype=torch.bool)).cpu()
        clip = torch.tensor([float("inf") if spec.clip is None else spec.clip for spec in contract.actions])
        wanted = action.detach().cpu().float()
        wanted = torch.minimum(torch.maximum(wanted, -clip), clip)
        difference, off = (acted - wanted).abs()[counted], None
        self.action_error = max(self.action_error, _largest(difference))
        groups = dict.fromkeys(term.name if "image" in term.params else "actor" for term in contract.observations)
        observed = torch.cat([obs[name].detach().cpu().flatten(1) for name in groups], dim=1)
        if observed.shape == seen.shape:
            off = (seen - observed).abs()
            error = _largest((off / observed.abs().clamp(min=1))[counted])
            self.observation_error = None if self.observation_error is None else max(self.observation_error, error)
        else:
            self.observation_error = None
        allowed = torch.full_like(difference, ACTION_BOUND)
        if bound is not None:
            inputs = (seen, state) if state.shape[1] else (seen,)
            allowed = bound(*inputs, off)[counted].clamp(min=ACTION_BOUND)
            self.action_bound = max(self.action_bound, float(allowed.max()))
        self.are_within = self.are_within and bool((difference <= allowed).all())
        bundle.last_action[:] = wanted.numpy()

    def reset(self, done: Tensor) -> None:
        """Clear clock, history and last action of these rows (N,) bool."""
        self._policy.reset(done)


def _largest(error: Tensor) -> float:
    """Return the largest element; infinite if one is NaN, which no comparison would show."""
    return error.nan_to_num(nan=float("inf")).max().item()
