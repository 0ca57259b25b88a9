"""Left-right symmetry by networks that are mirror-equivariant by construction."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.cpu.mlp import FUSED_ACTIVATIONS, PairedLayer, Workspace, run_symmetric
from robot_rl.learn.networks.layout import Mirror
from robot_rl.learn.networks.mlp import Affine, Perceptron, affines, make_activation, make_weights
from robot_rl.settings import NetworkCfg


def reflect(x: Tensor, mirror: Mirror) -> Tensor:
    """Return the mirror image of vectors (..., D)."""
    return x[..., mirror[0]] * mirror[1]


def check_mirror(name: str, mirror: Mirror, size: int) -> Mirror:
    """Return a mirror as (int64, float32) on the CPU; raise UserError unless it fits `size` and is its own inverse."""
    perm, sign = mirror[0].detach().cpu().to(torch.int64), mirror[1].detach().cpu().to(torch.float32)
    if perm.shape != (size,) or sign.shape != (size,):
        raise UserError(
            f"mirror '{name}': permutation {tuple(perm.shape)} and sign {tuple(sign.shape)}, must be ({size},)"
        )
    if size and (int(perm.min()) < 0 or int(perm.max()) >= size):
        raise UserError(f"mirror '{name}': permutation holds {int(perm.max())}, must be indices in [0, {size - 1}]")
    wrong = ((perm[perm] != torch.arange(size)) | (sign.abs() != 1.0) | (sign * sign[perm] != 1.0)).tolist()
    if any(wrong):
        raise UserError(f"mirror '{name}': entry {wrong.index(True)} does not return to itself when mirrored twice")
    return perm, sign


class MirrorBasis(nn.Module):
    """Splits vectors into the part that a mirror keeps (even) and the part that it negates (odd).

    A component and its partner become half their sum and half their difference; a component that is its own partner is
    even or odd itself. Every factor is a power of two, so mirroring the vector negates the odd part to the bit.

    Attributes:
        num_even: even components.
        split: (D, D) x @ split.T = [even, odd].
        join: (D, D) [even, odd] @ join.T = x.
        unpaired: (D,) true at the components of [even, odd] that stem from a component without a partner.
    """

    split: Tensor
    join: Tensor

    def __init__(self, mirror: Mirror) -> None:
        super().__init__()
        perm, sign = mirror[0].tolist(), mirror[1].tolist()
        size = len(perm)
        even = [i for i in range(size) if perm[i] > i or (perm[i] == i and sign[i] > 0)]
        odd = [i for i in range(size) if perm[i] > i or (perm[i] == i and sign[i] < 0)]
        split, join = torch.zeros(size, size), torch.zeros(size, size)
        for row, i in enumerate(even + odd):
            j, is_odd = perm[i], row >= len(even)
            if i == j:
                split[row, i] = join[i, row] = 1.0
                continue
            side = -sign[i] if is_odd else sign[i]
            split[row, i], split[row, j] = 0.5, 0.5 * side
            join[i, row], join[j, row] = 1.0, side
        self.num_even, self.num_odd = len(even), len(odd)
        self.unpaired = torch.tensor([perm[i] == i for i in even + odd], dtype=torch.bool)
        self.register_buffer("split", split, persistent=False)
        self.register_buffer("join", join, persistent=False)


class SymmetricMlp(Perceptron):
    """A multilayer perceptron f with f(M x) = M' f(x) to the bit, at half the arithmetic of a plain one of its width.

    The hidden units come in mirrored pairs (p, q). A linear map that treats both sides alike is block-diagonal in the
    even and odd parts (p + q) / 2 and (p - q) / 2, so each layer is two products of half the width; only the activation
    takes p and q themselves. Averaging a plain network over both views (as in Abdolhosseini et al. 2019) costs twice a
    plain one instead.

    Attributes:
        even: linear maps of the even parts.
        odd: weights of the odd parts; they are without bias, which a mirror would negate.
    """

    def __init__(
        self, mirror_in: Mirror, mirror_out: Mirror, cfg: NetworkCfg, generator: torch.Generator | None = None
    ) -> None:
        """Build the layers; raise UserError for an odd hidden width."""
        super().__init__()
        for width in cfg.hidden:
            if width % 2:
                raise UserError(f"hidden: {width} is odd, a symmetric network needs even widths such as {width + 1}")
        self.basis_in, self.basis_out = MirrorBasis(mirror_in), MirrorBasis(mirror_out)
        halves = tuple(width // 2 for width in cfg.hidden)
        even = (self.basis_in.num_even, *halves, self.basis_out.num_even)
        odd = (self.basis_in.num_odd, *halves, self.basis_out.num_odd)
        self.even = nn.ModuleList(map(Affine, make_weights(even, cfg.output_gain, generator)))
        self.odd = nn.ParameterList(make_weights(odd, cfg.output_gain, generator))
        with torch.no_grad():  # Half a sum of partners is shorter by sqrt(2) than an unpaired component.
            factor = torch.where(self.basis_in.unpaired, 1.0 / math.sqrt(2.0), 1.0)
            affines(self.even)[0].weight.mul_(factor[: self.basis_in.num_even])
            self.odd[0].mul_(factor[self.basis_in.num_even :])
        self.activation = make_activation(cfg.activation)
        self.work = Workspace(cfg.activation, max(cfg.hidden))
        self._is_invariant = self.basis_out.num_odd == 0 and bool(self.basis_out.unpaired.all())

    def encode(self, x: Tensor) -> Tensor:
        """Return the input of `forward` from normalized observations (..., D): their even and odd parts, concatenated.

        Converted layers take the observations themselves.
        """
        return x @ self.basis_in.split.T if self.arithmetic is None else x

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded inputs (B, D) to outputs (B, out_dim)."""
        if self.arithmetic is not None:
            return self.converted(x)
        if x.device.type != "cpu" or self.work.activation not in FUSED_ACTIVATIONS:
            return self.plain(x)
        out = run_symmetric(self.work, x, self._layers())
        return out if self._is_invariant else out @ self.basis_out.join.T

    def plain(self, x: Tensor) -> Tensor:
        """Compute `forward` with PyTorch's own operations: any device, any activation, any number of passes at once."""
        even, odd = x.split((self.basis_in.num_even, self.basis_in.num_odd), dim=-1)
        *hidden, (last_even, last_odd) = zip(self.even, self.odd, strict=True)
        for layer_even, weight_odd in hidden:
            a, b = layer_even(even), odd @ weight_odd.T
            p, q = self.activation(a + b), self.activation(a - b)
            even, odd = 0.5 * (p + q), 0.5 * (p - q)
        if self._is_invariant:
            return last_even(even)
        return torch.cat((last_even(even), odd @ last_odd.T), dim=-1) @ self.basis_out.join.T

    def deployed(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of each layer of the plain perceptron that computes the same."""
        parts: list[tuple[Tensor, Tensor]] = []
        last = len(self.even) - 1
        for i, (even, bias, odd) in enumerate(self._layers()):
            split = self.basis_in.split if i == 0 else 0.5 * _sums(even.shape[1], even.device)
            join = self.basis_out.join if i == last else _sums(even.shape[0], even.device)
            both = torch.cat((bias, torch.zeros(odd.shape[0], device=odd.device)))
            parts.append((join @ torch.block_diag(even, odd) @ split, join @ both))
        return parts

    def _layers(self) -> list[PairedLayer]:
        pairs = zip(affines(self.even), self.odd, strict=True)
        return [(even.weight, even.bias, odd) for even, odd in pairs]


def _sums(half: int, device: torch.device) -> Tensor:
    """Return the matrix (2 half, 2 half) that maps [a, b] to [a + b, a - b]."""
    eye = torch.eye(half, device=device)
    return torch.cat((torch.cat((eye, eye), 1), torch.cat((eye, -eye), 1)))
