"""Which components of a network's flat observation belong to which observation group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError, suggest

Mirror = tuple[Tensor, Tensor]
"""Permutation (D,) int64 and sign (D,): mirrored = x[..., permutation] * sign. Applied twice it is the identity."""


def join_mirrors(mirrors: Sequence[Mirror]) -> Mirror:
    """Return the mirror of vectors that are put after one another, each mirrored within itself."""
    starts = accumulate((len(perm) for perm, _ in mirrors), initial=0)
    perms = [perm + start for start, (perm, _) in zip(starts, mirrors, strict=False)]
    return torch.cat(perms), torch.cat([sign for _, sign in mirrors])


@dataclass(frozen=True, slots=True)
class Span:
    """The components of one group, or of a term of one.

    Attributes:
        group: its name; of a term "group.term".
        start: first component.
        stop: component after the last.
        shape: its shape in the environment, without the worlds.
    """

    group: str
    start: int
    stop: int
    shape: tuple[int, ...]


class ObservationLayout:
    """Observation groups, each flattened, one after another.

    `shapes` has the shape of each group, without the worlds, in order; `terms` by "group.term" the first component
    within the group, then the shape. Terms of other groups are omitted.

    Attributes:
        spans: the groups in order.
        terms: parts of groups that have their own name and shape, as "group.term".
        size: components D in all.
    """

    def __init__(self, shapes: Mapping[str, Sequence[int]], terms: Mapping[str, Sequence[int]] | None = None) -> None:
        spans, start = [], 0
        for group, shape in shapes.items():
            stop = start + math.prod(shape)
            spans.append(Span(group, start, stop, tuple(int(n) for n in shape)))
            start = stop
        self.spans, self.size = tuple(spans), start
        self._flat = all(len(span.shape) == 1 for span in spans)
        begin = {span.group: span.start for span in spans}
        self.terms = tuple(
            Span(name, begin[group] + first, begin[group] + first + math.prod(shape), tuple(shape))
            for name, (first, *shape) in (terms or {}).items()
            if (group := name.rpartition(".")[0]) in begin
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each group, as the constructor takes it."""
        return {span.group: span.shape for span in self.spans}

    @property
    def names(self) -> list[str]:
        """Names of the groups and of their terms."""
        return [span.group for span in (*self.spans, *self.terms)]

    def find(self, name: str) -> Span | None:
        """Return the components of a group, or of a term of one; None for an unknown name."""
        return next((span for span in (*self.spans, *self.terms) if span.group == name), None)

    def gather(self, obs: TensorDict, out: Tensor) -> Tensor:
        """Write the groups of observations, (N, *shape) each, one after another into (N, D) and return it."""
        if self._flat:
            return torch.cat([obs[span.group] for span in self.spans], dim=-1, out=out)
        for span in self.spans:
            out[:, span.start : span.stop].copy_(obs[span.group].flatten(1))
        return out


def make_layout(
    obs: TensorDict, groups: Sequence[str], field: str, terms: Mapping[str, Sequence[int]] | None = None
) -> ObservationLayout:
    """Return the layout of some observation groups, which the setting `field` names; `terms` as of `ObservationLayout`.

    Raises UserError for a group that does not exist, is named twice or is empty.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    names = list(map(str, obs.keys()))
    for group in groups:
        if group not in names:
            raise UserError(f"{field}: the environment has no group '{group}', {suggest(group, names)}")
        if group in shapes:
            raise UserError(f"{field}: group '{group}' is named twice")
        shapes[group] = tuple(obs[group].shape[1:])
        if not shapes[group]:
            raise UserError(f"{field}: group '{group}' has shape {tuple(obs[group].shape)}, must be (num_envs, ...)")
    return ObservationLayout(shapes, terms)
