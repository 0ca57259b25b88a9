"""A student learns what a teacher would have done in the states that the student gets into (DAgger, Ross et al. 2011).

The teacher sees what no robot can measure, the student what it can. Cloning the teacher from its own states fails where
errors add up: the student soon is where the teacher never was. Here the student acts, and the teacher says at every
state what it would do there. Where this departs from the paper: the states are those of the present rollout, gone
through several times, and not of all rollouts so far; a share of the worlds, drawn anew for each rollout, follows the
teacher at first, instead of a share of the steps; the critic learns along, from the student's returns, so that
reinforcement learning can go on from where imitation ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from robot_rl.learn.algorithms.ppo.config import PPOCfg
from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.batch import Batch
from robot_rl.learn.networks.actor_critic import Actor, Critic


class Distill(PPO):
    """Improves a student by what its teacher says; everything but the loss is as in PPO.

    One of the auxiliaries is the `Teacher`. The adaptive step size steers by how far a policy may move at once, which
    is no concern here: "adaptive" is "fixed".
    """

    statistics = ("loss/value",)

    def __init__(self, actor: Actor, critic: Critic, cfg: PPOCfg, **options: Any) -> None:
        """Take over two networks; the options are those of `PPO`."""
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
