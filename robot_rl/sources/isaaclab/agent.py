"""Convert the settings of an environment's rsl_rl agent to this learner's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTIVATIONS = {"elu": "elu", "relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh"}
RUNNER = {
    "num_steps": "num_steps_per_env",
    "max_iterations": "max_iterations",
    "save_interval": "save_interval",
    "stagger_episodes": "init_at_random_ep_len",
}
ALGORITHM = {
    "ppo.gamma": "gamma",
    "ppo.lam": "lam",
    "ppo.clip": "clip_param",
    "ppo.epochs": "num_learning_epochs",
    "ppo.minibatches": "num_mini_batches",
    "ppo.learning_rate": "learning_rate",
    "ppo.schedule": "schedule",
    "ppo.desired_kl": "desired_kl",
    "ppo.entropy_coef": "entropy_coef",
    "ppo.value_coef": "value_loss_coef",
    "ppo.max_grad_norm": "max_grad_norm",
    "ppo.clip_value_loss": "use_clipped_value_loss",
}
TEAM = {"stagger_episodes": False, "sharing": "separate"}
"""Settings for several agents before those of an environment's own agent: all have the clock of their world."""
PLAIN = (bool, int, float, str)


def learner_changes(agent: Any, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of the learner's settings by dotted name.

    Args:
        agent: An agent's configuration for rsl_rl; None if the environment has none.
        groups: Observation groups of the environment.
    """
    changes = {"actor_groups": _groups(agent, "actor", groups), "critic_groups": _groups(agent, "critic", groups)}
    if agent is None:
        return changes
    changes |= {ours: value for ours, name in RUNNER.items() if (value := _plain(agent, name)) is not None}
    algorithm = getattr(agent, "algorithm", None)
    changes |= {ours: value for ours, name in ALGORITHM.items() if (value := _plain(algorithm, name)) is not None}
    if changes.get("ppo.schedule") not in ("adaptive", "fixed", None):
        del changes["ppo.schedule"]
    for who in ("actor", "critic"):
        changes |= _network(who, getattr(agent, who, None))
    if (normalizes := _plain(getattr(agent, "actor", None), "obs_normalization")) is not None:
        changes["normalize_obs"] = normalizes
    return changes


def team_changes(agent: Any, groups: Mapping[str, Any]) -> dict[str, Any]:
    """Return `learner_changes` for an environment of several agents, whose critic sees all of them.

    Args:
        agent: As of `learner_changes`.
        groups: Its observation groups: "policy", and "state" if the critic of all agents can have it.
    """
    critic = {"critic_groups": ["state" if "state" in groups else "policy"]}
    return learner_changes(agent, {"policy": groups["policy"]}) | TEAM | critic


def action_clip(agent: Any) -> float | None:
    """Return the bound of the actions in the agent's settings; None without one."""
    bound = getattr(agent, "clip_actions", None)
    return float(bound) if isinstance(bound, int | float) and not isinstance(bound, bool) else None


def _groups(agent: Any, who: str, groups: Mapping[str, Any]) -> list[str]:
    """Return the groups that a network sees: the agent's, else "critic" for the critic if there is one, else all."""
    obs_groups = getattr(agent, "obs_groups", None)
    names = obs_groups.get(who) if isinstance(obs_groups, Mapping) else None
    if names and all(name in groups for name in names):
        return list(names)
    return [who] if who in groups else ["policy"] if "policy" in groups else list(groups)


def _network(who: str, model: Any) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    hidden = getattr(model, "hidden_dims", None)
    if isinstance(hidden, list | tuple) and hidden:
        changes[f"{who}.hidden"] = list(hidden)
    if (activation := ACTIVATIONS.get(str(getattr(model, "activation", "")))) is not None:
        changes[f"{who}.activation"] = activation
    if (std := _plain(getattr(model, "distribution_cfg", None), "init_std")) is not None and who == "actor":
        changes["actor.init_std"] = std
    if (kind := _plain(model, "rnn_type")) in ("gru", "lstm"):
        changes |= {f"{who}.memory.kind": kind}
        changes |= {f"{who}.memory.hidden": model.rnn_hidden_dim, f"{who}.memory.layers": model.rnn_num_layers}
    return changes


def _plain(node: Any, name: str) -> Any:
    """Return a setting if it is a number, word or flag; Isaac Lab has markers for missing ones."""
    value = getattr(node, name, None)
    return value if isinstance(value, PLAIN) else None
