"""Steps of a policy in an imagined world, and the gradient of their rewards with respect to its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.world_model.dynamics import Dynamics, Prediction
from robot_rl.learn.algorithms.world_model.passes import Passes
from robot_rl.settings import LearnerCfg

ROW_CLIP = 4.0
"""What the gradient of a row's action is clipped to, in medians of all rows: few go through a stiff contact."""


class Views:
    """What actor and critic see of the observation groups of an imagined step.

    Attributes:
        spans: group and columns of each part of an observation, by "actor" and "critic".
    """

    def __init__(self, cfg: LearnerCfg, widths: Mapping[str, int]) -> None:
        """Lay out the groups.

        Args:
            cfg: Names the groups that actor and critic see.
            widths: Components of each group that steps have.

        Raises:
            UserError: A group that no imagined step has.
        """
        self.names = list(widths)
        self.spans: dict[str, list[tuple[str, slice]]] = {}
        for who, groups in (("actor", cfg.actor_groups), ("critic", cfg.critic_groups)):
            for group in groups:
                if group not in widths:
                    known = ", ".join(widths)
                    raise UserError(f"{who}_groups: '{group}' cannot be imagined; must be some of {known}")
            ends = list(accumulate(widths[group] for group in groups))
            spans = map(slice, [0, *ends[:-1]], ends)
            self.spans[who] = list(zip(groups, spans, strict=True))

    def groups(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the groups (B, D) that are part of the observations of actor and critic."""
        return {group: obs[who][:, span] for who, spans in self.spans.items() for group, span in spans}

    def of(self, who: str, groups: Sequence[Tensor]) -> Tensor:
        """Return an observation (B, D) from all groups, in the order of a step's."""
        parts = [groups[self.names.index(group)] for group, _ in self.spans[who]]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def back(self, grads: Mapping[str, Tensor]) -> list[Tensor | None]:
        """Return the gradients of all groups from those of the observations that are given."""
        found: dict[str, Tensor | None] = dict.fromkeys(self.names)
        for who, grad in grads.items():
            for group, span in self.spans[who]:
                before = found[group]
                found[group] = grad[:, span] if before is None else before + grad[:, span]
        return list(found.values())


class Steps:
    """One sequence of T imagined steps in B rows.

    Attributes:
        seen: the model's input before each step and after the last one, (B, D + S) each: the critic's observations,
            and the speeds that they do not tell.
        rewards: (T, B), and `ended` whether an episode ends there, 1.0 or 0.0.
    """

    seen: list[Tensor]
    rewards: Tensor
    ended: Tensor

    def __init__(self, actor: Any, model: Dynamics, imagination: Any, views: Views, generator: torch.Generator) -> None:
        """Prepare for the weights that policy and model have now.

        Args:
            actor: The policy.
            model: The dynamics, which get no gradient.
            imagination: As of `Env.imagine`.
            views: What of its groups actor and critic see.
            generator: Of the noise of actions.
        """
        self._distribution, self._imagination, self._views = actor.distribution, imagination, views
        self._passes = Passes(actor.body.deployed(), actor.body.work.activation, actor.normalizer)
        self._model = model
        current = self._distribution.current()
        self._graph, self._current = current, None if current is None else current.detach().requires_grad_()
        self._generator, self._size = generator, actor.action_dim
        self._outs: list[Tensor] = []
        self._actions: list[Tensor] = []

    def forward(self, start: dict[str, Tensor], steps: int) -> None:
        """Take steps from the worlds and observations of transitions."""
        imagination, views, actor_obs, critic_obs = self._imagination, self._views, start["actor"], start["critic"]
        noise = torch.randn(steps, len(actor_obs), self._size, generator=self._generator, device=actor_obs.device)
        imagination.begin(start["world"], views.groups(start))
        self._prediction = Prediction(self._model, start["world"][:, imagination.context])
        seen = torch.cat((critic_obs, imagination.speeds_of(start["world"])), 1)
        self.seen, rewards, ended = [seen], [], []
        for t in range(steps):
            out = self._passes.forward(actor_obs).requires_grad_()
            params = self._distribution.params(out, self._current)
            action = self._distribution.to_env(self._distribution.sample(params, noise[t]))
            self._outs.append(out)
            self._actions.append(action)
            taken = action.detach()
            reward, end, speeds, *groups = imagination.run(t, taken, self._prediction.forward(seen, taken))
            actor_obs, seen = views.of("actor", groups), torch.cat((views.of("critic", groups), speeds), 1)
            rewards.append(reward)
            ended.append(end)
            self.seen.append(seen)
        self.rewards, self.ended = torch.stack(rewards), torch.stack(ended)

    def back(self, grad: Tensor, by_ends: Tensor, at_last: Tensor, entropy_coef: float) -> Tensor:
        """Add the gradient of a loss to that of the policy's parameters.

        Args:
            grad: Of the rewards, (T, B).
            by_ends: Of the probability that a step ends the episode, (T, B).
            at_last: Of the critic's observations after the last step, (B, D).
            entropy_coef: Weight of the mean entropy, which the loss goes down with.

        Returns:
            The mean entropy ().
        """
        imagination = self._imagination
        outs = torch.cat(self._outs).detach().requires_grad_()
        entropy = self._distribution.entropy(self._distribution.params(outs, self._current)).mean()
        free = [leaf for leaf in (outs, self._current) if leaf is not None]
        found = torch.autograd.grad(-entropy_coef * entropy, free, allow_unused=True)
        by_out = found[0]
        by_current = None if self._current is None else torch.zeros_like(self._current) + found[1]
        each = None if by_out is None else by_out.view(len(self._outs), *self._outs[0].shape)
        by_obs, by_speeds, size = {"critic": at_last}, None, at_last.shape[1]
        for t in range(len(self._outs) - 1, -1, -1):
            by_action, by_change = imagination.run_back(t, grad[t], self._views.back(by_obs), by_speeds)
            by_seen, more = self._prediction.back(by_change, by_ends[t])
            by_action += more
            leaves = [self._outs[t]] if self._current is None else [self._outs[t], self._current]
            slopes = torch.autograd.grad(self._actions[t], leaves, by_action)
            by_mean = _clip_rows(slopes[0])
            if each is not None:
                by_mean += each[t]
            if by_current is not None:
                by_current += slopes[1]
            by_obs = {"critic": by_seen[:, :size], "actor": self._passes.back(by_mean)}
            by_speeds = by_seen[:, size:]
        self._passes.finish()
        if self._graph is not None:
            torch.autograd.backward(self._graph, by_current)
        return entropy.detach()


def _clip_rows(grad: Tensor) -> Tensor:
    """Return the gradient of actions (B, A), each row with at most ROW_CLIP times the rows' median norm.

    The median is that of rows which have a gradient at all.
    """
    norm = grad.norm(dim=1)
    middle = torch.nanmedian(norm.masked_fill(norm == 0.0, torch.nan)).nan_to_num_(0.0)
    return grad * (ROW_CLIP * middle / norm.clamp(min=1e-30)).clamp_(max=1.0)[:, None]
