"""Build the trainer of a learner in an environment."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv

from robot_rl.errors import UserError
from robot_rl.learn.base_trainer import BaseTrainer
from robot_rl.learn.build import find_maker
from robot_rl.learn.ranks import SINGLE_PROCESS, ProcessGroup
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import LearnerCfg


def make_trainer(env: VecEnv, cfg: LearnerCfg, **options: Any) -> BaseTrainer:
    """Build a `Trainer`, unless the learner has its own loop (`make_session` of its implementation).

    The options are run_dir, seed, observer, writer and ranks of `BaseTrainer`. Raises UserError for several processes
    and a learner that trains in one.
    """
    make, is_remote = find_maker(cfg, "make_session"), hasattr(env, "make_rollouts")
    if cfg.staleness.max and not cfg.overlap and not is_remote:
        raise UserError(
            "staleness.max",
            cfg.staleness.max,
            "does not take effect if the learner simulates",
            "give launcher=ray roles.sim.count=<simulators>, or overlap=true",
        )
    if make is None or is_remote:
        return Trainer(env, cfg, **options)
    ranks: ProcessGroup = options.pop("ranks", SINGLE_PROCESS)
    if ranks.size > 1:
        raise UserError("learner", cfg.name, f"trains in one process, these are {ranks.size}", "use learner=ppo")
    return make(env, cfg, **options)
