"""A student learns a teacher's actions in the states that the student visits (DAgger, Ross et al. 2011).

The teacher sees quantities that no robot can measure, the student only those that a robot can. Cloning the teacher from
its own states fails when errors add up: the student soon reaches states that the teacher never visited. Here the
student acts, and the teacher is evaluated at every state. Departures from the paper: the states are those of the
current rollout, used several times, and not of all rollouts so far; a share of the worlds, drawn again for each
rollout, follows the teacher at first, instead of a share of the steps; the critic also learns, from the student's
returns, so that reinforcement learning can follow the imitation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.learn.algorithm import Context, Snapshot, carry
from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg, TeacherCfg
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.off_policy_correction import ProximalPolicy, recorded_policy
from robot_rl.learn.algorithms.ppo.ppo import PPO, make_ppo
from robot_rl.learn.auxiliaries.auxiliary import RolloutHook
from robot_rl.learn.auxiliaries.frozen import FrozenObjective, FrozenPolicy, make_frozen
from robot_rl.learn.dims import EnvSpec
from robot_rl.learn.networks.actor_critic import Actor, Critic
from robot_rl.learn.networks.distributions import Distribution, Params, make_distribution
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.rollout import Batch, Rollout, mean_over

SEED_OFFSET = 200
"""Added to the run's seed, so that no other stream has the same numbers."""
ACTED = "teacher_acted"
"""Recorded of each step: 1 if the teacher acted."""


