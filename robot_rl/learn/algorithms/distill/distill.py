"""A student learns a teacher's actions in the states that the student visits (DAgger, Ross et al. 2011).

The teacher sees what no robot can measure, the student what it can. Cloning the teacher from its own states fails where
errors add up: the student soon reaches states that the teacher never visited. Here the student acts, and the teacher is
evaluated at every state. Departures from the paper: the states are those of the current rollout, used several times,
and not of all rollouts so far; a share of the worlds, drawn again for each rollout, follows the teacher at first,
instead of a share of the steps; the critic also learns, from the student's returns, so that reinforcement learning can
follow the imitation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg
from robot_rl.learn.algorithms.distill.teacher import make_teacher
from robot_rl.learn.algorithms.ppo.build import make_ppo
from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.batch import Batch
from robot_rl.learn.networks.actor_critic import Actor, Critic


class Distill(PPO):
    """Improves a student by its teacher's actions; everything but the loss is as in PPO.

    One of the auxiliaries is the `Teacher`. The adaptive step size limits how far a policy moves at once, which does
    not matter here: "adaptive" is "fixed".
    """

    statistics = ("loss/value",)

    def __init__(self, actor: Actor, critic: Critic, cfg: PPOCfg, **options: Any) -> None:
        """Create the optimizer of two networks; the options are those of `PPO`."""
        schedule = "fixed" if cfg.schedule == "adaptive" else cfg.schedule
        super().__init__(actor, critic, replace(cfg, schedule=schedule), **options)

    def loss(self, batch: Batch, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss () of a minibatch, the critic's and those of the auxiliaries, and its `statistics`."""
        params = self.actor.distribution.params(self.actor.outputs(batch.actor_in, batch.actor_past))
        value_loss = self.value_loss(batch)
        total = self.cfg.value_coef * value_loss
        for auxiliary in self.auxiliaries:
            if (term := auxiliary.loss(batch, params)) is not None:
                total = total + term
        return total, value_loss.detach()[None]


def make_distill(cfg: DistillLearnerCfg, context: Context) -> Distill:
    """Build the algorithm for an environment; errors are those of `make_ppo` and `make_teacher`."""
    teacher = make_teacher(cfg, context.env, context.dims, context.device, seed=context.seed, ranks=context.ranks)
    return make_ppo(cfg, context, Distill, (teacher,))
