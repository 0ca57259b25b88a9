"""The model of a world: the changes of a control step, from the privileged observation and the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.algorithms.world_model.passes import Passes
from robot_rl.learn.networks.layout import Mirror, join_mirrors
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.learn.networks.normalizer import EPSILON, Normalizer
from robot_rl.learn.networks.symmetry import SymmetricMlp
from robot_rl.learn.ranks import ProcessGroup
from robot_rl.settings import NetworkCfg

MARGIN = 1.0
"""By how many ranges of the values seen an imagined step may go beyond them."""
CHANGE_MARGIN = 0.1
"""Likewise for a predicted change."""
RARE = 0.1
"""Share of a component's range over whole episodes; one that covers less of it before their ends is known from all."""
CONTACTS, CONTACT_FORCES = "contacts", "contact forces"
"""Parts of a change that are a probability, and at least zero."""
ENDS = "ends"
"""The last column of a model's prediction: whether the step ends the episode. Its probability has a gradient."""
STILL = 1e-3
"""A change of gated columns up to this magnitude, in their own units, is none."""
WATCHED = "engine_"
"""Prefix of the names of parts that are MuJoCo's own fields."""


class Range(nn.Module):
    """The least and the greatest of everything seen so far, by component.

    Attributes:
        low: (D,) the least; above `high` as long as nothing was seen.
        high: (D,) the greatest.
        margin: how many ranges beyond them still count as known.
        least: the least range that counts; without it any prediction of a component that hardly varied is beyond.
    """

    low: Tensor
    high: Tensor

    def __init__(self, size: int, margin: float, least: float = 0.0) -> None:
        super().__init__()
        self.margin, self.least = margin, least
        self.register_buffer("low", torch.full((size,), torch.inf))
        self.register_buffer("high", torch.full((size,), -torch.inf))

    @torch.no_grad()
    def update(self, x: Tensor, valid: Tensor, ranks: ProcessGroup) -> None:
        """Include the valid (B,) rows of vectors (B, D) of all ranks."""
        not_seen = ~valid[:, None]
        both = torch.cat((-x.masked_fill(not_seen, torch.inf), x.masked_fill(not_seen, -torch.inf)), 1)
        negative_low, high = ranks.max_(both.amax(0)).chunk(2)
        torch.minimum(self.low, -negative_low, out=self.low)
        torch.maximum(self.high, high, out=self.high)

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the least and the greatest that still counts as known, (D,) each; all, before anything was seen."""
        margin = self.margin * (self.high - self.low).clamp(min=self.least)
        return torch.minimum(self.low, self.high) - margin, torch.maximum(self.low, self.high) + margin


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model's inputs and outputs.

    Attributes:
        obs: components of an observation, with the speeds that it does not tell.
        action: of an action.
        parts: columns of a change by their meaning.
        context: how many numbers there are that no step changes.
        gates: groups of columns of a change that are zero in many steps, such as those of an object that nothing moves.
    """

    obs: int
    action: int
    parts: Mapping[str, slice]
    context: int = 0
    gates: Sequence[Sequence[int]] = ()


