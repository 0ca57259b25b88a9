"""The source of tasks that are environments of Gymnasium."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg
from robot_rl.settings.tree import coerce
from robot_rl.settings.words import MAX_COUNT
from robot_rl.sources.external import ExternalSource
from robot_rl.sources.protocol import NEEDS_OUR_TASK, Defaults, EnvOptions, Resolved

if TYPE_CHECKING:
    from robot_rl.sources.gymnasium.task import GymTask

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
"""Defaults of every environment: a million steps of few worlds."""
PRESET_CHOICES = {"ppo.entropy_coef": 0.01}
"""In addition, if actions are choices."""


class GymnasiumSource(ExternalSource):
    """Tasks that are a `robot_rl.sources.gymnasium.task.GymTask`."""

    name = engine = "gymnasium"
    prefix = "gym:"
    keys = ("vectorization", "actions", "env")
    instead = "leave engine= out"
    pattern = "gym:<id>"
    summary = "any environment of Gymnasium, such as gym:HalfCheetah-v5 or gym:<module>:<id>"
    settings_help = """\
of an environment of Gymnasium:
  vectorization=sync|async|own                       one process, a process a world, its own vector environment
  actions=clip|rescale                               clip actions to their box, or stretch [-1, 1] onto it
  env.<argument>=                                    an argument of its constructor, and env.max_episode_steps
"""
    unsupported: ClassVar[Mapping[str, str]] = {key: why for key, why in NEEDS_OUR_TASK.items() if key != "video"} | {
        "play": "is not a scene that the browser can show; robot-rl video films it"
    }

    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of an environment, after making one world of it."""
        from robot_rl.sources.gymnasium.task import GymTask, default_settings, default_vectorization

        task = GymTask(name=name, vectorization=default_vectorization(name))
        task.settings = default_settings(task)
        default_groups, is_discrete = task.describe()
        groups = {f"{who}_groups": list(names) for who, names in default_groups.items()}
        changes = PRESET | (PRESET_CHOICES if is_discrete else {}) | groups
        settings = {"vectorization": task.vectorization, "actions": task.actions, "env": task.settings}
        return Defaults(presets={"ppo": changes}, settings=settings)

    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the environment with the tree's arguments."""
        from robot_rl.sources.gymnasium.task import GymTask, default_settings

        given = self.check_tree(tree, "such as env.max_episode_steps")
        task = GymTask(name=str(tree["task"]), vectorization=str(tree["vectorization"]), actions=str(tree["actions"]))
        known = default_settings(task)
        strange = [key for key in given if key not in known]
        if strange:
            # The tree was made with single worlds; their default settings need not exist here.
            usual = default_settings(GymTask(name=task.name))
            for key in strange:
                if given[key] != usual.get(key):
                    raise UserError(f"env.{key}", given[key], f"vectorization={task.vectorization} has no such setting")
        task.settings = {key: _coerce(known[key], given[key], f"env.{key}") for key in known if key in given}
        limit = task.settings.get("max_episode_steps")
        if limit is not None and not (isinstance(limit, int) and (limit == -1 or 1 <= limit <= MAX_COUNT)):
            right = f"a whole number of at least 1 and at most {MAX_COUNT}, or -1 for no limit"
            raise UserError("env.max_episode_steps", limit, f"must be {right}")
        return Resolved(task=task, engine=self.engine, keys=self.keys)

    def check_learner(self, env: Any, task: "GymTask", learner: LearnerCfg) -> None:
        """Refuse rsl_rl's runner with choices as actions, or with steps that are resets."""
        super().check_learner(env, task, learner)
        if learner.name == "rsl_rl" and env.autoreset.name == "NEXT_STEP":
            raise UserError(f"learner=rsl_rl: would learn from steps that reset worlds of {task.name}; use learner=ppo")

    def limit_episodes(self, task: "GymTask", steps: int, most: int) -> None:
        """Set the environment's time limit, if it has a clock."""
        if "max_episode_steps" in task.settings:
            task.settings["max_episode_steps"] = steps or max(0, task.settings["max_episode_steps"] or 0) or most

    def film(
        self, task: "GymTask", worlds: EnvOptions, policy: Any, cfg: Any, write: Callable[[Iterator[Any]], Path]
    ) -> Path:
        """Film an environment that renders itself."""
        from robot_rl.sources.gymnasium.adapter import frames
        from robot_rl.sources.gymnasium.task import gymnasium_errors

        for key, field in (("robots", "num_robots"), ("width", "width"), ("height", "height")):
            if getattr(cfg, field) != getattr(type(cfg)(), field):
                raise UserError(key, getattr(cfg, field), f"{task.name} renders itself", f"leave {key}= out")
        if task.vectorization == "async":
            task.vectorization = "sync"
        with gymnasium_errors(task.name), contextlib.ExitStack() as stack:
            env = stack.enter_context(contextlib.closing(task.make_env(1, seed=worlds.seed, render_mode="rgb_array")))
            return write(frames(env, policy.load(env), cfg.seconds, cfg.fps))


def _coerce(old: Any, new: Any, path: str) -> Any:
    return new if new is None or old is None else coerce(old, new, path)
