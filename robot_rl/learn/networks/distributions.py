"""Distributions over actions, with the outputs of a policy's network as parameters.

A distribution's parameters are a tuple of tensors, computed from the network's output by `params`. A sample is a "raw"
action, which the learner keeps and computes the probability of; `to_env` converts it to the environment's action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.networks.layout import Mirror
from robot_rl.settings import NetworkCfg

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_MIDDLE_WEIGHT = 8.0 / 15.0
_OUTER_NODES = tuple(
    (math.sqrt(5.0 + sign * math.sqrt(10.0)), (7.0 - sign * 2.0 * math.sqrt(10.0)) / 60.0) for sign in (-1.0, 1.0)
)
"""Nodes and weights of the mean over a standard normal number, exact for polynomials up to degree nine."""

Params = tuple[Tensor, ...]


class Distribution(nn.Module):
    """A distribution over actions of A = `action_dim` components, from P = `out_dim` outputs of a network."""

    action_dim: int
    out_dim: int

    def current(self) -> Tensor | None:
        """Return the parameters that do not come from the network, differentiable; None where all do."""
        return None

    def snapshot(self) -> Tensor | None:
        """Return a copy of what `current` returns."""
        current = self.current()
        return None if current is None else current.detach().clone()

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return the parameters at outputs (B, P) of the network; `frozen` is what `current` or `snapshot` returned."""
        raise NotImplementedError

    def draw_noise(self, noise: Tensor, generator: torch.Generator | None) -> None:
        """Fill (..., A) with the random numbers that `sample` takes, standard normal by default."""
        noise.normal_(generator=generator)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions (B, A) from random numbers (B, A)."""
        raise NotImplementedError

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,) of raw actions (B, A)."""
        raise NotImplementedError

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy [nat], (B,), or () if it does not depend on the state."""
        raise NotImplementedError

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence KL(old || new) (B,) [nat]."""
        raise NotImplementedError

    def mode(self, params: Params) -> Tensor:
        """Return the actions (B, A) of the environment without noise."""
        raise NotImplementedError

    def to_env(self, raw: Tensor) -> Tensor:
        """Return the environment's actions (B, A) of raw ones."""
        return raw

    def spread(self, out: Tensor | None = None) -> Tensor | None:
        """Return the mean standard deviation () for the log, over outputs (..., P) if it depends on them; or None."""
        return None

    def mirror_out(self, action: Mirror) -> Mirror:
        """Return the mirror of the network's output that mirrors the actions."""
        return action

    def mode_of_out(self) -> nn.Module:
        """Return a module from outputs (B, P) to the result of `mode`, for the export."""
        return nn.Identity()


