"""Build the objects that a learner's settings describe; a training's only place that imports the code of an algorithm.

Settings are data. A function that builds from them is looked up in the module that the settings' class names as its
`implementation`, else in the class's own module; then in those of its base classes.

    make_algorithm(cfg, context)                 required: the `robot_rl.learn.algorithm.Algorithm` for a `Context`
    make_actor(cfg, dims, mirrors, generator)    by default `robot_rl.learn.networks.actor_critic.make_actor`
    make_critic(cfg, dims, mirrors, generator)   by default that module's `make_critic`
    make_session(env, cfg, **options)            in place of all of them: a learner with its own loop
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError
from robot_rl.learn.networks import actor_critic

if TYPE_CHECKING:
    import torch

    from robot_rl.learn.algorithm import Algorithm, Context
    from robot_rl.learn.dims import EnvSpec, Mirrors
    from robot_rl.learn.networks.actor_critic import Actor, Critic
    from robot_rl.settings import LearnerCfg


def find_maker(cfg: LearnerCfg, name: str) -> Any:
    """Return the function of a name that builds from settings, None without one.

    Raises:
        UserError: The settings have a method `make_algorithm`, as it was in earlier versions.
    """
    if hasattr(cfg, "make_algorithm"):
        right = f"make it a function make_algorithm(cfg, context) of {type(cfg).__module__}"
        raise UserError("learner", cfg.name, "make_algorithm is a method", right)
    for cls in type(cfg).__mro__:
        named = vars(cls).get("implementation")
        module = importlib.import_module(named) if named else sys.modules[cls.__module__]
        found = getattr(module, name, None)
        if found is not None and found is not globals().get(name):  # It may import the one of this module.
            return found
    return getattr(actor_critic, name, None)


def make_algorithm(cfg: LearnerCfg, context: Context) -> Algorithm:
    """Build the algorithm for an environment; raise UserError if the two do not fit."""
    make = find_maker(cfg, "make_algorithm")
    if make is None:
        raise UserError("learner", cfg.name, f"{type(cfg).__module__} lacks make_algorithm(cfg, context)", "define it")
    return make(cfg, context)


def make_actor(
    cfg: LearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> Actor:
    """Build the policy's network on the CPU, for training and for the policy of a finished run.

    Args:
        cfg: The settings.
        dims: Sizes of observations and actions.
        mirrors: The environment's mirror images; None: it has none.
        generator: Of the weights.
    """
    return find_maker(cfg, "make_actor")(cfg, dims, mirrors, generator)


def make_critic(cfg: Any, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None) -> Critic:
    """Build the value function on the CPU; arguments as of `make_actor`."""
    return find_maker(cfg, "make_critic")(cfg, dims, mirrors, generator)
