"""Adam over the parameters of several networks in one flat array, and a trainer of auxiliary networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup

MAX_GRAD_NORM = 1.0
"""Norm that each network's gradient is clipped to."""
RANDOM = "random"


class FlatAdam:
    """Fused Adam (Kingma & Ba 2015) with the step size on the device.

    All parameters become views of one array and all gradients views of another, so clearing, clipping and stepping are
    a few operations for any number of layers, and nothing is read back. All arrays stay in place from the first step to
    the last, as a CUDA graph requires.

    Attributes:
        params: (P,) every parameter, network after network.
        grads: (P,) their gradients.
        averaged_scalar: () a number that `reduce` averages over the ranks in the same message as the gradient.
        learning_rate: () step size; write to it in place.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        learning_rate: float,
        max_grad_norm: float,
        *,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        """Move the parameters of networks on their final device into the flat array; each is clipped separately."""
        groups = [[p for p in network.parameters() if p.requires_grad] for network in networks]
        everything = [p for group in groups for p in group]
        self.params = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in everything]))
        self._message = torch.zeros(self.params.numel() + 1, device=self.params.device)
        self.grads, self.averaged_scalar = self._message[:-1], self._message[-1]
        self.params.grad = self.grads
        self._clipped: list[Tensor] = []
        start = 0
        for group in groups:
            first = start
            for p in group:
                span = slice(start, start + p.numel())
                p.data = self.params.data[span].view_as(p)
                p.grad = self.grads[span].view_as(p)
                start += p.numel()
            self._clipped.append(self.grads[first:start])
        self.max_grad_norm, self.ranks = max_grad_norm, ranks
        self.learning_rate = torch.full((), learning_rate, device=self.params.device)
        on_cuda = self.params.device.type == "cuda"
        self._adam = torch.optim.Adam([self.params], lr=self.learning_rate, fused=True, capturable=on_cuda)
        self._moments = {
            "step": torch.zeros((), device=self.params.device),
            "exp_avg": torch.zeros_like(self.params.data),
            "exp_avg_sq": torch.zeros_like(self.params.data),
        }
        self._adam.state[self.params] = self._moments

    def zero_grad(self) -> None:
        """Set every gradient to zero."""
        self.grads.zero_()

    def step(self) -> None:
        """Average the gradient over the ranks, clip it network by network, and take a step."""
        self.reduce()
        self.apply()

    @torch.no_grad()
    def reduce(self) -> None:
        """Average the gradient and `averaged_scalar` over the ranks."""
        self.ranks.mean_(self._message)

    @torch.no_grad()
    def apply(self) -> None:
        """Clip the gradient network by network, and take a step."""
        for grads in self._clipped:
            norm = torch.linalg.vector_norm(grads)
            grads.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self._adam.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the moments (P,), the step count and the step size."""
        return {**self._moments, "learning_rate": self.learning_rate}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load the output of `state_dict`."""
        self.learning_rate.copy_(state["learning_rate"])
        for name, tensor in self._moments.items():
            tensor.copy_(state[name])


class Trainer(nn.Module):
    """Adam for the networks of an auxiliary objective, and its random numbers; both are in the state dict.

    The networks, on their final device, are not submodules of this one.
    """

    def __init__(
        self, networks: Sequence[nn.Module], learning_rate: float, seed: int, *, ranks: ProcessGroup = SINGLE_PROCESS
    ) -> None:
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
