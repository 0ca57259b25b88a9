"""Begin some worlds of an environment anew while the others go on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tensordict import TensorDict

    from robot_rl_envs.env import Env


def restart(env: Env, mask: torch.Tensor) -> TensorDict:
    """Reset the worlds of a mask.

    The stage that resets a world also observes the others, which would push their history a second time: what they
    were before is put back. A camera need not be: in one step it takes the same picture twice.

    Args:
        env: the environment.
        mask: (N,) bool, the worlds to reset, on the environment's device.

    Returns:
        The observation groups (N, ...); those of the other worlds are what they were.
    """
    state = env.state
    kept = [(tensor, tensor.clone()) for tensor in _worlds(env)]
    state.terminated.copy_(mask)
    state.time_out.zero_()
    state.dirty.zero_()
    state.counter.add_(mask.to(state.counter.dtype))
    env._observe_first.launch()
    env._look_again()
    env._torch_terms.observe(env._out_torch, mask)
    env.engine.write_back(env._arrays["dirty"])
    env._images.update()
    state.terminated.zero_()
    for tensor, before in kept:
        tensor.copy_(_where(mask, tensor, before))
    env._results.fill(state)
    return env.get_observations()


def _worlds(env: Env) -> Iterator[torch.Tensor]:
    """Everything that has a row for each world; a table that happens to be as long is put back as it was."""
    for tensor in (*(getattr(env.state, name) for name in dir(env.state)), *env._out_torch.values()):
        if tensor.ndim and tensor.shape[0] == env.num_envs:
            yield tensor


def _where(mask: torch.Tensor, now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return torch.where(mask.view(-1, *(1,) * (now.ndim - 1)), now, before)
