"""A student learns what a teacher would have done in the states that the student gets into (DAgger, Ross et al. 2011).

The teacher sees what no robot can measure, the student what it can. Cloning the teacher from its own states fails where
errors add up: the student soon is where the teacher never was. Here the student acts, and the teacher says at every
state what it would do there. Where this departs from the paper: the states are those of the present rollout, gone
through several times, and not of all rollouts so far; a share of the worlds, drawn anew for each rollout, follows the
teacher at first, instead of a share of the steps; the critic learns along, from the student's returns, so that
reinforcement learning can go on from where imitation ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.config import LearnerCfg, PPOCfg
from robot_rl.config.extras import TeacherCfg
from robot_rl.learn.distributions import Distribution, Params, make_distribution
from robot_rl.learn.extras import Extra
from robot_rl.learn.frozen import Frozen, make_frozen
from robot_rl.learn.networks import Actor, Critic
from robot_rl.learn.ppo import PPO, mean_over
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.storage import Batch, Dims, Rollout
from robot_rl.learn.symmetry import Mirror

SEEDS = 200
"""Added to the run's seed, so that nothing here draws what others draw."""


class Distill(PPO):
    """Improves a student by what its teacher says; everything but the loss is as in PPO.

    One of the extras is the `Teacher`. The adaptive step size steers by how far a policy may move at once, which is no
    concern here: "adaptive" is "fixed".
    """

    statistics = ("loss/value",)

    def __init__(self, actor: Actor, critic: Critic, cfg: PPOCfg, **options: Any) -> None:
        """Take over two networks; the options are those of `PPO`."""
        schedule = "fixed" if cfg.schedule == "adaptive" else cfg.schedule
        super().__init__(actor, critic, replace(cfg, schedule=schedule), **options)

    def loss(self, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss () of a minibatch, the critic's and those of the extras, and its `statistics`."""
        params = self.actor.distribution.params(self.actor.outputs(batch.actor_in, batch.actor_past))
        value_loss = self.value_loss(batch)
        total = self.cfg.value_coef * value_loss
        for extra in self.extras:
            if (term := extra.loss(batch, params)) is not None:
                total = total + term
        return total, value_loss.detach()[None]


class Teacher(Extra):
    """Says in every step what it would do; the loss is the distance of the student's policy from that.

    The distance is KL(teacher || student), which also teaches the student's deviation: where it cannot know what the
    teacher does, it grows. Between distributions of different kinds it is the squared error of the actions without
    noise, in units of the teacher's deviation (`Frozen.error`).

    Attributes:
        frozen: the teacher.
        share: share of the worlds that follow the teacher in this rollout.
    """

    name = "teacher"
    capturable = True

    def __init__(
        self,
        cfg: TeacherCfg,
        frozen: Frozen,
        distribution: Distribution,
        labels: Tensor,
        *,
        seed: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        """Begin with the full share.

        Args:
            cfg: the settings.
            frozen: the teacher.
            distribution: of the kind of the student's.
            labels: (T, N, L) room for what the teacher says in a rollout.
            seed: of the choice of worlds; every process has its own.
            ranks: the processes that train together.
        """
        super().__init__()
        self.cfg, self.frozen, self.ranks = cfg, frozen, ranks
        self.share = self._share(0.0)
        self._distribution, self._labels = distribution, labels
        self._obs = torch.zeros(labels.shape[1], frozen.layout.size, device=labels.device)
        self._follows = torch.zeros(labels.shape[1], 1, dtype=torch.bool, device=labels.device)
        self._generator = torch.Generator(labels.device).manual_seed(seed + SEEDS)
        self._sums = torch.zeros(3, device=labels.device)
        self._state = frozen.remember_nothing(labels.shape[1], labels.device)

    @torch.no_grad()
    def act(self, obs: TensorDict, t: int, action: Tensor) -> Tensor:
        """Note what the teacher would do, and return the actions: its own in the worlds that follow it."""
        if t == 0:
            drawn = torch.rand(self._follows.shape, generator=self._generator, device=self._follows.device)
            torch.lt(drawn, self.share, out=self._follows)
        label = self.frozen.label(self.frozen.layout.gather(obs, self._obs), self._state)
        self._labels[t].copy_(label)
        return torch.where(self._follows, self.frozen.action(label), action) if self.share > 0.0 else action

    def forget(self, ended: Tensor) -> None:
        """Let a teacher with a memory forget episodes that ended."""
        if self._state is not None:
            self._state.masked_fill_(ended[:, None], 0.0)

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the teacher's labels (T, N, L); those of quarantined samples, which may be anything, are zero."""
        if rollout.has_invalid:
            self._labels.masked_fill_(~rollout.valid[..., None], 0.0)
        return {self.name: self._labels}

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
        """Let the share fall, and return the statistics over all processes.

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
        return {} if self._state is None else {"memory": self._state}

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
        destination[f"{prefix}random"] = self._generator.get_state()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
        self.share = float(state_dict[f"{prefix}share"])
        self._generator.set_state(state_dict[f"{prefix}random"].cpu())


def make_teacher(
    cfg: LearnerCfg, env: VecEnv, dims: Dims, device: torch.device | str, *, seed: int, ranks: Ranks = ALONE
) -> Teacher:
    """Load the teacher for an environment.

    Args:
        cfg: the learner's configuration.
        env: the environment.
        dims: sizes of observations and actions.
        device: where the rollouts will be.
        seed: of the run; the choice of worlds is each process's own.
        ranks: the processes that train together.

    Raises:
        UserError: there is no such policy, or it does not fit the environment.
    """
    frozen = make_frozen(cfg.teacher, env, dims, device, "teacher")
    distribution = make_distribution(dims.action, cfg.actor, choices=dims.choices).to(device)
    labels = torch.zeros(cfg.num_steps, env.num_envs, frozen.size, device=device)
    return Teacher(cfg.teacher, frozen, distribution, labels, seed=ranks.seed(seed), ranks=ranks)
