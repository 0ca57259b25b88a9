"""The model of a world: what a control step changes, from the privileged observation and the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.config import NetworkCfg
from robot_rl.learn.algorithms.world_model.passes import Passes
from robot_rl.learn.networks.layout import Mirror
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.networks.symmetry import SymmetricMlp
from robot_rl.learn.ranks import Ranks

MARGIN = 1.0
"""By how many ranges of what was seen an imagined step may go beyond it."""
CHANGE_MARGIN = 0.1
"""Likewise for a predicted change."""
CONTACTS, CONTACT_FORCES = "contacts", "contact forces"
"""Parts of a change that are a probability, and at least zero."""


class Range(nn.Module):
    """The least and the greatest of everything seen so far, by component.

    Attributes:
        low: (D,) the least; above `high` as long as nothing was seen.
        high: (D,) the greatest.
        margin: how many ranges beyond them still count as known.
    """

    low: Tensor
    high: Tensor

    def __init__(self, size: int, margin: float) -> None:
        super().__init__()
        self.margin = margin
        self.register_buffer("low", torch.full((size,), torch.inf))
        self.register_buffer("high", torch.full((size,), -torch.inf))

    @torch.no_grad()
    def update(self, x: Tensor, valid: Tensor, ranks: Ranks) -> None:
        """Include the valid (B,) rows of vectors (B, D) of all ranks."""
        not_seen = ~valid[:, None]
        both = torch.cat((-x.masked_fill(not_seen, torch.inf), x.masked_fill(not_seen, -torch.inf)), 1)
        negative_low, high = ranks.max_(both.amax(0)).chunk(2)
        torch.minimum(self.low, -negative_low, out=self.low)
        torch.maximum(self.high, high, out=self.high)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest that still counts as known, (D,) each; all, before anything was seen."""
        margin = self.margin * (self.high - self.low).clamp(min=0.0)
        return torch.minimum(self.low, self.high) - margin, torch.maximum(self.low, self.high) + margin

    def leaves(self, x: Tensor) -> Tensor:
        """Return (...) whether vectors (..., D) are beyond these bounds."""
        low, high = self.bounds()
        return ((x < low) | (x > high)).any(-1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a model maps: components of an observation, of an action, and the columns of a change by what they are."""

    obs: int
    action: int
    parts: Mapping[str, slice]


class Dynamics(nn.Module):
    """A perceptron that predicts changes in their own deviations.

    Attributes:
        parts: columns of a change by what they are.
        inputs: normalizes the observation.
        outputs: mean and deviation of the changes.
        known: the range of observations, and `possible` that of changes.
    """

    def __init__(
        self, sizes: Sizes, hidden: Sequence[int], seed: int, mirrors: Mapping[str, Mirror] | None = None
    ) -> None:
        """Begin with the mean of all changes as the prediction.

        Args:
            sizes: of observations, actions and changes.
            hidden: hidden layers.
            seed: of the weights.
            mirrors: of "critic", "action" and "change", for a model that is mirror-equivariant; else None.
        """
        super().__init__()
        self.parts = dict(sizes.parts)
        size = max(part.stop for part in self.parts.values())
        seen = None if mirrors is None else mirrors["critic"]
        self.inputs = Normalizer(sizes.obs, seen)
        self.outputs = Normalizer(size, None if mirrors is None else mirrors["change"])
        self.known, self.possible = Range(sizes.obs, MARGIN), Range(size, CHANGE_MARGIN)
        generator = torch.Generator().manual_seed(seed)
        cfg = NetworkCfg(hidden=tuple(hidden), activation="silu", output_gain=0.01)
        if mirrors is None:
            self.body: Any = Mlp(sizes.obs + sizes.action, size, cfg, generator)
        else:
            (perm, sign), (perm_2, sign_2) = mirrors["critic"], mirrors["action"]
            both = torch.cat((perm, perm_2 + sizes.obs)), torch.cat((sign, sign_2))
            self.body = SymmetricMlp(both, mirrors["change"], cfg, generator)

    def refresh(self) -> None:
        """Recompute what is not part of the state, after its tensors were replaced."""
        self.inputs.refresh()
        self.outputs.refresh()

    def raw(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the network's output (B, P): normalized changes, and the contacts' logits."""
        return self.body.plain(self.body.encode(torch.cat((self.inputs(obs), action), 1)))

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return changes (B, P) at raw observations (B, D) and actions (B, A)."""
        return Prediction(self).forward(obs, action)

    def loss(self, obs: Tensor, action: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        """Return the loss () of predictions of changes (B, P), each row with a weight (B,)."""
        out = self.raw(obs, action)
        each = nn.functional.smooth_l1_loss(out, self.outputs(change), reduction="none")
        if CONTACTS in self.parts:
            contacts = self.parts[CONTACTS]
            crossed = nn.functional.binary_cross_entropy_with_logits(
                out[:, contacts], change[:, contacts], reduction="none"
            )
            each = torch.cat((each[:, : contacts.start], crossed, each[:, contacts.stop :]), 1)
        return (each.mean(1) * weight).sum() / weight.sum().clamp(min=1.0)


class Prediction:
    """Changes that a model predicts in step after step, with the weights that it has at their beginning.

    Contacts are 0 or 1, as in the simulator; their gradient is that of the probability. Without one there is no force.
    No change is beyond the range of those that were seen; a gradient goes on through the bound.
    """

    def __init__(self, model: Dynamics) -> None:
        layers = [(weight.detach(), bias.detach()) for weight, bias in model.body.deployed()]
        deviation, mean = 1.0 / model.outputs.scale, model.outputs.mean.clone()
        self._contacts = model.parts.get(CONTACTS, slice(0, 0))
        self._forces = model.parts.get(CONTACT_FORCES, slice(0, 0))
        deviation[self._contacts], mean[self._contacts] = 1.0, 0.0
        weight, bias = layers[-1]
        layers[-1] = (weight * deviation[:, None], bias * deviation + mean)
        self._low, self._high = model.possible.bounds()
        self._low[self._contacts], self._high[self._contacts] = -torch.inf, torch.inf  # They are logits.
        self._passes = Passes(layers, "silu", model.inputs)
        self._slopes: list[tuple[Tensor, Tensor]] = []
        self._size = len(model.inputs.scale)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return changes (B, P) at raw observations (B, D) and actions (B, A)."""
        out = self._passes.forward(torch.cat((obs, action), 1)).clamp_(self._low, self._high)
        if self._contacts.stop:
            chance, forces = torch.sigmoid(out[:, self._contacts]), out[:, self._forces]
            touches = (chance > 0.5).to(out.dtype)
            pushes = touches * (forces > 0.0)
            self._slopes.append((chance * (1.0 - chance), pushes))
            out[:, self._contacts] = touches
            forces *= pushes
        return out

    def back(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients at observations (B, D) and actions (B, A), from that of the changes, which it changes.

        It is for the last step that has not gone back.
        """
        if self._contacts.stop:
            slope, pushes = self._slopes.pop()
            grad[:, self._contacts] *= slope
            grad[:, self._forces] *= pushes
        found = self._passes.back(grad)
        return found[:, : self._size], found[:, self._size :]
