"""The runner that a configuration asks for."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv

from robot_rl.config import LearnerCfg
from robot_rl.learn.session import Session


def make_runner(env: VecEnv, cfg: LearnerCfg, **options: Any) -> Session:
    """Build the runner named by cfg.name.

    Args:
        env: the environment.
        cfg: the learner's configuration.
        options: run_dir, seed, observer, writer, as of `robot_rl.learn.session.Session`.
    """
    if cfg.name == "rsl_rl":
        from robot_rl.learn.rsl_rl_runner import RslRlRunner

        return RslRlRunner(env, cfg, **options)
    from robot_rl.learn.runner import Runner

    return Runner(env, cfg, **options)
