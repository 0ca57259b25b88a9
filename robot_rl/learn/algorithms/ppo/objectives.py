"""The auxiliary objectives that PPO's settings name."""

from __future__ import annotations

from robot_rl.errors import UserError
from robot_rl.learn.algorithm import Context
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.auxiliaries.amp import make_amp
from robot_rl.learn.auxiliaries.auxiliary import Auxiliary
from robot_rl.learn.auxiliaries.reference import make_reference
from robot_rl.learn.auxiliaries.rnd import make_rnd
from robot_rl.plugins import load_reference, make


def make_auxiliaries(cfg: PPOLearnerCfg, context: Context, own: tuple[Auxiliary, ...] = ()) -> tuple[Auxiliary, ...]:
    """Return the auxiliary objectives of a configuration, on their device; `own` are those of the algorithm itself."""
    env, device, seed, ranks = context.env, context.device, context.seed, context.ranks
    found: list[Auxiliary] = []
    if cfg.amp.weight > 0:  # Before those that add rewards: only the task's reward gives way to it.
        found.append(make_amp(cfg.amp, env, device, seed, ranks))
    if cfg.rnd.weight > 0:
        found.append(make_rnd(cfg.rnd, env, device, seed, ranks))
    found += own
    if cfg.reference.run:
        found.append(make_reference(cfg, env, context.dims, device))
    found += [_users(name, context) for name in cfg.auxiliaries]
    names = [auxiliary.name for auxiliary in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"auxiliaries: two are called '{twice[0]}'; give one of them another `name`")
    return tuple(found)


def _users(name: str, context: Context) -> Auxiliary:
    """Return the auxiliary objective that "module:name" makes."""
    line, right = f"auxiliaries={name}", "must return an `Auxiliary` with a name"
    made = make(load_reference(name, "auxiliaries"), Auxiliary, line, right, context)
    if not made.name:
        raise UserError(f"{line}: {right}, found {made!r}")
    return made.to(context.device)
