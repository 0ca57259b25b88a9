"""Steps of a policy in an imagined world, and the gradient of their rewards by what the policy learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robot_rl.learn.algorithms.world_model.dynamics import Dynamics, Prediction
from robot_rl.learn.algorithms.world_model.passes import Passes


class Steps:
    """One sequence of T imagined steps in B rows.

    Attributes:
        seen: the critic's observations before each step and after the last one, (B, D) each.
        rewards: (T, B), and `ended` whether an episode ends there, 1.0 or 0.0.
    """

    seen: list[Tensor]
    rewards: Tensor
    ended: Tensor

    def __init__(self, actor: Any, model: Dynamics, imagination: Any, generator: torch.Generator) -> None:
        """Prepare for the weights that policy and model have now.

        Args:
            actor: The policy.
            model: The dynamics, which get no gradient.
            imagination: As of `Env.imagine`.
            generator: Of the noise of actions.
        """
        self._distribution, self._imagination = actor.distribution, imagination
        self._passes = Passes(actor.body.deployed(), actor.body.work.activation, actor.normalizer)
        self._prediction = Prediction(model)
        current = self._distribution.current()
        self._graph, self._current = current, None if current is None else current.detach().requires_grad_()
        self._generator, self._size = generator, actor.action_dim
        self._outs: list[Tensor] = []
        self._actions: list[Tensor] = []

    def forward(self, start: dict[str, Tensor], steps: int) -> None:
        """Take steps from the worlds and observations of transitions."""
        imagination, actor_obs, critic_obs = self._imagination, start["actor"], start["critic"]
        noise = torch.randn(steps, len(actor_obs), self._size, generator=self._generator, device=actor_obs.device)
        imagination.begin(start["world"], {"actor": actor_obs, "critic": critic_obs})
        at = {name: 2 + i for i, name in enumerate(imagination.groups)}
        self.seen, rewards, ended = [critic_obs], [], []
        for t in range(steps):
            out = self._passes.forward(actor_obs).requires_grad_()
            params = self._distribution.params(out, self._current)
            action = self._distribution.to_env(self._distribution.sample(params, noise[t]))
            self._outs.append(out)
            self._actions.append(action)
            taken = action.detach()
            found = imagination.run(t, taken, self._prediction.forward(critic_obs, taken))
            actor_obs, critic_obs = found[at["actor"]], found[at["critic"]]
            rewards.append(found[0])
            ended.append(found[1])
            self.seen.append(critic_obs)
        self.rewards, self.ended = torch.stack(rewards), torch.stack(ended)

    def back(self, grad: Tensor, at_last: Tensor, entropy_coef: float) -> Tensor:
        """Add the gradient of a loss to that of the policy's parameters.

        Args:
            grad: Of the rewards, (T, B).
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
        by_obs = dict.fromkeys(imagination.groups) | {"critic": at_last}
        for t in range(len(self._outs) - 1, -1, -1):
            by_action, by_change = imagination.run_back(t, grad[t], [by_obs[name] for name in imagination.groups])
            by_critic, more = self._prediction.back(by_change)
            by_action += more
            leaves = [self._outs[t]] if self._current is None else [self._outs[t], self._current]
            slopes = torch.autograd.grad(self._actions[t], leaves, by_action)
            by_mean = slopes[0] if each is None else slopes[0] + each[t]
            if by_current is not None:
                by_current += slopes[1]
            by_obs = dict.fromkeys(imagination.groups) | {"critic": by_critic, "actor": self._passes.back(by_mean)}
        self._passes.finish()
        if self._graph is not None:
            torch.autograd.backward(self._graph, by_current)
        return entropy.detach()
