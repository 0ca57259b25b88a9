"""Tasks of the command line that are environments of Gymnasium: their settings, and what cannot be done with them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from robot_rl.cli.tree import coerce, refuse_engine
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.cli.settings import TrainCfg

PREFIX = "gym:"
ENGINE = "gymnasium"
NUM_ENVS = 8
PRESET = {
    "num_steps": 256,
    "max_iterations": 500,
    "stagger_episodes": False,
    "normalize_values": True,
    "actor.hidden": [64, 64],
    "actor.activation": "tanh",
    "critic.hidden": [64, 64],
    "critic.activation": "tanh",
    "ppo.epochs": 10,
    "ppo.minibatches": 32,
    "ppo.learning_rate": 3e-4,
    "ppo.schedule": "linear",
    "ppo.entropy_coef": 0.0,
    "ppo.max_grad_norm": 0.5,
}
"""Where every environment starts from: a million steps of few worlds."""
PRESET_CHOICES = {"ppo.entropy_coef": 0.01}
"""On top, where actions are choices."""
OWN = ("vectorization", "actions", "env")
"""Settings that take the place of a task's numbers."""


def is_gym(name: Any) -> bool:
    """Whether a task's name is that of an environment of Gymnasium."""
    return str(name).startswith(PREFIX)


def default_parts(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of such a task before anything is overridden.

    Args:
        name: "gym:" and the environment's id.

    Returns:
        The learner's settings, and those in OWN.

    Raises:
        UserError: there is no such environment, it cannot be made here, or it cannot be learned from.
    """
    from robot_rl.gym.task import GymTask, default_settings, default_vectorization

    task = GymTask(name=name, vectorization=default_vectorization(name))
    task.settings = default_settings(task)
    described = task.describe()
    groups = {f"{who}_groups": list(names) for who, names in described.default_groups.items()}
    changes = PRESET | (PRESET_CHOICES if described.is_discrete else {}) | groups
    return changes, {"vectorization": task.vectorization, "actions": task.actions, "env": task.settings}


def resolve_task(tree: Mapping[str, Any]) -> Any:
    """The `robot_rl.gym.task.GymTask` that a tree stands for.

    Raises:
        UserError: a value of the wrong type, or a setting that only tasks of ours have.
    """
    from robot_rl.gym.task import GymTask, default_settings

    refuse_engine(tree, ENGINE, "leave engine= out")
    task = GymTask(name=str(tree["task"]), vectorization=str(tree["vectorization"]), actions=str(tree["actions"]))
    known = default_settings(task)
    given = tree["env"]
    if not isinstance(given, Mapping):
        raise UserError(f"env={given!r}: is a group; set one of {', '.join(f'env.{key}' for key in known)}")
    strange = [key for key in given if key not in known]
    if strange:
        # The tree was made for worlds one by one; what is as it was then need not exist.
        usual = default_settings(GymTask(name=task.name))
        for key in strange:
            if given[key] != usual.get(key):
                raise UserError(f"env.{key}={given[key]}: vectorization={task.vectorization} has no such setting")
    task.settings = {key: _coerce(known[key], given[key], f"env.{key}") for key in known if key in given}
    return task


def _coerce(old: Any, new: Any, path: str) -> Any:
    return new if new is None or old is None else coerce(old, new, path)


def check_learner(env: Any, cfg: "TrainCfg") -> None:
    """Refuse a learner that would learn the wrong thing in an environment.

    Raises:
        UserError: rsl_rl's runner with choices as actions, or with steps that are resets.
    """
    if cfg.learner.name != "rsl_rl":
        return
    if env.action_choices is not None:
        raise UserError(f"learner=rsl_rl: the actions of {cfg.task.name} are choices; use learner=ppo")
    if env.autoreset.name == "NEXT_STEP":
        raise UserError(
            f"learner=rsl_rl: it would learn from the steps that reset worlds of {cfg.task.name}; use learner=ppo"
        )
