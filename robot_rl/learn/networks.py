"""Actor and critic: multilayer perceptrons with the observation normalizer inside and a Gaussian over actions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robot_rl.config import NetworkCfg
from robot_rl.learn import gaussian
from robot_rl.learn.mlp import Mlp
from robot_rl.learn.normalizer import Normalizer
from robot_rl.learn.symmetry import Mirror, SymmetricMlp


class Actor(nn.Module):
    """The policy: a Gaussian whose mean is a network's output and whose deviation is a parameter.

    Attributes:
        obs_dim: components of an observation.
        action_dim: components of an action.
        normalizer: normalizes raw observations; None where the configuration says so.
        body: the network.
        log_std: (action_dim,) logarithm of the standard deviation, before mirroring and clamping.
        partner: (action_dim,) index of each action's mirror partner.
    """

    partner: Tensor

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        cfg: NetworkCfg,
        *,
        normalize: bool = True,
        mirror: tuple[Mirror, Mirror] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Build the network.

        Args:
            obs_dim: components of an observation.
            action_dim: components of an action.
            cfg: widths, activation, standard deviation.
            normalize: hold a normalizer.
            mirror: mirrors of observation and action; where given, the policy is equivariant under them.
            generator: source of the weights.
        """
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.normalizer = Normalizer(obs_dim, mirror[0] if mirror else None) if normalize else None
        if mirror is None:
            self.body: Mlp | SymmetricMlp = Mlp(obs_dim, action_dim, cfg, generator)
        else:
            self.body = SymmetricMlp(mirror[0], mirror[1], cfg, generator)
        self.log_std = nn.Parameter(torch.full((action_dim,), math.log(cfg.init_std)))
        self._log_std_range = (math.log(cfg.min_std), math.log(cfg.max_std))
        partner = mirror[1][0] if mirror else torch.arange(action_dim)
        self.register_buffer("partner", partner.clone(), persistent=False)
        self._has_mirror = mirror is not None

    def encode(self, obs: Tensor) -> Tensor:
        """Return what the network takes from raw observations (..., obs_dim): normalized and in its basis."""
        return self.body.encode(obs if self.normalizer is None else self.normalizer(obs))

    def mean(self, obs: Tensor) -> Tensor:
        """Return the mean action (B, action_dim) at raw observations (B, obs_dim)."""
        return self.body(self.encode(obs))

    def current_log_std(self) -> Tensor:
        """Return the logarithm of the standard deviation (action_dim,), equal for mirrored partners and clamped."""
        log_std = self.log_std
        if self._has_mirror:
            log_std = 0.5 * (log_std + log_std[self.partner])
        return log_std.clamp(*self._log_std_range)

    def act(self, obs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw actions at raw observations.

        Args:
            obs: (B, obs_dim) raw observations.
            noise: (B, action_dim) standard normal numbers; drawn here where None.

        Returns:
            action (B, action_dim), its log-probability (B,), mean (B, action_dim), standard deviation (action_dim,).
        """
        mean, log_std = self.mean(obs), self.current_log_std()
        noise = torch.randn_like(mean) if noise is None else noise
        action = torch.addcmul(mean, log_std.exp(), noise)
        return action, gaussian.log_prob(action, mean, log_std), mean, log_std.exp()

    def export_module(self) -> nn.Module:
        """Return a module in evaluation mode from raw observations (B, obs_dim) to mean actions (B, action_dim).

        It holds copies, the normalizer among them, and is a chain of linear layers whatever the training network is.
        """
        return ExportedActor(self).eval()


class Critic(nn.Module):
    """The value function.

    Attributes:
        obs_dim: components of an observation.
        normalizer: normalizes raw observations; None where the configuration says so.
        body: the network.
    """

    def __init__(
        self,
        obs_dim: int,
        cfg: NetworkCfg,
        *,
        normalize: bool = True,
        mirror: Mirror | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Build the network.

        Args:
            obs_dim: components of an observation.
            cfg: widths and activation.
            normalize: hold a normalizer.
            mirror: mirror of the observation; where given, a state and its image have the same value.
            generator: source of the weights.
        """
        super().__init__()
        self.obs_dim = obs_dim
        self.normalizer = Normalizer(obs_dim, mirror) if normalize else None
        if mirror is None:
            self.body: Mlp | SymmetricMlp = Mlp(obs_dim, 1, cfg, generator)
        else:
            unchanged = (torch.zeros(1, dtype=torch.int64), torch.ones(1))
            self.body = SymmetricMlp(mirror, unchanged, cfg, generator)

    def encode(self, obs: Tensor) -> Tensor:
        """Return what the network takes from raw observations (..., obs_dim): normalized and in its basis."""
        return self.body.encode(obs if self.normalizer is None else self.normalizer(obs))

    def value(self, obs: Tensor) -> Tensor:
        """Return the value (B,) of raw observations (B, obs_dim)."""
        return self.body(self.encode(obs)).squeeze(-1)


class ExportedActor(nn.Module):
    """Raw observation in, mean action out: what goes into a policy bundle."""

    mean: Tensor
    scale: Tensor

    def __init__(self, actor: Actor) -> None:
        """Copy what inference needs from an actor, to the CPU."""
        super().__init__()
        normalizer = actor.normalizer or Normalizer(actor.obs_dim)
        self.register_buffer("mean", normalizer.mean.detach().cpu().clone())
        self.register_buffer("scale", normalizer.scale.detach().cpu().clone())
        self.body = actor.body.dense()

    def forward(self, obs: Tensor) -> Tensor:
        """Map raw observations (B, obs_dim) to mean actions (B, action_dim)."""
        return self.body((obs - self.mean) * self.scale)
