"""Tasks of robot-rl's own kind, on its own engines: the registered ones, plug-ins, and `module:name`."""

import contextlib
import dataclasses
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robot_rl.errors import UserError, as_user_error
from robot_rl.plugins import TASKS, named_here
from robot_rl.settings import LearnerCfg
from robot_rl.settings import tree as trees
from robot_rl.sources.protocol import Defaults, EnvOptions, EvaluationCfg, Resolved, TaskSource, require_team_learner

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

SECONDS = 10.0
"""Default length of an evaluated episode [s]."""


PATIENCE_S = 2.0
"""After this time a person who waits for worlds is told why [s]."""


@contextlib.contextmanager
def _announced(task: str, first: int) -> Iterator[None]:
    """Tell a person at a terminal that worlds are built, if that takes long."""
    line = f"robot-rl: building the worlds of {task}; kernels that are not in the cache are compiled, once"
    timer = threading.Timer(PATIENCE_S, print, (line,), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if sys.stderr.isatty() and first == 0:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class NativeSource(TaskSource):
    """Tasks that are a `robot_rl_envs.task.Task`."""

    name = "robot-rl"
    pattern = "<name>"
    summary = "a task listed here, one of an installed package, or <module>:<function>"
    unsupported: ClassVar[Mapping[str, str]] = {}
    adds_groups = True

    def owns(self, name: str) -> bool:
        """Return True: every name that no other source owns."""
        return True

    def list_tasks(self) -> dict[str, str]:
        """Return names and summaries of the registered tasks, or why a plug-in cannot be used."""
        from robot_rl_tasks.registry import REGISTRY

        return REGISTRY.describe()

    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of a task; on a CPU with its preset for CPUs."""
        task, on_cpu = find_task(name), device == "cpu"
        presets = {"ppo": {**task.learner, **(task.learner_cpu if on_cpu else {})}, **task.presets}
        return Defaults(
            presets=presets,
            settings=trees.task_tree(task),
            num_envs=task.num_envs[0 if on_cpu else 1],
            learner=task.learner_name,
        )

    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the task with the tree's values."""
        from robot_rl_envs.engines import resolve_engine

        task = find_task(str(tree["task"]))
        known = tuple(trees.task_tree(task))
        parts = {key: tree[key] for key in known if key in tree}
        if "metrics" in parts:
            parts["metrics"] = {key: value for key, value in tree["metrics"].items() if key != "wandb"}
        task = trees.apply_tree(_with_new_motions(task, parts), parts)
        if not task.rewards:
            raise UserError("rewards={}: needs at least one term; without a reward nothing is learned")
        with as_user_error():
            engine = resolve_engine(str(tree["engine"]), device)
        # Values read from files are recorded in run.yaml: a run is resumed without the files.
        recorded = {key: trees.task_tree(task)[key] for key in ("actions", "events", "randomize") if key in tree}
        if task.motions:
            task = _with_motion_files(task)
            recorded["motions"] = dict(task.motions)
        return Resolved(task=task, engine=engine, keys=known, recorded=recorded)

    def make_env(self, task: "Task", worlds: EnvOptions) -> Any:
        """Make worlds of a task on one of our engines."""
        from robot_rl_envs.make import make_env

        if worlds.kernels is not None:
            from robot_rl.performance.cache import use_cache

            use_cache(worlds.kernels, worlds.device)
        with as_user_error(), _announced(task.name, worlds.first):
            env = make_env(
                task,
                num_envs=worlds.num_envs,
                device=worlds.device,
                engine=worlds.engine or "auto",
                seed=worlds.seed,
                num_threads=worlds.num_threads,
                world_offset=worlds.first,
            )
        if worlds.kernels is not None:
            from robot_rl.performance.cache import check_cache

            check_cache(worlds.kernels, env)
        return env

    def check_learner(self, env: Any, task: "Task", learner: LearnerCfg) -> None:
        """Raise UserError for a team under a learner of one robot, or the other way round."""
        if len(task.robots) > 1:
            require_team_learner(learner, task.name, "robot", tuple(task.robots))
        if not task.robots and getattr(learner, "is_team", False):
            raise UserError("learner", learner.name, f"is for a team, task={task.name} has 1 robot", "use learner=ppo")

    def admit(self, tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
        """Return a tree with the motions that are added by name (`motions.<name>`) to a task that follows some."""
        motions = tree.get("motions")
        if not isinstance(motions, Mapping) or not motions:
            return dict(tree)
        added = [name for key in keys if key.startswith("motions.") and (name := key.removeprefix("motions."))]
        return {**tree, "motions": {**dict.fromkeys((name for name in added if name.isidentifier()), ""), **motions}}

    def optional_keys(self, name: str) -> set[str]:
        """Return the terms, groups and tiles of a task."""
        return trees.named_parts(find_task(name))

    def named_code(self, tree: Mapping[str, Any]) -> list[str]:
        """Return the module of a task that is written `module:name`, or is of the project in the working folder."""
        from robot_rl_tasks.registry import REGISTRY

        module, colon, _ = str(tree.get("task")).rpartition(":")
        return [module] if colon else named_here(TASKS, tree.get("task"), REGISTRY.files())

    def with_motion(self, task: "Task") -> "Task":
        """Return a task with the poses that a motion prior compares."""
        from robot_rl_envs.motion import with_motion

        return with_motion(task)

    def with_world(self, task: "Task") -> "Task":
        """Return a task with the numbers that a world's next step depends on."""
        from robot_rl_envs.imagination.worlds import with_world

        if task.robots:
            raise UserError(f"learner=world_model: task={task.name} is for several robots; use learner=mappo")
        try:
            return with_world(task)
        except ValueError as error:
            raise UserError(f"learner=world_model: {error}; use learner=ppo or flashsac") from None

    def with_groups(
        self, task: "Task", other: "Task", groups: Iterable[str], field: str
    ) -> tuple["Task", tuple[str, ...]]:
        """Return a task with those groups of another that it lacks, or has differently."""
        here, there = trees.task_tree(task), trees.task_tree(other)
        if task.robot.name != other.robot.name:
            raise UserError(f"is for the robot {other.robot.name}, must be for {task.robot.name}")
        for key, value in there["actions"].items():
            if here["actions"].get(key) != value:
                raise UserError(f"has actions.{key}={value}, must be {here['actions'].get(key)} as in {task.name}")
        observations, names = dict(task.observations), []
        for name in groups:
            is_there = name in observations and here["observations"].get(name) == there["observations"][name]
            if is_there and _functions(observations[name]) == _functions(other.observations[name]):
                names.append(name)
                continue
            names.append(f"{field}_{name}")
            observations[names[-1]] = other.observations[name]
        return dataclasses.replace(task, observations=observations), tuple(names)

    def evaluate(self, task: "Task", worlds: EnvOptions, policy: Any, cfg: EvaluationCfg) -> dict[str, Any]:
        """Evaluate the torch policy and its bundle side by side, an episode a world."""
        from robot_rl.evaluation import evaluate_run, evaluation_task

        seconds = SECONDS if cfg.seconds is None else cfg.seconds
        if cfg.steps:
            raise UserError("steps", cfg.steps, "is for environments of Gymnasium and Isaac Lab", "give seconds=")
        fresh = dataclasses.replace(worlds, num_envs=cfg.episodes, seed=cfg.seed)
        torch_policy = None if cfg.form == "onnx" else policy.torch_policy()
        if cfg.form == "torch" and torch_policy is None:
            raise UserError("form", cfg.form, "a bundle has only onnx", "use form=onnx, or a run")
        exports = task.deployable and cfg.form != "torch"
        bundle = policy.find_bundle() if exports else None
        return evaluate_run(
            functools.partial(self.make_env, evaluation_task(task), fresh),
            policy=torch_policy,
            bundle=bundle,
            seconds=seconds,
        ) | {"engine": worlds.engine}

    def film(
        self, task: "Task", worlds: EnvOptions, policy: Any, cfg: Any, write: Callable[[Iterator[Any]], Path]
    ) -> Path:
        """Film a policy as MuJoCo draws it."""
        with contextlib.ExitStack() as stack:
            env = stack.enter_context(contextlib.closing(self.make_env(task, worlds)))
            return write(stack.enter_context(contextlib.closing(cfg.film(env, policy.load(env)))))

    def export(
        self,
        task: "Task",
        worlds: EnvOptions,
        actor: Any,
        *,
        groups: tuple[str, ...],
        out: Path,
        training: Any,
        opset: int | None = None,
    ) -> Any:
        """Write the bundle of a policy, with a golden sequence of one world."""
        from robot_rl_deploy.export import export_policy

        one = dataclasses.replace(worlds, num_envs=1)
        with contextlib.closing(self.make_env(task, one)) as env, as_user_error():
            env.policy_groups = groups
            if hasattr(actor, "actors"):
                from robot_rl.evaluation.team_rows import export_team

                return export_team(env, actor, out, training=training, opset=opset)
            return export_policy(env, actor, out, run=training, opset=opset)


def _with_new_motions(task: "Task", parts: Mapping[str, Any]) -> "Task":
    """Return a task with the motions that the settings add, so that the task has every name that they set."""
    added = parts.get("motions")
    if not task.motions or not isinstance(added, Mapping):
        return task
    with as_user_error():
        return dataclasses.replace(task, motions={**task.motions, **added})


def _with_motion_files(task: "Task") -> "Task":
    """Return a task with an absolute path of every motion that is not of the robot's library."""
    from robot_rl_envs.motions.files import find_motion, library

    known, paths = library(task.robot), {}
    with as_user_error():
        for name, value in task.motions.items():
            path = find_motion(value, task.robot, f"motions.{name}")
            paths[name] = value if value in known else str(path.resolve())
        return dataclasses.replace(task, motions=paths)


def find_task(name: str) -> "Task":
    """Return the task called `name`; raise UserError, with the nearest, if there is none."""
    from robot_rl_tasks.registry import get_task

    try:
        return get_task(name)
    except ValueError as error:
        # A name with this ending is probably an id of Gymnasium.
        hint = f"; an environment of Gymnasium is task=gym:{name}" if re.search(r"-v\d+$", name) else ""
        hint = f"; an environment of Isaac Lab is task=isaac/{name}" if name.startswith("Isaac") else hint
        raise UserError(f"{error}{hint}") from error


def _functions(group: Any) -> list[Any]:
    return [getattr(term, "fn", None) for term in getattr(group, "terms", {}).values()]