class Gaussian(Distribution):
    """Independent Gaussians with a deviation that does not depend on the state; mirror partners have the same.

    Attributes:
        log_std: (A,) logarithm of the standard deviation, before mirroring and clamping.
        partner: (A,) index of each action's mirror partner.
    """

    partner: Tensor

    def __init__(self, action_dim: int, cfg: NetworkCfg, partner: Tensor | None = None) -> None:
        super().__init__()
        self.action_dim = self.out_dim = action_dim
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(cfg.init_std)))
        self._range = (math.log(cfg.min_std), math.log(cfg.max_std))
        self._has_partner = partner is not None
        self.register_buffer(
            "partner", torch.arange(action_dim) if partner is None else partner.clone(), persistent=False
        )

    def current(self) -> Tensor:
        """Return the logarithm of the standard deviation (A,), equal for mirror partners and clamped."""
        log_std = self.log_std
        if self._has_partner:
            log_std = 0.5 * (log_std + log_std[self.partner])
        return log_std.clamp(*self._range)

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return mean (B, A) and logarithm of the standard deviation (A,)."""
        return out, self.current() if frozen is None else frozen

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return mean + deviation * noise."""
        mean, log_std = params
        return torch.addcmul(mean, log_std.exp(), noise)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,)."""
        mean, log_std = params
        scaled = (raw - mean) * torch.exp(-log_std)
        return scaled.square().sum(-1).mul(-0.5) - (log_std + HALF_LOG_2PI).sum()

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy ()."""
        return (params[1] + 0.5 + HALF_LOG_2PI).sum()

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence (B,)."""
        (old_mean, old_log_std), (mean, log_std) = old, new
        constant = (0.5 * (torch.exp(2.0 * (old_log_std - log_std)) - 1.0) + log_std - old_log_std).sum()
        return ((old_mean - mean) * torch.exp(-log_std)).square().sum(-1).mul(0.5) + constant

    def mode(self, params: Params) -> Tensor:
        """Return the mean."""
        return params[0]

    def spread(self, out: Tensor | None = None) -> Tensor:
        """Return the mean standard deviation ()."""
        return self.current().detach().exp().mean()


class StateGaussian(Distribution):
    """Independent Gaussians with a deviation that is also an output of the network: P = 2 A.

    The logarithm of the deviation is log(init_std) + the output, clamped to the configured range.
    """

    def __init__(self, action_dim: int, cfg: NetworkCfg) -> None:
        super().__init__()
        self.action_dim, self.out_dim = action_dim, 2 * action_dim
        self._start = math.log(cfg.init_std)
        self._range = (math.log(cfg.min_std), math.log(cfg.max_std))

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return mean and logarithm of the standard deviation, (B, A) each."""
        mean, raised = out.chunk(2, dim=-1)
        return mean, (raised + self._start).clamp(*self._range)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return mean + deviation * noise."""
        return torch.addcmul(params[0], params[1].exp(), noise)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,)."""
        mean, log_std = params
        scaled = (raw - mean) * torch.exp(-log_std)
        return -(0.5 * scaled.square() + log_std + HALF_LOG_2PI).sum(-1)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy (B,)."""
        return (params[1] + 0.5 + HALF_LOG_2PI).sum(-1)

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence (B,)."""
        return kl_each(*old, *new)

    def mode(self, params: Params) -> Tensor:
        """Return the mean."""
        return params[0]

    def spread(self, out: Tensor | None = None) -> Tensor | None:
        """Return the mean standard deviation () at outputs (..., P)."""
        return None if out is None else self.params(out)[1].detach().exp().mean()

    def mirror_out(self, action: Mirror) -> Mirror:
        """Return the mirror of [mean, deviation]: a deviation is swapped with its partner's and keeps its sign."""
        perm, sign = action
        return torch.cat((perm, perm + self.action_dim)), torch.cat((sign, torch.ones_like(sign)))

    def mode_of_out(self) -> nn.Module:
        """Return the first half of the outputs."""
        return _FirstHalf()


class Squashed(Distribution):
    """A Gaussian through tanh: actions in (-bound, bound) (Haarnoja et al. 2018, appendix C).

    The raw action is the Gaussian's. Divergences are the Gaussian's, since tanh is invertible; the entropy has the mean
    of log |d action / d raw|, by Gauss-Hermite quadrature in five points: off by less than 0.01 nat a component up to a
    deviation of 1 before the tanh, by less than 0.1 up to 2.
    """

    def __init__(self, inner: Gaussian | StateGaussian, bound: float) -> None:
        super().__init__()
        self.inner, self.bound = inner, bound
        self.action_dim, self.out_dim = inner.action_dim, inner.out_dim

    def current(self) -> Tensor | None:
        """Return the Gaussian's."""
        return self.inner.current()

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return the Gaussian's parameters."""
        return self.inner.params(out, frozen)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return the Gaussian's."""
        return self.inner.sample(params, noise)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,) of the squashed actions."""
        return self.inner.log_prob(raw, params) - self._log_slope(raw).sum(-1)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy (B,) of the squashed actions."""
        mean, std = params[0], params[1].exp()
        slope = _MIDDLE_WEIGHT * self._log_slope(mean)
        for node, weight in _OUTER_NODES:
            slope = slope + weight * (self._log_slope(mean + node * std) + self._log_slope(mean - node * std))
        return self.inner.entropy(params) + slope.sum(-1)

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence (B,)."""
        return self.inner.kl(old, new)

    def mode(self, params: Params) -> Tensor:
        """Return bound * tanh(mean)."""
        return self.to_env(params[0])

    def to_env(self, raw: Tensor) -> Tensor:
        """Return bound * tanh(raw)."""
        return self.bound * torch.tanh(raw)

    def spread(self, out: Tensor | None = None) -> Tensor | None:
        """Return the mean standard deviation () before the tanh."""
        return self.inner.spread(out)

    def mirror_out(self, action: Mirror) -> Mirror:
        """Return the Gaussian's: tanh is odd."""
        return self.inner.mirror_out(action)

    def mode_of_out(self) -> nn.Module:
        """Return the Gaussian's mean through tanh."""
        return nn.Sequential(self.inner.mode_of_out(), _Tanh(self.bound))

    def _log_slope(self, raw: Tensor) -> Tensor:
        """Return log(bound * (1 - tanh(raw)^2)), which stays finite for large raw."""
        return math.log(4.0 * self.bound) - 2.0 * (raw + nn.functional.softplus(-2.0 * raw))


