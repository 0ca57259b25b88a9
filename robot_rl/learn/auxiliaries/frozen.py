"""A policy of another run that does not learn: a student's teacher, or a reference to stay near."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.checkpoints.checkpoint import META, latest_checkpoint
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.distributions import Categorical, Distribution, Params, kl_each
from robot_rl.learn.networks.layout import ObservationLayout, make_layout
from robot_rl.learn.networks.symmetry import Mirror
from robot_rl.learn.policy import TrainedPolicy, make_policy
from robot_rl.learn.rollout import Rollout

ACTS = "the teacher acts in rollouts; give teacher.mix=0 teacher.takeover=0, or leave roles.teacher= out"
"""Why a teacher cannot be evaluated a rollout at a time elsewhere."""
MIN_DEVIATION = 1e-3
"""Least deviation that errors are measured in [action units]."""


class FrozenPolicy:
    """A policy that is evaluated and does not learn.

    Its output for a state is a "label", the parameters of its distribution side by side: means and logarithms of
    deviations (B, 2 A), or the log-probabilities of every choice.

    Attributes:
        layout: the environment's groups that it sees, in the order of those that it was trained with.
        field: the settings that it stems from, for messages.
        size: components L of a label.
        checksum: sha256 of its weights, the normalizer's statistics among them.
    """

    def __init__(self, policy: TrainedPolicy, layout: ObservationLayout, field: str) -> None:
        self.policy, self.layout, self.field = policy, layout, field
        self.actor = policy.actor.requires_grad_(False)
        distribution = self.actor.distribution
        choices = distribution.choices if isinstance(distribution, Categorical) else ()
        self._choices = choices
        self.size = sum(choices) or 2 * distribution.action_dim
        self.checksum = _checksum(self.actor.state_dict())

    def initial_state(self, worlds: int, device: torch.device | str) -> Tensor | None:
        """Return the state (N, S) of a memory at the start of an episode; None without a memory."""
        return torch.zeros(worlds, self.actor.state_size, device=device) if self.actor.state_size else None

    @torch.no_grad()
    def label(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        """Return labels (B, L) of raw observations (B, D); a memory's `state` (B, S) is advanced by one step."""
        return self._label(self.actor.params(obs, state))

    @torch.no_grad()
    def labels(self, obs: Tensor, state: Tensor | None, starts: Tensor) -> Tensor:
        """Return labels (T, N, L) of the raw observations (T, N, D) of a rollout; advance a memory's `state` (N, S).

        `starts` (T + 1, N) is true if the state before is reset (`Rollout.starts`).
        """
        x = self.actor.encode(obs.flatten(0, 1))
        if state is None:
            out = self.actor.outputs(x)
        else:
            out, states = self.actor.trace(x, (state, starts[:-1]))
            state.copy_(states[-1].masked_fill(starts[-1, :, None], 0.0))
        return self._label(self.actor.distribution.params(out)).unflatten(0, obs.shape[:2])

    def params(self, label: Tensor) -> Params:
        """Return the distribution's parameters of labels (B, L)."""
        return label.split(self._choices, dim=-1) if self._choices else label.chunk(2, dim=-1)

    def action(self, label: Tensor) -> Tensor:
        """Return the actions without noise (B, A) of labels (B, L)."""
        return self.actor.distribution.mode(self.params(label))

    def kl(self, label: Tensor, params: Params) -> Tensor:
        """Return KL(this || policy) (B,) [nat] of labels (B, L) and parameters of a policy with a like distribution."""
        if self._choices:
            return self.actor.distribution.kl(self.params(label), params)
        return kl_each(*self.params(label), *params)

    def error(self, label: Tensor, params: Params, distribution: Distribution) -> Tensor:
        """Return half the squared distance (B,) between the actions without noise, in units of this one's deviation.

        That is the means' part of the divergence, for distributions of different kinds. The deviation is that of the
        environment's actions: half of the distance between the mean plus and minus a deviation. `params` and
        `distribution` are the other policy's.
        """
        teacher, params_here = self.actor.distribution, self.params(label)
        ones = torch.ones_like(params_here[0])
        high, low = (teacher.to_env(teacher.sample(params_here, side)) for side in (ones, -ones))
        deviation = (0.5 * (high - low)).clamp(min=MIN_DEVIATION)
        return 0.5 * ((distribution.mode(params) - teacher.mode(params_here)) / deviation).square().sum(-1)

    def distance(self, label: Tensor, params: Params, distribution: Distribution) -> Tensor:
        """Return the mean squared distance (B,) of the actions without noise; of choices the share that differs."""
        action, other = self.action(label), distribution.mode(params)
        return (action != other).to(action.dtype).mean(-1) if self._choices else (action - other).square().mean(-1)

    def is_alike(self, distribution: Distribution) -> bool:
        """Return whether the divergence from a policy with this distribution is known exactly."""
        return getattr(self.actor.distribution, "bound", None) == getattr(distribution, "bound", None)

    def _label(self, params: Params) -> Tensor:
        if self._choices:
            return torch.cat(params, dim=-1)
        mean, log_std = params
        return torch.cat((mean, log_std.expand_as(mean)), dim=-1)


class FrozenService(ABC):
    """A frozen policy that is evaluated somewhere else, a rollout after the other."""

    @abstractmethod
    def begin(self, obs: Tensor) -> None:
        """Begin to evaluate raw observations (T, N, D); nothing is waited for."""

    @abstractmethod
    def take(self) -> Tensor:
        """Wait for the labels (T, N, L) of the observations, on the CPU (`FrozenPolicy.labels`)."""


