"""Build the session that trains a learner in an environment."""

from __future__ import annotations

from typing import Any

from rsl_rl.env import VecEnv

from robot_rl.errors import UserError
from robot_rl.learn.build import find_maker
from robot_rl.learn.overlap import OverlappedRunner
from robot_rl.learn.ranks import ALONE, Ranks
from robot_rl.learn.runner import Runner
from robot_rl.learn.session import Session
from robot_rl.settings import LearnerCfg


def make_runner(env: VecEnv, cfg: LearnerCfg, **options: Any) -> Session:
    """Build the session of a learner: a `Runner`, unless it has its own loop (`make_session`).

    The options are run_dir, seed, observer, writer and ranks of `robot_rl.learn.session.Session`. Raises UserError for
    several processes and a learner that trains in one.
    """
    make_remote: Any = getattr(env, "make_runner", None)
    if make_remote is not None:
        return make_remote(cfg, **options)
    if cfg.staleness.max and not cfg.overlap:
        raise UserError(
            f"staleness.max={cfg.staleness.max}: has no effect where the learner simulates; give launcher=ray "
            "roles.sim.count=<simulators>, or overlap=true"
        )
    make = find_maker(cfg, "make_session")
    if make is None:
        return (OverlappedRunner if cfg.overlap else Runner)(env, cfg, **options)
    ranks: Ranks = options.pop("ranks", ALONE)
    if ranks.size > 1:
        raise UserError(f"learner={cfg.name}: trains in one process, these are {ranks.size}; use learner=ppo")
    return make(env, cfg, **options)
