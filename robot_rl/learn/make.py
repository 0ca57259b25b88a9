"""The runner that a configuration asks for."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv

from robot_rl.config import LearnerCfg
from robot_rl.errors import UserError
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.session import Session


def make_runner(env: VecEnv, cfg: LearnerCfg, **options: Any) -> Session:
    """Build the runner named by cfg.name.

    Args:
        env: the environment.
        cfg: the learner's configuration.
        options: run_dir, seed, observer, writer, ranks, as of `robot_rl.learn.session.Session`.

    Raises:
        UserError: several processes and a learner that trains in one.
    """
    if cfg.name == "rsl_rl":
        ranks: Ranks = options.pop("ranks", ALONE)
        if ranks.size > 1:
            raise UserError(f"learner=rsl_rl: trains in one process here, these are {ranks.size}; use learner=ppo")
        from robot_rl.learn.rsl_rl_runner import RslRlRunner

        return RslRlRunner(env, cfg, **options)
    from robot_rl.learn.runner import Runner

    return Runner(env, cfg, **options)
