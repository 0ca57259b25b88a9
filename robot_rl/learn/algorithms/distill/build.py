"""Distillation with its networks and its teacher, from a configuration."""

from __future__ import annotations

from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.distill.config import DistillLearnerCfg
from robot_rl.learn.algorithms.distill.distill import Distill
from robot_rl.learn.algorithms.distill.teacher import make_teacher
from robot_rl.learn.algorithms.ppo.build import make_ppo


def make_distill(cfg: DistillLearnerCfg, context: Context) -> Distill:
    """Build the algorithm for an environment; errors are those of `make_ppo` and `make_teacher`."""
    teacher = make_teacher(cfg, context.env, context.dims, context.device, seed=context.seed, ranks=context.ranks)
    return make_ppo(cfg, context, Distill, (teacher,))
