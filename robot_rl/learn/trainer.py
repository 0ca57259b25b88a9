"""Gradient steps of networks that learn beside the policy, with all that a checkpoint needs to go on to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.optim import FlatAdam
from robot_rl.learn.ranks import ALONE, Ranks

MAX_GRAD_NORM = 1.0
"""Norm that each network's gradient is clipped to."""
RANDOM = "random"


class Trainer(nn.Module):
    """Adam for the networks of an extra, and the random numbers that it draws; both are in the state dict.

    Attributes:
        optimizer: steps the networks, which are no submodules of this one.
        generator: source of random numbers on the networks' device.
    """

    def __init__(self, networks: Sequence[nn.Module], learning_rate: float, seed: int, *, ranks: Ranks = ALONE) -> None:
        """Take over networks.

        Args:
            networks: the networks, on their final device.
            learning_rate: Adam's step size.
            seed: of the random numbers.
            ranks: the processes whose gradients are averaged.
        """
        super().__init__()
        self.optimizer = FlatAdam(networks, learning_rate, MAX_GRAD_NORM, ranks=ranks)
        self.generator = torch.Generator(self.optimizer.params.device).manual_seed(seed)

    def step(self, loss: Tensor) -> None:
        """Take a step down a loss ()."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def draw(self, count: int, below: int) -> Tensor:
        """Return indices (count,), uniform in [0, below)."""
        return torch.randint(below, (count,), generator=self.generator, device=self.generator.device)

    def shuffle(self, count: int) -> Tensor:
        """Return the indices (count,) in random order."""
        return torch.randperm(count, generator=self.generator, device=self.generator.device)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, tensor in self.optimizer.state_dict().items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        destination[prefix + RANDOM] = self.generator.get_state()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
        names = self.optimizer.state_dict()
        self.optimizer.load_state_dict({name: state_dict[prefix + name] for name in names})
        self.generator.set_state(state_dict[prefix + RANDOM].cpu())
