"""Tasks of the command line that are environments of others: Gymnasium's and Isaac Lab's."""

from types import ModuleType
from typing import Any

from robot_rl.cli import gym, isaac
from robot_rl.errors import UserError


def whose(name: Any) -> ModuleType | None:
    """The module of this package that knows the environment of that name; None for a task of ours.

    Both have ENGINE, OWN, resolve_task and check_learner.
    """
    return gym if gym.is_gym(name) else isaac if isaac.is_isaac(name) else None


def default_parts(name: str, device: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The learner's settings, the environment's, and the number of worlds, before anything is overridden.

    Args:
        name: The task's name.
        device: "cpu" or "cuda:<index>".

    Raises:
        UserError: There is no such environment, or it cannot be made here.
    """
    if isaac.is_isaac(name):
        return isaac.default_parts(name, device)
    return *gym.default_parts(name), gym.NUM_ENVS


def refuse(name: str, command: str, why: str) -> None:
    """Refuse a command for a task that is an environment of others.

    Args:
        name: The task's name.
        command: The command.
        why: What the environment lacks.

    Raises:
        UserError: It is one.
    """
    if whose(name) is not None:
        raise UserError(f"{command}: {name} {why}")