class Categorical(Distribution):
    """Independent choices: component k takes one of choices[k] values; an action holds their indices as numbers.

    Drawn by inversion, with a uniform number a component.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__()
        self.choices = tuple(choices)
        self.action_dim, self.out_dim = len(self.choices), sum(self.choices)

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return the log-probabilities of each component's choices, (B, choices[k]) each."""
        return tuple(part.log_softmax(-1) for part in out.split(self.choices, dim=-1))

    def draw_noise(self, noise: Tensor, generator: torch.Generator | None) -> None:
        """Fill (..., A) with uniform numbers in [0, 1)."""
        noise.uniform_(generator=generator)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return the indices, by inversion of each component's distribution function."""
        index = [
            (noise[..., k : k + 1] >= part.exp().cumsum(-1)[..., :-1]).sum(-1, keepdim=True)
            for k, part in enumerate(params)
        ]
        return torch.cat(index, dim=-1).to(noise.dtype)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,)."""
        index = raw.to(torch.int64)
        rows = [part.gather(-1, index[..., k : k + 1]) for k, part in enumerate(params)]
        return torch.cat(rows, dim=-1).sum(-1)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy (B,)."""
        return -torch.stack([(part.exp() * part).sum(-1) for part in params]).sum(0)

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence (B,)."""
        return torch.stack([(a.exp() * (a - b)).sum(-1) for a, b in zip(old, new, strict=True)]).sum(0)

    def mode(self, params: Params) -> Tensor:
        """Return the most probable indices."""
        return torch.stack([part.argmax(-1) for part in params], dim=-1).to(params[0].dtype)

    def mirror_out(self, action: Mirror) -> Mirror:
        """Raise UserError: a choice does not have a sign to mirror."""
        raise UserError("symmetry: the actions are choices, without a mirror; use symmetry=none")

    def mode_of_out(self) -> nn.Module:
        """Raise UserError: a robot's joints take targets."""
        raise UserError("export: the policy makes choices, a bundle's contract has only targets of joints")


def make_distribution(
    action_dim: int, cfg: NetworkCfg, *, choices: Sequence[int] = (), partner: Tensor | None = None
) -> Distribution:
    """Return the distribution of an actor's configuration; `partner` (A,) are the mirror partners of its actions.

    Raises UserError if a distribution of real numbers is configured, but actions are `choices`.
    """
    if choices:
        if cfg.distribution != "gaussian" or cfg.state_std:
            setting = f"distribution: '{cfg.distribution}'" if cfg.distribution != "gaussian" else "state_std: True"
            raise UserError(f"actor.{setting} is for actions that are numbers, these are choices; omit it")
        return Categorical(choices)
    inner = StateGaussian(action_dim, cfg) if cfg.state_std else Gaussian(action_dim, cfg, partner)
    return Squashed(inner, cfg.bound) if cfg.distribution == "squashed" else inner


def kl_each(old_mean: Tensor, old_log_std: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return KL(old || new) (B,) [nat] of Gaussians with deviations (A,), or of each sample (B, A)."""
    ratio = torch.exp(2.0 * (old_log_std - log_std))
    return (log_std - old_log_std + 0.5 * (ratio + ((old_mean - mean) * torch.exp(-log_std)).square() - 1.0)).sum(-1)


class _FirstHalf(nn.Module):
    def forward(self, out: Tensor) -> Tensor:
        return out[..., : out.shape[-1] // 2]


class _Tanh(nn.Module):
    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, out: Tensor) -> Tensor:
        return self.bound * torch.tanh(out)
