"""The weights of a network as one flat vector of bytes, as they are published."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _tensors(module: nn.Module) -> list[Tensor]:
    """Return parameters and buffers, also those that follow from others; the widest numbers first, for alignment."""
    return sorted((*module.parameters(), *module.buffers()), key=lambda tensor: -tensor.element_size())


@torch.no_grad()
def pack(module: nn.Module) -> Tensor:
    """Return the weights of a module as bytes (B,) on the CPU, a copy."""
    parts = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in _tensors(module)]
    return torch.cat(parts).cpu()


@torch.no_grad()
def unpack(vector: Tensor, module: nn.Module) -> None:
    """Overwrite the weights of a module by the output of `pack` of one of the same architecture.

    Raises:
        ValueError: The vector is of another architecture.
    """
    tensors = _tensors(module)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if vector.numel() != size:
        line = f"the weights are {vector.numel()} bytes, must be {size} for this network"
        raise ValueError(line)
    start = 0
    for tensor in tensors:
        end = start + tensor.numel() * tensor.element_size()
        tensor.copy_(vector[start:end].view(tensor.dtype).view(tensor.shape))
        start = end