class FrozenObjective(Auxiliary):
    """An objective on the labels of a frozen policy, which are samples under the objective's name.

    Attributes:
        frozen: the policy.
        memory: (N, S) state of a recurrent policy in each world; None without one.
        service: evaluates it instead of this process; None: this one does.
    """

    capturable = True
    indexed_by_world = True
    service: FrozenService | None = None

    def __init__(self, frozen: FrozenPolicy, memory: Tensor | None) -> None:
        super().__init__()
        self.frozen, self.memory = frozen, memory

    @torch.no_grad()
    def labels(self, rollout: Rollout) -> Tensor:
        """Return the labels (T, N, L) of a rollout; its `groups` have the policy's input. Advance its memory."""
        if self.service is not None:
            return self.service.take().to(rollout.done.device)
        obs, starts = self._seen(rollout), rollout.starts()
        if self.memory is None:
            return self.frozen.labels(obs, None, starts)
        parts = [
            self.frozen.labels(obs[:, columns], self.memory[worlds], starts[:, columns])
            for columns, worlds in rollout.by_world()
        ]
        return torch.cat(parts, dim=1)

    def begin(self, rollout: Rollout) -> None:
        """Let a service begin with a rollout."""
        if self.service is not None:
            self.service.begin(self._seen(rollout))

    def serve(self, service: FrozenService) -> None:
        """Let a service evaluate the policy from now on.

        Raises:
            UserError: It acts in rollouts, or remembers, so that it cannot be evaluated a rollout at a time elsewhere.
        """
        if self.hook is not None:
            raise UserError(f"roles.{self.name}=apart: {ACTS}")
        if self.memory is not None:
            raise UserError(f"roles.{self.name}=apart: its policy remembers each world; leave it at the learner")
        self.service = service

    def _seen(self, rollout: Rollout) -> Tensor:
        """Return the raw observations (T, N, D) that the policy sees."""
        return torch.cat([rollout.groups[group][:-1] for group in self.groups], dim=-1)

    @torch.no_grad()
    def mirrored(self, samples: Mapping[str, Tensor], action: Mirror) -> dict[str, Tensor]:
        """Return the labels of the mirror images: a mirrored mean, and the partner's deviation."""
        perm, sign = action
        mean, log_std = samples[self.name].chunk(2, dim=-1)
        return {self.name: torch.cat((mean[..., perm] * sign, log_std[..., perm]), dim=-1)}

    def worlds(self) -> dict[str, Tensor]:
        """Return the memory (N, S) of a policy that has one."""
        return {} if self.memory is None else {"memory": self.memory}

    def described(self) -> dict[str, Any]:
        """Return the policy's path and the checksum of its weights."""
        return {"checkpoint": str(self.frozen.policy.path), "sha256": self.frozen.checksum}

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError if the description of a run to resume has another policy."""
        frozen = self.frozen
        if not described:
            raise UserError(f"{frozen.field}.run: '{frozen.policy.path}', the run to resume has none; start a new run")
        if described.get("sha256") != frozen.checksum:
            raise UserError(
                f"{frozen.field}.run: '{frozen.policy.path}' is not the policy that the run began with, "
                f"{described.get('checkpoint')} (sha256 {frozen.checksum[:12]}..., "
                f"must be {str(described.get('sha256'))[:12]}...)"
            )


class FrozenCfg(Protocol):
    """The settings that name a frozen policy."""

    run: str
    groups: tuple[str, ...]


def make_frozen(cfg: FrozenCfg, env: VecEnv, dims: EnvSpec, device: torch.device | str, field: str) -> FrozenPolicy:
    """Load a policy for an environment; `field` is the name of its settings.

    Raises UserError if the policy is missing or damaged, or does not fit (with both shapes).
    """
    policy = make_policy(Path(cfg.run), find_checkpoint(cfg.run, field), device)
    trained = EnvSpec(**policy.meta["dims"])
    have, want = _actions(trained), _actions(dims)
    if have != want:
        raise UserError(f"{field}.run: the policy of '{policy.path}' has actions of {have}, must be {want} as here")
    groups = cfg.groups or tuple(policy.meta["learner"].get("actor_groups", ("actor",)))
    layout = make_layout(env.get_observations(), groups, f"{field}.groups")
    here, there = _shapes(layout), _shapes(trained.actor_layout)
    if here != there:
        raise UserError(
            f"{field}.groups: {list(groups)} have shape {here}, must be {there} for the policy of '{policy.path}'"
        )
    return FrozenPolicy(policy, layout, field)


def find_checkpoint(run: str, field: str) -> Path:
    """Return the checkpoint in the directory of a run (its newest) or of a checkpoint; raise UserError for another."""
    path = Path(run)
    if not run:
        raise UserError(f"{field}.run: '' names no policy, must be a run's directory or one of its checkpoints")
    if (path / META).is_file():
        return path
    if (path / "checkpoints").is_dir():
        return latest_checkpoint(path)
    raise UserError(f"{field}.run: '{run}' is neither a run's directory nor a checkpoint")


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)} ".encode())
        digest.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _shapes(layout: ObservationLayout) -> str:
    return ", ".join(str(span.shape) for span in layout.spans)


def _actions(dims: EnvSpec) -> str:
    return f"choices {tuple(dims.choices)}" if dims.choices else f"shape ({dims.action},)"
