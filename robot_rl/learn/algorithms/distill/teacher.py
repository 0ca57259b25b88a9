"""The teacher as an auxiliary objective: the distance of the student's actions from those of the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg, TeacherCfg
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary, RolloutHook
from robot_rl.learn.auxiliaries.frozen import FrozenPolicy, make_frozen
from robot_rl.learn.batch import Batch, mean_over
from robot_rl.learn.dims import Dims
from robot_rl.learn.networks.distributions import Distribution, Params, make_distribution
from robot_rl.learn.networks.symmetry import Mirror
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.rollout import Rollout

SEEDS = 200
"""Added to the run's seed, so that nothing here draws what others draw."""


class Teacher(Auxiliary):
    """Evaluates a teacher in every step; the loss is the distance of the student's policy from it.

    The distance is KL(teacher || student), which also teaches the student's deviation: where it cannot know the
    teacher's action, it grows. Between distributions of different kinds it is the squared error of the actions without
    noise, in units of the teacher's deviation (`FrozenPolicy.error`).

    Attributes:
        frozen: the teacher.
        hook: acts and records where rollouts are collected.
    """

    hook: TeacherHook

    name = "teacher"
    capturable = True

    def __init__(
        self,
        cfg: TeacherCfg,
        frozen: FrozenPolicy,
        distribution: Distribution,
        worlds: int,
        device: torch.device | str = "cpu",
        *,
        seed: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        """Begin with the full share.

        Args:
            cfg: the settings.
            frozen: the teacher.
            distribution: of the kind of the student's.
            worlds: number N of worlds.
            device: of the rollouts.
            seed: of the choice of worlds; every process has its own.
            ranks: the processes that train together.
        """
        super().__init__()
        self.cfg, self.frozen, self.ranks = cfg, frozen, ranks
        self.hook = TeacherHook(frozen, worlds, device, seed=seed)
        self.share = self._share(0.0)
        self._distribution = distribution
        self._sums = torch.zeros(3, device=device)

    @property
    def share(self) -> float:
        """Share of the worlds that follow the teacher in this rollout."""
        return self.hook.share

    @share.setter
    def share(self, share: float) -> None:
        self.hook.share = share

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the teacher's labels (T, N, L); those of quarantined samples are zero."""
        return {self.name: rollout.recorded[self.name]}

    @torch.no_grad()
    def mirrored(self, samples: Mapping[str, Tensor], action: Mirror) -> dict[str, Tensor]:
        """Return the labels of the mirror images."""
        return {self.name: self.frozen.mirrored(samples[self.name], action)}

    def loss(self, batch: Batch, params: Params) -> Tensor:
        """Return the mean distance () from the teacher over a minibatch."""
        label = batch.more[self.name]
        if self.frozen.is_alike(self._distribution):
            distance = self.frozen.kl(label, params)
        else:
            distance = self.frozen.error(label, params, self._distribution)
        loss = mean_over(distance, batch.weight)
        with torch.no_grad():
            square = mean_over(self.frozen.distance(label, params, self._distribution), batch.weight)
            self._sums += torch.stack((loss.detach(), square, torch.ones_like(square)))
        return loss

    def update(self, rollout: Rollout, progress: float) -> dict[str, Tensor]:
        """Decay the share, and return the statistics over all processes.

        Returns:
            "loss/imitation", the mean distance; "teacher/error", the root mean square of the difference between the
                actions without noise (of choices: of the share that differs); "teacher/share".
        """
        loss, square, count = self.ranks.sum_(self._sums.clone()).unbind()
        share = torch.full_like(loss, self.share)
        self._sums.zero_()
        self.share = self._share(progress)
        return {"loss/imitation": loss / count, "teacher/error": (square / count).sqrt(), "teacher/share": share}

    def worlds(self) -> dict[str, Tensor]:
        """Return the memory (N, S) of a policy that has one."""
        return {} if self.hook.memory is None else {"memory": self.hook.memory}

    def described(self) -> dict[str, Any]:
        """Return where the teacher was found and the checksum of its weights."""
        return self.frozen.described()

    def check(self, described: Mapping[str, Any]) -> None:
        """Raise UserError unless the run to resume had the same teacher."""
        self.frozen.check(described)

    def _share(self, progress: float) -> float:
        cfg = self.cfg
        return cfg.mix * max(0.0, 1.0 - progress / cfg.mix_until) if cfg.mix_until > 0.0 else 0.0

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}share"] = torch.tensor(self.share, dtype=torch.float64)
        destination[f"{prefix}random"] = self.hook.generator.get_state()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
        self.share = float(state_dict[f"{prefix}share"])
        self.hook.generator.set_state(state_dict[f"{prefix}random"].cpu())


def make_teacher(
    cfg: DistillLearnerCfg, env: VecEnv, dims: Dims, device: torch.device | str, *, seed: int, ranks: Ranks = ALONE
) -> Teacher:
    """Load the teacher for an environment; raise UserError if there is no such policy, or it does not fit."""
    frozen = make_frozen(cfg.teacher, env, dims, device, "teacher")
    distribution = make_distribution(dims.action, cfg.actor, choices=dims.choices).to(device)
    return Teacher(cfg.teacher, frozen, distribution, env.num_envs, device, seed=ranks.seed(seed), ranks=ranks)


class TeacherHook(RolloutHook):
    """Records the teacher's labels at every state, and lets some worlds follow it.

    Attributes:
        share: share of the worlds that follow the teacher in a rollout.
        generator: source of the choice of worlds.
        memory: (N, S) state of a recurrent teacher; None without one.
    """

    def __init__(self, frozen: FrozenPolicy, worlds: int, device: torch.device | str, *, seed: int) -> None:
        self.frozen, self.share, self.recorded = frozen, 0.0, {Teacher.name: frozen.size}
        self._obs = torch.zeros(worlds, frozen.layout.size, device=device)
        self._follows = torch.zeros(worlds, 1, dtype=torch.bool, device=device)
        self.generator = torch.Generator(device).manual_seed(seed + SEEDS)
        self.memory = frozen.remember_nothing(worlds, device)

    @torch.no_grad()
    def act(self, obs: TensorDict, t: int, action: Tensor, rollout: Rollout) -> Tensor:
        """Record the teacher's labels, and return the actions: its own in the worlds that follow it."""
        if t == 0:
            drawn = torch.rand(self._follows.shape, generator=self.generator, device=self._follows.device)
            torch.lt(drawn, self.share, out=self._follows)
        label = self.frozen.label(self.frozen.layout.gather(obs, self._obs), self.memory)
        rollout.recorded[Teacher.name][t].copy_(label)
        return torch.where(self._follows, self.frozen.action(label), action) if self.share > 0.0 else action

    def forget(self, ended: Tensor) -> None:
        """Clear a recurrent teacher's state of episodes that ended."""
        if self.memory is not None:
            self.memory.masked_fill_(ended[:, None], 0.0)
