"""The training session that a configuration builds."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv

from robot_rl.config import LearnerCfg
from robot_rl.errors import UserError
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.runner import Runner
from robot_rl.learn.session import Session


def make_runner(env: VecEnv, cfg: LearnerCfg, **options: Any) -> Session:
    """Build the session of a learner: a `Runner`, unless its configuration's `make_session` has a loop of its own.

    Args:
        env: the environment.
        cfg: the learner's configuration.
        options: run_dir, seed, observer, writer, ranks, as of `robot_rl.learn.session.Session`.

    Raises:
        UserError: several processes and a learner that trains in one.
    """
    make = getattr(cfg, "make_session", None)
    if make is None:
        return Runner(env, cfg, **options)
    ranks: Ranks = options.pop("ranks", ALONE)
    if ranks.size > 1:
        raise UserError(f"learner={cfg.name}: trains in one process, these are {ranks.size}; use learner=ppo")
    return make(env, **options)
