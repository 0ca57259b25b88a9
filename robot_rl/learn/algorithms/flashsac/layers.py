"""Layers with bounded weights and features: unit weights, batch normalization before each nonlinearity.

Every layer is an ensemble of E independent ones: the critics are two, the policy one. After each
gradient step `project` puts the weights back onto their spheres, so that no weight grows and the step size keeps its
meaning (FlashSAC, section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

MOMENTUM = 0.1
"""Share of a batch in the running statistics."""
EPSILON = 1e-5


class UnitLinear(nn.Module):
    """Linear maps with rows of length 1.

    Attributes:
        weight: (E, out, in).
        bias: (E, out); None without one.
    """

    def __init__(
        self, members: int, in_dim: int, out_dim: int, generator: torch.Generator | None, *, bias: bool = False
    ) -> None:
        """Build the maps, orthogonal at the start.

        Args:
            members: maps E.
            in_dim: components of the input.
            out_dim: components of the output.
            generator: source of the weights.
            bias: add a bias, 0 at the start.
        """
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, out_dim, in_dim))
        for weight in self.weight.data:
            nn.init.orthogonal_(weight, generator=generator)
        self.bias = nn.Parameter(torch.zeros(members, out_dim)) if bias else None
        self.project()

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Map E inputs (B, in) to E outputs (B, out)."""
        biases = [None] * len(xs) if self.bias is None else self.bias.unbind()
        return [functional.linear(x, w, b) for x, w, b in zip(xs, self.weight.unbind(), biases, strict=True)]

    @torch.no_grad()
    def project(self) -> None:
        """Give every row length 1."""
        self.weight.div_(torch.linalg.vector_norm(self.weight, dim=-1, keepdim=True).clamp(min=1e-8))


class UnitBatchNorm(nn.Module):
    """Batch normalization where scales and biases together have length sqrt(D).

    Attributes:
        scale: (E, D).
        bias: (E, D).
        mean: (E, D) running mean.
        var: (E, D) running variance.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, members: int, size: int) -> None:
        """Begin with the identity.

        Args:
            members: normalizations E.
            size: components D.
        """
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, size))
        self.bias = nn.Parameter(torch.zeros(members, size))
        self.register_buffer("mean", torch.zeros(members, size))
        self.register_buffer("var", torch.ones(members, size))

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Normalize E inputs (B, D): by the batch while training, by the running statistics otherwise."""
        parts = (self.mean.unbind(), self.var.unbind(), self.scale.unbind(), self.bias.unbind())
        return [
            functional.batch_norm(x, *part, training=self.training, momentum=MOMENTUM, eps=EPSILON)
            for x, *part in zip(xs, *parts, strict=True)
        ]

    def affine(self) -> tuple[Tensor, Tensor]:
        """Return factor and offset (E, D) of the normalization by the running statistics."""
        factor = self.scale * torch.rsqrt(self.var + EPSILON)
        return factor, self.bias - self.mean * factor

    @torch.no_grad()
    def project(self) -> None:
        """Give scale and bias together length sqrt(D)."""
        square = self.scale.square().sum(-1, keepdim=True) + self.bias.square().sum(-1, keepdim=True)
        factor = math.sqrt(self.scale.shape[-1]) * torch.rsqrt(square + 1e-8)
        self.scale.mul_(factor)
        self.bias.mul_(factor)


class ResidualBlock(nn.Module):
    """An inverted residual block: x + relu(norm(V relu(norm(W x)))), wider inside than outside."""

    def __init__(self, members: int, width: int, expansion: int, generator: torch.Generator | None) -> None:
        """Build the block.

        Args:
            members: blocks E.
            width: components outside.
            expansion: components inside, in widths.
            generator: source of the weights.
        """
        super().__init__()
        self.up = UnitLinear(members, width, width * expansion, generator)
        self.up_norm = UnitBatchNorm(members, width * expansion)
        self.down = UnitLinear(members, width * expansion, width, generator)
        self.down_norm = UnitBatchNorm(members, width)

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Map E inputs (B, width) to E outputs of the same shape."""
        ys = [torch.relu_(y) for y in self.up_norm(self.up(xs))]
        return [x + torch.relu_(y) for x, y in zip(xs, self.down_norm(self.down(ys)), strict=True)]


class Trunk(nn.Module):
    """An embedding, residual blocks, features of root mean square 1, and a linear head."""

    def __init__(
        self,
        members: int,
        in_dim: int,
        out_dim: int,
        *,
        width: int,
        blocks: int,
        expansion: int,
        generator: torch.Generator | None,
    ) -> None:
        """Build the layers.

        Args:
            members: networks E that see the same and share nothing.
            in_dim: components of the input.
            out_dim: components of the output.
            width: units of the residual blocks.
            blocks: residual blocks.
            expansion: inner units of a block, in widths.
            generator: source of the weights.
        """
        super().__init__()
        self.members = members
        self.norm = UnitBatchNorm(members, in_dim)
        self.embed = UnitLinear(members, in_dim, width, generator)
        self.blocks = nn.ModuleList(ResidualBlock(members, width, expansion, generator) for _ in range(blocks))
        self.head = UnitLinear(members, width, out_dim, generator, bias=True)

    def forward(self, x: Tensor, rows: slice = slice(None)) -> Tensor:
        """Map (B, in) to (E, R, out): the `rows` of the outputs, of a batch that is normalized as a whole."""
        ys = self.embed(self.norm([x] * self.members))
        for block in self.blocks:
            ys = block(ys)
        ys = [y[rows] for y in ys]
        return torch.stack(self.head([y * torch.rsqrt(y.square().mean(-1, keepdim=True) + EPSILON) for y in ys]))

    def project(self) -> None:
        """Put every weight back onto its sphere."""
        for layer in self.modules():
            if isinstance(layer, (UnitLinear, UnitBatchNorm)):
                layer.project()

    def dense(self) -> nn.Module:
        """Return the first network as plain linear layers, with the running statistics folded into them."""
        return _Dense(self)


class _Dense(nn.Module):
    """A trunk in evaluation mode: linear layers, rectifiers, sums, and a root mean square."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        factor, offset = (part[0] for part in trunk.norm.affine())
        weight = trunk.embed.weight[0]
        self.embed = _linear(weight * factor, weight @ offset)
        pairs = []
        for block in trunk.blocks:
            assert isinstance(block, ResidualBlock)
            pairs += [_folded(block.up, block.up_norm), _folded(block.down, block.down_norm)]
        self.pairs = nn.ModuleList(pairs)
        assert trunk.head.bias is not None
        self.head = _linear(trunk.head.weight[0], trunk.head.bias[0])
        width = self.embed.out_features
        self.average = _linear(torch.full((1, width), 1.0 / width), torch.full((1,), EPSILON))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in) to (B, out)."""
        y = self.embed(x)
        for up, down in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            y = y + torch.relu(down(torch.relu(up(y))))
        return self.head(y / torch.sqrt(self.average(y * y)))


def _folded(linear: UnitLinear, norm: UnitBatchNorm) -> nn.Linear:
    factor, offset = norm.affine()
    return _linear(linear.weight[0] * factor[0][:, None], offset[0])


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = cast("nn.Linear", nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0]))
    layer.load_state_dict({"weight": weight.detach().cpu(), "bias": bias.detach().cpu()})
    return layer