class Teacher(FrozenObjective):
    """Evaluates a teacher in every state; the loss is the distance of the student's policy from it.

    If it acts in rollouts, it is evaluated there, and its labels are recorded; if it never does, it is evaluated
    here, once a rollout.

    The distance is KL(teacher || student), which also teaches the student's deviation: that grows if the student cannot
    know the teacher's action. Between distributions of different kinds it is the squared error of the actions without
    noise, in units of the teacher's deviation (`FrozenPolicy.error`). `distribution` is of the student's kind; every
    process has its own `seed` of the choice of worlds.

    Attributes:
        hook: acts and records while rollouts are collected; None if the teacher never acts.
        share: share of the worlds that follow the teacher in the next rollout.
        carried: () the same, which the student's policy carries along.
    """

    hook: TeacherHook | None

    name = "teacher"

    def __init__(
        self,
        cfg: TeacherCfg,
        frozen: FrozenPolicy,
        distribution: Distribution,
        worlds: int,
        device: torch.device | str = "cpu",
        *,
        seed: int = 0,
        ranks: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        acts = cfg.mix > 0.0 or cfg.takeover > 0.0
        super().__init__(frozen, None if acts else frozen.initial_state(worlds, device))
        self.hook = TeacherHook(frozen, worlds, device, seed=seed, takeover=cfg.takeover) if acts else None
        self.groups = () if acts else tuple(frozen.layout.shapes)
        self.cfg, self.ranks = cfg, ranks
        self.carried = torch.zeros((), dtype=torch.float64, device=device)
        self.set_share(self._share(0.0))
        self._distribution = distribution
        self._sums = torch.zeros(3, device=device)

    def set_share(self, share: float) -> None:
        """Set the share of the worlds that follow the teacher from the next rollout on."""
        self.share = share
        self.carried.fill_(share)

    @torch.no_grad()
    def samples(self, rollout: Rollout) -> dict[str, Tensor]:
        """Return the teacher's labels (T, N, L); those of quarantined samples mean nothing."""
        return {self.name: self.labels(rollout) if self.hook is None else rollout.recorded[self.name]}

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

        They are "loss/imitation", the mean distance; "teacher/error", the root mean square of the difference between
        the actions without noise (of choices: of the share that differs); "teacher/share", the share of the worlds
        that followed it in the newest rollout; "teacher/acted", the share of the steps in which it acted.
        """
        taken = rollout.recorded.get(ACTED, self._sums.new_zeros(1))
        acted = torch.stack((taken.sum(), torch.full_like(taken.sum(), taken.numel())))
        sums = self.ranks.sum_(torch.cat((self._sums, acted)))
        loss, square, count, acted, steps = sums.unbind()
        share = torch.full_like(loss, self.share)
        self._sums.zero_()
        self.set_share(self._share(progress))
        return {
            "loss/imitation": loss / count,
            "teacher/error": (square / count).sqrt(),
            "teacher/share": share,
            "teacher/acted": acted / steps,
        }

    def _share(self, progress: float) -> float:
        cfg = self.cfg
        return cfg.mix * max(0.0, 1.0 - progress / cfg.mix_until) if cfg.mix_until > 0.0 else 0.0

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}share"] = torch.tensor(self.share, dtype=torch.float64)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
        self.set_share(float(state_dict[f"{prefix}share"]))


def make_teacher(
    cfg: DistillLearnerCfg,
    env: VecEnv,
    dims: EnvSpec,
    device: torch.device | str,
    *,
    seed: int,
    ranks: ProcessGroup = SINGLE_PROCESS,
) -> Teacher:
    """Load the teacher for an environment; raise UserError if it is missing or does not fit."""
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

    capturable = True
    is_separable = True

    def __init__(
        self, frozen: FrozenPolicy, worlds: int, device: torch.device | str, *, seed: int, takeover: float = 0.0
    ) -> None:
        self.frozen, self.share, self.recorded = frozen, 0.0, {Teacher.name: frozen.size, ACTED: 1}
        self._takeover = takeover
        self._obs = torch.zeros(worlds, frozen.layout.size, device=device)
        self._follows = torch.zeros(worlds, 1, dtype=torch.bool, device=device)
        self.generator = torch.Generator(device).manual_seed(seed + SEED_OFFSET)
        self.memory = frozen.initial_state(worlds, device)

    def begin(self) -> None:
        """Draw the worlds that follow the teacher."""
        drawn = torch.rand(self._follows.shape, generator=self.generator, device=self._follows.device)
        torch.lt(drawn, self.share, out=self._follows)

    @torch.no_grad()
    def act(self, obs: TensorDict, t: int, action: Tensor, rollout: Rollout) -> Tensor:
        """Record the teacher's labels, and return the actions: its own in the worlds that follow it."""
        label = self.frozen.label(self.frozen.layout.gather(obs, self._obs), self.memory)
        rollout.recorded[Teacher.name][t].copy_(label)
        right, follows = self.frozen.action(label), self._follows
        if self._takeover > 0.0:
            follows = follows | ((right - action).abs().amax(dim=-1, keepdim=True) > self._takeover)
        rollout.recorded[ACTED][t].copy_(follows)
        return torch.where(follows, right, action)

    def forget(self, ended: Tensor) -> None:
        """Clear a recurrent teacher's state of episodes that ended."""
        if self.memory is not None:
            self.memory.masked_fill_(ended[:, None], 0.0)

    def worlds(self) -> dict[str, Tensor]:
        """Return the memory (N, S) of a teacher that has one."""
        return {} if self.memory is None else {"memory": self.memory}

    def streams(self) -> dict[str, torch.Generator]:
        """Return the stream that the worlds which follow the teacher are drawn from."""
        return {"random": self.generator}


class StudentSnapshot(Snapshot):
    """The student at one moment, with the share of the worlds that follow the teacher then."""

    def __init__(self, actor: Actor, version: int, teacher: Teacher) -> None:
        super().__init__(actor, version)
        self._hook, self._share = teacher.hook, teacher.share

    def follow(self, actor: Actor, version: int) -> None:
        """Act with the weights that an actor has now, and with the share that it carries."""
        super().follow(actor, version)
        self._share = float(actor.carried_share)  # type: ignore[arg-type]

    def begin(self, rollout: Rollout, generator: torch.Generator) -> None:
        """Draw the random numbers of a rollout, and let the share count in it."""
        super().begin(rollout, generator)
        if self._hook is not None:
            self._hook.share = self._share


class Distill(PPO):
    """Improves a student by its teacher's actions; everything but the loss is as in PPO.

    One of the auxiliaries is the `Teacher`. The adaptive step size limits how far a policy moves at once, which does
    not matter here: "adaptive" is "fixed". What an older policy did is learned from like anything else, for the labels
    do not depend on who acted.
    """

    statistics = ("loss/value",)

    def __init__(self, actor: Actor, critic: Critic, cfg: PPOCfg, **options: Any) -> None:
        """Create the optimizer of two networks; the options are those of `PPO`."""
        schedule = "fixed" if cfg.schedule == "adaptive" else cfg.schedule
        super().__init__(actor, critic, replace(cfg, schedule=schedule), **options)
        self.teacher = next(part for part in self.auxiliaries if isinstance(part, Teacher))
        carry(actor, "share", self.teacher.carried)

    def snapshot(self, version: int) -> Snapshot:
        """Return the student as it is."""
        return StudentSnapshot(self.actor, version, self.teacher)

    def proximal_policy(self, rollout: Rollout) -> ProximalPolicy:
        """Return the policy that acted: no action is weighted by its probability."""
        return recorded_policy(self.actor, rollout)

    def loss(self, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss () of a minibatch, the critic's and those of the auxiliaries, and its `statistics`."""
        params = self.actor.distribution.params(self.actor.outputs(batch.actor_in, batch.actor_past))
        value_loss = self.value_loss(batch)
        total = self.auxiliaries.add_loss(self.cfg.value_coef * value_loss, batch, params)
        return total, value_loss.detach()[None]


def make_algorithm(cfg: DistillLearnerCfg, context: Context) -> Distill:
    """Build the algorithm for an environment; errors are those of `make_ppo` and `make_teacher`."""
    teacher = make_teacher(cfg, context.env, context.dims, context.device, seed=context.seed, ranks=context.ranks)
    return make_ppo(cfg, context, Distill, (teacher,))