class Dynamics(nn.Module):
    """A perceptron that predicts changes in their own deviations.

    Attributes:
        parts: columns of a change by their meaning, and of the episode's end.
        gates: the probabilities, after the other columns, that groups of columns change at all.
        gated: (G, P) 1 for the columns of each.
        inputs: normalizes the observation and the context after it.
        outputs: mean and deviation of the changes.
        known: the range of observations before a step, `reached` that with those at the ends of episodes.
        possible: the range of changes.
        shares: (P + 1 + G,) weight of each column in the loss, 1 in all.
    """

    shares: Tensor
    gated: Tensor

    def __init__(
        self, sizes: Sizes, hidden: Sequence[int], seed: int, mirrors: Mapping[str, Mirror] | None = None
    ) -> None:
        """Begin with the mean of all changes as the prediction.

        Args:
            sizes: of observations, actions and changes.
            hidden: hidden layers.
            seed: of the weights.
            mirrors: of "seen" (observation and context), "action" and "change", for a model that is mirror-equivariant;
                else None.
        """
        super().__init__()
        end = max(part.stop for part in sizes.parts.values())
        self.parts = {**sizes.parts, ENDS: slice(end, end + 1)}
        size = end + 1
        self.gates = slice(size, size + len(sizes.gates))
        gated = torch.zeros(len(sizes.gates), end)
        for gate, columns in zip(gated, sizes.gates, strict=True):
            gate[list(columns)] = 1.0
        self.register_buffer("gated", gated, persistent=False)
        self.size, width = sizes.obs, sizes.obs + sizes.context
        self.inputs = Normalizer(width, None if mirrors is None else mirrors["seen"])
        same = torch.zeros(1, dtype=torch.int64), torch.ones(1)
        changed = None if mirrors is None else join_mirrors([mirrors["change"], same])
        self.outputs = Normalizer(size, changed)
        self.register_buffer("shares", _shares(self.parts, self.gates.stop), persistent=False)
        self.known, self.reached = (Range(sizes.obs, MARGIN, EPSILON) for _ in range(2))
        self.possible = Range(end, CHANGE_MARGIN)
        generator = torch.Generator().manual_seed(seed)
        cfg = NetworkCfg(hidden=tuple(hidden), activation="silu", output_gain=0.01)
        if mirrors is None or changed is None:
            self.body: Any = Mlp(width + sizes.action, self.gates.stop, cfg, generator)
        else:
            self.body = SymmetricMlp(join_mirrors([mirrors["seen"], mirrors["action"]]), changed, cfg, generator)

    def refresh(self) -> None:
        """Recompute the tensors that are not part of the state, after those of the state were replaced."""
        self.inputs.refresh()
        self.outputs.refresh()

    def leaves(self, obs: Tensor) -> Tensor:
        """Return (...) whether observations (..., D) are beyond the known range.

        Components that hardly vary before an end, such as a force on the head, are known from the ends: without them
        each prediction that is not exactly zero would be beyond.
        """
        low, high = self.known.bounds()
        end_low, end_high = self.reached.bounds()
        is_rare = self.known.high - self.known.low < RARE * (self.reached.high - self.reached.low)
        low, high = torch.where(is_rare, end_low, low), torch.where(is_rare, end_high, high)
        return ((obs < low) | (obs > high)).any(-1)

    def raw(self, seen: Tensor, action: Tensor) -> Tensor:
        """Return the network's output (B, P + 1 + G): normalized changes; logits of contacts, of the end, of gates.

        Args:
            seen: (B, D + C) observations and context.
            action: (B, A).
        """
        return self.body.plain(self.body.encode(torch.cat((self.inputs(seen), action), 1)))

    def forward(self, seen: Tensor, action: Tensor) -> Tensor:
        """Return the changes (B, P) of `Prediction`, for arguments of `raw`, with a gradient by the weights."""
        out = self.raw(seen, action)
        low, high = self.possible.bounds()
        change = self.outputs.inverse(out[:, : self.gates.start])[:, :-1]
        change = change.clamp(low, high).detach() + (change - change.detach())  # In this order to the bit.
        if len(self.gated):
            chance = torch.sigmoid(out[:, self.gates])
            opens = (chance > 0.5).to(chance.dtype) + (chance - chance.detach())
            change = change * (opens @ self.gated + (1.0 - self.gated.sum(0)))
        if CONTACTS not in self.parts:
            return change
        contacts, forces = self.parts[CONTACTS], self.parts[CONTACT_FORCES]
        chance = torch.sigmoid(out[:, contacts])
        touches = (chance > 0.5).to(chance.dtype) + (chance - chance.detach())
        pushed = change[:, forces].clamp(min=0.0) * touches.detach()
        return torch.cat((change[:, : contacts.start], touches, pushed, change[:, forces.stop :]), 1)

    def loss(self, seen: Tensor, action: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        """Return the loss () of predictions of changes and ends (B, P + 1), each row with a weight (B,)."""
        out = self.raw(seen, action)
        size = self.gates.start
        each = nn.functional.smooth_l1_loss(out[:, :size], self.outputs(change), reduction="none").clone()
        if len(self.gated):
            opens = ((change[:, None, :-1].abs() > STILL) & (self.gated > 0.0)).any(-1).to(out.dtype)
            # Where nothing changed there is nothing to be learned of how much.
            each[:, :-1] *= opens @ self.gated + (1.0 - self.gated.sum(0))
            found = nn.functional.binary_cross_entropy_with_logits(out[:, self.gates], opens, reduction="none")
            each = torch.cat((each, found), 1)
        for columns in (self.parts[name] for name in (CONTACTS, ENDS) if name in self.parts):
            each[:, columns] = nn.functional.binary_cross_entropy_with_logits(
                out[:, columns], change[:, columns], reduction="none"
            )
        return ((each @ self.shares) * weight).sum() / weight.sum().clamp(min=1.0)


class Prediction:
    """Changes that a model predicts in step after step, with the weights that it has at their beginning.

    Contacts are 0 or 1, as in the simulator; their gradient is that of the probability. Without one the force is 0.
    So are gates: columns that one closes do not change; their gradient is that of the change it would have let through.
    No change is beyond the range of those that were seen; a gradient passes through the bound.
    """

    def __init__(self, model: Dynamics, context: Tensor) -> None:
        """Prepare for the weights that a model has now, and a context (B, C) that its steps keep."""
        layers = [(weight.detach(), bias.detach()) for weight, bias in model.body.deployed()]
        deviation, mean = 1.0 / model.outputs.scale, model.outputs.mean.clone()
        self._contacts, self._ends = model.parts.get(CONTACTS, slice(0, 0)), model.parts[ENDS]
        self._forces = model.parts.get(CONTACT_FORCES, slice(0, 0))
        for columns in (self._contacts, self._ends):  # They are logits.
            deviation[columns], mean[columns] = 1.0, 0.0
        logits = deviation.new_zeros(len(model.gated))
        deviation, mean = torch.cat((deviation, logits + 1.0)), torch.cat((mean, logits))
        weight, bias = layers[-1]
        layers[-1] = (weight * deviation[:, None], bias * deviation + mean)
        self._low, self._high = model.possible.bounds()
        self._gates, self._gated, self._free = model.gates, model.gated, 1.0 - model.gated.sum(0)
        more = mean.new_zeros(self._gates.stop - len(self._low))
        self._low, self._high = (torch.cat((bound, more)) for bound in (self._low, self._high))
        for columns in (self._contacts, self._ends, self._gates):
            self._low[columns], self._high[columns] = -torch.inf, torch.inf
        self._passes = Passes(layers, "silu", model.inputs)
        self._slopes: list[tuple[Tensor, Tensor]] = []
        self._chances: list[Tensor] = []
        self._opened: list[tuple[Tensor, Tensor, Tensor]] = []
        self._size, self._context = model.size, context

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return changes (B, P) at raw observations (B, D) and actions (B, A)."""
        out = self._passes.forward(torch.cat((obs, self._context, action), 1)).clamp_(self._low, self._high)
        if self._contacts.stop:
            chance, forces = torch.sigmoid(out[:, self._contacts]), out[:, self._forces]
            touches = (chance > 0.5).to(out.dtype)
            pushes = touches * (forces > 0.0)
            self._slopes.append((chance * (1.0 - chance), pushes))
            out[:, self._contacts] = touches
            forces *= pushes
        self._chances.append(torch.sigmoid(out[:, self._ends]))
        change = out[:, : self._ends.start]
        if len(self._gated):
            chance = torch.sigmoid(out[:, self._gates])
            opens = (chance > 0.5).to(out.dtype) @ self._gated + self._free
            self._opened.append((chance * (1.0 - chance), opens, change))
            change = change * opens
        return change

    def back(self, grad: Tensor, by_end: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients at observations (B, D) and actions (B, A), for the last step that has not gone back.

        Args:
            grad: Of the changes, (B, P); it is changed.
            by_end: Of the probability that the step ends the episode, (B,).
        """
        by_gates = grad.new_zeros(len(grad), 0)
        if len(self._gated):
            slope, opens, change = self._opened.pop()
            by_gates = (grad * change) @ self._gated.t() * slope
            grad *= opens
        if self._contacts.stop:
            slope, pushes = self._slopes.pop()
            grad[:, self._contacts] *= slope
            grad[:, self._forces] *= pushes
        chance = self._chances.pop()
        found = self._passes.back(torch.cat((grad, by_end[:, None] * chance * (1.0 - chance), by_gates), 1))
        return found[:, : self._size], found[:, self._size + self._context.shape[1] :]


def _shares(parts: Mapping[str, slice], size: int) -> Tensor:
    """Return the weight (P,) of each column in the loss: all that is only watched weighs at most as much as the state.

    MuJoCo's own fields are hundreds of numbers, which no next step depends on.
    """
    shares = torch.ones(size)
    watched = [columns for name, columns in parts.items() if name.startswith(WATCHED)]
    count = sum(columns.stop - columns.start for columns in watched)
    for columns in watched:
        shares[columns] = min(1.0, (size - count) / count)
    return shares / shares.sum()
