"""Several policies behind the interface of one: rows are the robots of a team, world after world.

A batch consists of whole worlds, T rows each, in the order of the team's robots. Each policy sees all rows of its
robots at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.arithmetic import Converter
from robot_rl.learn.networks.distributions import Distribution, Params
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.precision.conversion import Quantizer
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.settings import NetworkCfg


class Members:
    """Which rows belong to which policy.

    Attributes:
        groups: for each policy the places of its robots among the T of a world.
        size: T.
    """

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.groups = [list(group) for group in groups]
        self.size = sum(map(len, self.groups))
        order = [place for group in self.groups for place in group]
        back = [order.index(place) for place in range(self.size)]
        self._back = None if back == list(range(self.size)) else back
        # A slice copies nothing.
        self._places: list[Any] = [
            slice(group[0], group[-1] + 1) if group == list(range(group[0], group[-1] + 1)) else group
            for group in self.groups
        ]

    def split(self, x: Tensor, width: int | None = None) -> list[Tensor]:
        """Return the rows (n_g, ...) of each policy, of (B, ...) with B a multiple of T; the first `width` columns."""
        worlds = x.unflatten(0, (-1, self.size))
        parts = [worlds[:, places].flatten(0, 1) for places in self._places]
        return parts if width is None else [part[..., :width] for part in parts]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return (B, ...) from the rows of each policy; narrower ones are filled up with zeros."""
        if parts[0].ndim > 1:
            width = max(part.shape[-1] for part in parts)
            parts = [nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
        worlds = [part.unflatten(0, (-1, len(group))) for part, group in zip(parts, self.groups, strict=True)]
        joined = torch.cat(worlds, dim=1)
        return (joined if self._back is None else joined[:, self._back]).flatten(0, 1)


class TeamDistribution(Distribution):
    """The distributions of several policies; parameters are those of one after the other."""

    def __init__(self, inner: Sequence[Distribution], members: Members) -> None:
        super().__init__()
        self.inner = nn.ModuleList(inner)
        self.members = members
        self.action_dim = max(each.action_dim for each in inner)
        self.out_dim = max(each.out_dim for each in inner)

    def _each(self) -> list[Any]:
        return list(self.inner)

    def current(self) -> Tensor | None:
        """Return the parameters of all, one after the other; None if none has any."""
        found = [part for each in self._each() if (part := each.current()) is not None]
        return torch.cat(found) if found else None

    def params(self, out: Tensor, frozen: Tensor | None = None) -> Params:
        """Return the parameters of each policy at its rows of the outputs (B, P)."""
        found: list[Tensor] = []
        self._counts: list[int] = []
        start = 0
        for each, rows in zip(self._each(), self.members.split(out), strict=True):
            kept = None
            if frozen is not None and (own := each.current()) is not None:
                kept = frozen[start : start + own.numel()]
                start += own.numel()
            params = each.params(rows[:, : each.out_dim], kept)
            self._counts.append(len(params))
            found += params
        return tuple(found)

    def _parts(self, params: Params) -> list[Params]:
        starts = [sum(self._counts[:k]) for k in range(len(self._counts) + 1)]
        return [params[a:b] for a, b in pairwise(starts)]

    def _map(self, function: Callable[..., Tensor], *rows: Tensor, params: Params) -> Tensor:
        """Apply a function of (distribution, its rows, its parameters) to each policy, and join the results."""
        split = [self.members.split(x) for x in rows]
        parts = []
        for k, (each, own) in enumerate(zip(self._each(), self._parts(params), strict=True)):
            parts.append(function(each, *(x[k][:, : each.action_dim] for x in split), own))
        return self.members.join(parts)

    def draw_noise(self, noise: Tensor, generator: torch.Generator | None) -> None:
        """Fill (..., A) with the first policy's random numbers."""
        self._each()[0].draw_noise(noise, generator)

    def sample(self, params: Params, noise: Tensor) -> Tensor:
        """Return raw actions (B, A), 0 if a policy has fewer."""
        return self._map(lambda each, own, p: each.sample(p, own), noise, params=params)

    def log_prob(self, raw: Tensor, params: Params) -> Tensor:
        """Return the log-probability (B,)."""
        return self._map(lambda each, own, p: each.log_prob(own, p), raw, params=params)

    def entropy(self, params: Params) -> Tensor:
        """Return the entropy (B,)."""
        rows = self._rows(params)
        parts = [
            each.entropy(own).expand(count)
            for each, own, count in zip(self._each(), self._parts(params), rows, strict=True)
        ]
        return self.members.join(parts)

    def _rows(self, params: Params) -> list[int]:
        """Return the number of rows of each policy."""
        return [own[0].shape[0] for own in self._parts(params)]

    def kl(self, old: Params, new: Params) -> Tensor:
        """Return the divergence (B,)."""
        pairs = zip(self._each(), self._parts(old), self._parts(new), strict=True)
        return self.members.join([each.kl(before, after) for each, before, after in pairs])

    def mode(self, params: Params) -> Tensor:
        """Return the environment's actions (B, A)."""
        return self.members.join([each.mode(own) for each, own in zip(self._each(), self._parts(params), strict=True)])

    def to_env(self, raw: Tensor) -> Tensor:
        """Return the environment's actions (B, A) of raw ones."""
        split = self.members.split(raw)
        return self.members.join(
            [each.to_env(rows[:, : each.action_dim]) for each, rows in zip(self._each(), split, strict=True)]
        )

    def spread(self, out: Tensor | None = None) -> Tensor | None:
        """Return the mean standard deviation () of the policies that have one that the state does not change."""
        found = [value for each in self._each() if (value := each.spread(None)) is not None]
        return torch.stack(found).mean() if found else None


class TeamNormalizer(nn.Module):
    """The normalizers of several policies, each with the statistics of its robots."""

    def __init__(self, actors: Sequence[Actor], members: Members) -> None:
        super().__init__()
        self._actors, self._members = list(actors), members

    @property
    def _each(self) -> list[Normalizer]:
        return [actor.normalizer for actor in self._actors if actor.normalizer is not None]

    @property
    def mean(self) -> Tensor:
        """(sum of D,) means, policy after policy."""
        return torch.cat([each.mean for each in self._each])

    @property
    def scale(self) -> Tensor:
        """(sum of D,) factors, policy after policy."""
        return torch.cat([each.scale for each in self._each])

    def update(self, obs: Tensor, valid: Tensor | None = None, ranks: ProcessGroup = SINGLE_PROCESS) -> None:
        """Include the valid (B,) rows of observations (B, D)."""
        chosen = [None] * len(self._actors) if valid is None else self._members.split(valid)
        for actor, rows, mask in zip(self._actors, self._members.split(obs), chosen, strict=True):
            assert actor.normalizer is not None
            actor.normalizer.update(rows[:, : actor.obs_dim], mask, ranks)


class TeamActor(Actor):
    """Several policies as one, for algorithms that know one; each is an `Actor`.

    Attributes:
        names: the policies.
        actors: them, in that order.
        members: whose rows are whose.
        group_size: rows that belong together, T.
    """

    def __init__(self, names: Sequence[str], actors: Sequence[Actor], members: Members, layout: Any) -> None:
        nn.Module.__init__(self)
        if any(actor.memory is not None for actor in actors):
            raise UserError("actor.memory.kind: several policies cannot have memory; use sharing=role with one role")
        self.names, self.members, self.layout, self.memory = tuple(names), members, layout, None
        self.actors = nn.ModuleList(actors)
        self.group_size, self.obs_dim = members.size, layout.size
        self.distribution = TeamDistribution([actor.distribution for actor in actors], members)
        self.action_dim = self.distribution.action_dim
        self._normalizer = TeamNormalizer(actors, members) if actors[0].normalizer is not None else None

    @property
    def normalizer(self) -> TeamNormalizer | None:
        """The policies' normalizers; None if they have none."""
        return self._normalizer

    def each(self) -> list[Any]:
        """Return the policies."""
        return list(self.actors)

    def convert(self, converter: Converter, name: str) -> None:
        """Replace the arithmetic of every policy's layers."""
        for own, actor in zip(self.names, self.each(), strict=True):
            actor.convert(converter, f"{name}.{own}")

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Replace the arithmetic of every policy's layers by a rounded one."""
        for own, actor in zip(self.names, self.each(), strict=True):
            actor.quantize(quantizer, f"{name}.{own}")

    def encode(self, obs: Tensor) -> Tensor:
        """Return the policies' inputs (B, F) from raw observations (B, D)."""
        rows = zip(self.each(), self.members.split(obs), strict=True)
        return self.members.join([actor.encode(own[:, : actor.obs_dim]) for actor, own in rows])

    def outputs(self, x: Tensor, past: Any = None) -> Tensor:
        """Map encoded observations (B, F) to outputs (B, P)."""
        rows = zip(self.each(), self.members.split(x), strict=True)
        return self.members.join([actor.outputs(own[:, : actor.obs_dim]) for actor, own in rows])


class TeamCritic(Critic):
    """The values of all robots of a world in one pass: the observations of each robot in, a value for each out.

    Rows are the robots, world after world, as of `TeamActor`; one robot's part is not copied for another.

    Attributes:
        group_size: rows that belong together, T.
    """

    def __init__(
        self,
        layout: ObservationLayout,
        size: int,
        cfg: NetworkCfg,
        *,
        normalize: bool = True,
        normalize_values: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        if cfg.memory.kind != "none" or cfg.conv.groups:
            setting = "memory.kind" if cfg.memory.kind != "none" else "conv.groups"
            raise UserError(f"critic.{setting}: a critic of all robots in one pass has none; use view=others")
        super().__init__(layout, cfg, normalize=normalize, normalize_values=normalize_values, generator=generator)
        self.group_size = size
        self.body: Any = Mlp(size * layout.size, size, cfg, generator)

    def outputs(self, x: Tensor, past: Any = None) -> Tensor:
        """Map encoded observations (B, F) of whole worlds to the values (B, 1) of their robots."""
        return self.body(x.reshape(-1, self.group_size * x.shape[-1])).reshape(-1, 1)


class AttentionCritic(TeamCritic):
    """The values of all robots of a world, each by attention to those that take part.

    A robot's observations become a vector; the robot's value is that of this vector and of the mean of all vectors
    of its world, weighted by attention (Vaswani et al. 2017, equation 1). No weight depends on the number of robots.
    """

    HEADS = 4

    def __init__(self, layout: ObservationLayout, size: int, cfg: NetworkCfg, **options: Any) -> None:
        width = cfg.hidden[0]
        if width % self.HEADS:
            raise UserError(f"critic.hidden: {list(cfg.hidden)} must begin with a multiple of {self.HEADS}")
        super().__init__(layout, size, cfg, **options)
        generator = options.get("generator")
        self.embed = Mlp(layout.size, width, replace(cfg, hidden=(width,)), generator)
        self.attend = nn.Linear(width, 3 * width)
        nn.init.orthogonal_(self.attend.weight, generator=generator)
        nn.init.zeros_(self.attend.bias)
        self.body = Mlp(2 * width, 1, cfg, generator)

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Raise UserError: attention does not have a rounded form."""
        kept = "keep=[critic]"
        if name not in quantizer.cfg.keep:
            raise UserError(
                "precision",
                quantizer.cfg.mode,
                "the critic's attention cannot be rounded",
                f"use another view, or precision.{kept}",
            )
        quantizer.names.append(name)

    def encode(self, obs: Tensor) -> Tensor:
        """Return the input of `outputs` from raw observations (..., D): normalized, and 1 if a robot takes part."""
        present = (obs != 0).any(-1, keepdim=True).to(obs.dtype)
        return torch.cat((obs if self.normalizer is None else self.normalizer(obs), present), dim=-1)

    def outputs(self, x: Tensor, past: Any = None) -> Tensor:
        """Map encoded observations (B, F) of whole worlds to the values (B, 1) of their robots."""
        own = nn.functional.elu(self.embed(x[..., :-1]))
        present = x[..., -1].view(-1, 1, 1, self.group_size) > 0
        # A world without anyone attends to itself: no row of weights may be empty.
        seen = present | ~present.any(-1, keepdim=True)
        queries, keys, values = (
            part.view(-1, self.group_size, self.HEADS, part.shape[-1] // self.HEADS).transpose(1, 2)
            for part in self.attend(own).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        return self.body(torch.cat((own, mixed.transpose(1, 2).reshape(own.shape)), dim=-1))
