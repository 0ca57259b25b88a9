"""The policy and the critics of FlashSAC."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.algorithms.flashsac.config import FlashSACCfg, FlashSACLearnerCfg
from robot_rl.learn.algorithms.flashsac.layers import Trunk
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.conv import Encoders
from robot_rl.learn.networks.distributions import HALF_LOG_2PI, Distribution, Mirror, Params
from robot_rl.learn.networks.normalizer import Normalizer

LOG_STD = (-10.0, 2.0)
"""Range of the logarithm of the deviation before the tanh."""


class BoundedTanh(Distribution):
    """A Gaussian through tanh, then from (-1, 1) to each action's own range.

    Probabilities and entropies are those of the actions in (-1, 1), so that they do not depend on the ranges.

    Attributes:
        middle: (A,) middle of the range of each of the environment's actions.
        reach: (A,) half the range.
    """

    middle: Tensor
    reach: Tensor

    def __init__(self, action_dim: int) -> None:
        """Begin with the range (-1, 1).

        Args:
            action_dim: components A.
        """
        super().__init__()
        self.action_dim, self.out_dim = action_dim, 2 * action_dim
        self.register_buffer("middle", torch.zeros(action_dim))
        self.register_buffer("reach", torch.ones(action_dim))

    def set_range(self, low: Tensor, high: Tensor) -> None:
        """Take the least and greatest actions (A,)."""
        self.middle.copy_(0.5 * (low + high))
        self.reach.copy_(0.5 * (high - low))

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return mean and logarithm of the deviation before the tanh, (B, A) each."""
        mean, raw = out.chunk(2, dim=-1)
        low, high = LOG_STD
        return mean, low + 0.5 * (high - low) * (1.0 + torch.tanh(raw))

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return mean + deviation * noise."""
        return torch.addcmul(params[0], params[1].exp(), noise)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,) of tanh(raw)."""
        mean, log_std = params
        scaled = (raw - mean) * torch.exp(-log_std)
        slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
        return -(0.5 * scaled.square() + log_std + HALF_LOG_2PI + slope).sum(-1)

    def mode(self, params: Params) -> Tensor:
        """Return the action (B, A) of the mean."""
        return self.to_env(params[0])

    def to_env(self, raw: Tensor) -> Tensor:
        """Return middle + reach * tanh(raw)."""
        return torch.addcmul(self.middle, self.reach, torch.tanh(raw))

    def spread(self, out: Tensor | None = None) -> Tensor | None:
        """Return the mean standard deviation () before the tanh."""
        return None if out is None else self.params(out)[1].detach().exp().mean()

    def mirror_out(self, action: Mirror) -> Mirror:
        """Raise UserError: the policy does not have a symmetric form."""
        raise UserError("symmetry=network: learner=flashsac lacks symmetric networks; use augment or none")

    def mode_of_out(self) -> nn.Module:
        """Return a module from the network's output to what `mode` returns."""
        return _Mode(self)


class _Mode(nn.Module):
    middle: Tensor
    reach: Tensor

    def __init__(self, distribution: BoundedTanh) -> None:
        super().__init__()
        self.size = distribution.action_dim
        self.register_buffer("middle", distribution.middle.detach().cpu().clone())
        self.register_buffer("reach", distribution.reach.detach().cpu().clone())

    def forward(self, out: Tensor) -> Tensor:
        return self.middle + self.reach * torch.tanh(out[:, : self.size])


class _Single(nn.Module):
    """A trunk of one network as the body of an actor."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk = trunk

    def encode(self, x: Tensor) -> Tensor:
        """Return normalized observations as they are."""
        return x

    def forward(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        """Map (B, D) to (R, P): the outputs of `rows`."""
        return self.trunk(x, rows)[0]

    def dense(self) -> nn.Module:
        """Return a copy of plain layers."""
        return self.trunk.dense()


class FlashActor(Actor):
    """The policy: a residual network and a Gaussian through tanh. It acts in evaluation mode.

    Attributes:
        carried_is_random: () float32, 1 while actions are noise only, set by the algorithm (`carry`).
    """

    carried_is_random: Tensor

    def __init__(self, cfg: FlashSACLearnerCfg, dims: EnvSpec, generator: torch.Generator | None = None) -> None:
        """Build the network.

        Args:
            cfg: the settings.
            dims: sizes of observations and actions.
            generator: source of the weights.

        Raises:
            UserError: the actions are choices.
        """
        if dims.choices:
            raise UserError("learner=flashsac: the actions are choices, it learns numbers; use learner=ppo")
        nn.Module.__init__(self)
        flash = cfg.flashsac
        self.layout, self.action_dim = dims.actor_layout, dims.action
        self.obs_dim = self.layout.size
        self.encoders = Encoders(self.layout, cfg.actor)
        self.normalizer = Normalizer(self.obs_dim) if cfg.normalize_obs else None
        self.memory, self.distribution = None, BoundedTanh(dims.action)
        self.body = _Single(
            Trunk(
                1,
                self.obs_dim,
                self.distribution.out_dim,
                width=flash.policy_width,
                blocks=flash.policy_blocks,
                expansion=flash.expansion,
                generator=generator,
            )
        )
        self.eval()


class Critics(nn.Module):
    """Two distributions of the return of a state and an action, over `bins` values (Bellemare et al. 2017).

    Attributes:
        values: (K,) the bins.
    """

    values: Tensor

    def __init__(self, size: int, action_dim: int, cfg: FlashSACCfg, generator: torch.Generator | None) -> None:
        """Build the networks.

        Args:
            size: components of the critic's observation.
            action_dim: components of an action.
            cfg: the settings.
            generator: source of the weights.
        """
        super().__init__()
        self.trunk = Trunk(
            2,
            size + action_dim,
            cfg.bins,
            width=cfg.critic_width,
            blocks=cfg.critic_blocks,
            expansion=cfg.expansion,
            generator=generator,
        )
        values = torch.linspace(-cfg.value_bound, cfg.value_bound, cfg.bins)
        self.register_buffer("values", values, persistent=False)

    def forward(self, obs: Tensor, action: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return the log-probabilities (2, R, K) of the bins at normalized observations (B, D) and actions (B, A).

        They are those of `rows`; all B are one batch for the normalization.
        """
        return self.trunk(torch.cat((obs, action), dim=-1), rows).log_softmax(-1)

    def mean(self, log_probs: Tensor) -> Tensor:
        """Return the means (2, B) of distributions (2, B, K)."""
        return (log_probs.exp() * self.values).sum(-1)


def project_target(probs: Tensor, values: Tensor, shift: Tensor, gamma: Tensor) -> Tensor:
    """Return the distribution of shift + gamma * value over the bins (the categorical projection).

    Args:
        probs: (B, K) distribution of the value.
        values: (K,) bins, evenly spaced.
        shift: (B,) the addend.
        gamma: (B,) the factor of the value.

    Returns:
        (B, K) probabilities; the share outside the bins goes to the first or the last.
    """
    low, high = values[0], values[-1]
    place = (shift[:, None] + gamma[:, None] * values).clamp(low, high)
    place = (place - low) * ((len(values) - 1) / (high - low))
    below = place.floor().clamp(max=len(values) - 2)
    share = place - below
    index = below.to(torch.int64)
    result = torch.zeros_like(probs)
    result.scatter_add_(1, index, probs * (1.0 - share))
    return result.scatter_add_(1, index + 1, probs * share)
