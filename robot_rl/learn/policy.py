"""The policy of a finished run."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn import build
from robot_rl.learn.algorithms import learner_code, read_learner
from robot_rl.learn.checkpoints.checkpoint import check_shapes, good_checkpoint, load_checkpoint
from robot_rl.learn.checkpoints.description import need
from robot_rl.learn.dims import EnvSpec, mirrors_from_meta
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.settings import LearnerCfg


class TrainedPolicy:
    """A trained policy for evaluation: observations in, mean actions out; a memory needs `reset` at episode ends.

    Attributes:
        actor: the network, on the device of the observations.
        meta: the checkpoint's description.
        path: the checkpoint.
    """

    def __init__(self, actor: Actor, meta: dict[str, Any], path: Path) -> None:
        self.actor, self.meta, self.path = actor, meta, path
        self._state: Tensor | None = None

    @torch.no_grad()
    def __call__(self, obs: TensorDict) -> Tensor:
        """Return actions without noise (N, A) at observations of N worlds, and advance the memory by one step."""
        layout, worlds = self.actor.layout, obs.batch_size[0]
        device = obs[layout.spans[0].group].device
        if self.actor.memory is not None and (self._state is None or self._state.shape[0] != worlds):
            self._state = torch.zeros(worlds, self.actor.state_size, device=device)
        return self.actor.mean(layout.gather(obs, torch.empty(worlds, layout.size, device=device)), self._state)

    def reset(self, done: Tensor | None = None) -> None:
        """Clear the memory of these worlds (N,) bool, or of all if None."""
        if done is None:
            self._state = None
        elif self._state is not None:
            self._state.masked_fill_(done.to(self._state.device, torch.bool)[:, None], 0.0)


def make_policy(
    run_dir: Path, checkpoint: Path | None = None, device: torch.device | str = "cpu", *, code: Collection[str] = ()
) -> TrainedPolicy:
    """Load the policy of a run, by default of its newest checkpoint that is whole.

    Raises UserError if the checkpoint is missing or damaged, or its learner's settings would import a "module:name"
    that is not in `code`.
    """
    path = Path(checkpoint) if checkpoint is not None else good_checkpoint(run_dir)
    tensors, meta = load_checkpoint(path)
    need(path, meta, "learner", "dims")
    _require_code(path, meta["learner"], code)
    state = {name.removeprefix("actor."): t for name, t in tensors.items() if name.startswith("actor.")}
    return build_policy(read_learner(meta["learner"]), meta, state, path, device)


def build_policy(
    cfg: LearnerCfg,
    meta: dict[str, Any],
    state: Mapping[str, Tensor],
    path: Path,
    device: torch.device | str = "cpu",
) -> TrainedPolicy:
    """Build the policy of a learner from its network's tensors.

    Args:
        cfg: The learner's settings.
        meta: The description, of which "dims" and "mirror" are needed.
        state: The tensors by name.
        path: Where they are from, for messages.
        device: Where the policy is evaluated.

    Raises:
        UserError: They do not fit the description.
    """
    try:
        actor: Actor = build.make_actor(cfg, EnvSpec(**meta["dims"]), mirrors_from_meta(meta))
    except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"checkpoint {path}: no network fits its description ({error})") from error
    here, wanted = ({f"actor.{name}": t for name, t in part.items()} for part in (state, actor.state_dict()))
    check_shapes(path, here, wanted)
    actor.load_state_dict(state)
    return TrainedPolicy(actor.to(device).eval(), meta, path)


def _require_code(path: Path, learner: Mapping[str, Any], code: Collection[str]) -> None:
    """Refuse a checkpoint with a learner that would import code which is not allowed."""
    for text in learner_code(learner.get("name"), learner):
        if text not in code and text.partition(":")[0] not in sys.modules:  # What is imported runs no second time.
            raise UserError(f"checkpoint {path}: would import {text}; give trust=true if you know that code")
