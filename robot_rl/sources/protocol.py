"""The interface of a source of tasks: everything that the commands need to know about the origin of a task.

Your own source is a subclass of `TaskSource` in one file, named by an entry point in the group `robot_rl.sources`
(docs/plugins.md). Four methods are enough to train, resume, evaluate and report.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from robot_rl.errors import UserError
from robot_rl.settings import LearnerCfg

NEEDS_OUR_TASK = {
    "play": "is not a scene that the browser can show; robot-rl eval reports figures",
    "video": "cannot be filmed here; robot-rl eval reports figures",
    "record": "has no observation group of terms to record, an environment of ours has",
    "sim2sim": "is not simulated by us, so that no binary could command its robot here",
    "certify": "is not simulated by us, so that no robot's properties can be varied",
    "export": "names no robot's joints and sensors, so there is no contract to write; eval needs none",
    "bench env": "is no environment of ours; benchmarks/gymnasium_v5.py compares with others",
    "cross": "has physics of its own; cross compares our tasks",
}
"""Commands that need a task of robot-rl, and why others do not do."""


@dataclass(kw_only=True, slots=True)
class Defaults:
    """The settings of a task before anything is overridden.

    Attributes:
        presets: Changes of the learner's settings by dotted name, for each learner by its name; those for "ppo" are
            also for the learners that share its settings.
        settings: The settings of the task or environment: plain nested values, each overridden by name.
        num_envs: Number of worlds.
        learner: The learner if the user names none.
    """

    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    num_envs: int = 8
    learner: str = "ppo"


@dataclass(kw_only=True, slots=True)
class Resolved:
    """The objects that a tree of settings stands for.

    Attributes:
        task: The task; the source's own type, with a `name` for folders and messages.
        engine: The simulator.
        keys: The top-level keys of the tree that are the source's; the others are the learner's.
        recorded: Values that run.yaml has in place of the given ones, such as the content of files.
    """

    task: Any
    engine: str
    keys: tuple[str, ...] = ()
    recorded: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class EnvOptions:
    """The worlds of an environment.

    Attributes:
        num_envs: Their number.
        seed: Of their random streams.
        device: "cpu" or "cuda:<index>".
        engine: As `Resolved.engine`.
        num_threads: Threads of an engine on the CPU; 0 takes all cores.
        first: Index of the first one: other processes have those before. Its seed must depend on it.
        kernels: The folder with kernels that were compiled for the GPU; None without one.
    """

    num_envs: int
    seed: int
    device: str = "cpu"
    engine: str = ""
    num_threads: int = 0
    first: int = 0
    kernels: Path | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class EvaluationCfg:
    """The settings of an evaluation.

    Attributes:
        seconds: Longest episode [s], at most the task's own; None: the source's default.
        steps: Longest episode [steps]; 0: its own limit.
        form: "torch", "onnx" or "both".
    """

    episodes: int
    seed: int
    seconds: float | None = None
    steps: int = 0
    form: str = "both"


class TaskSource(ABC):
    """A source of tasks.

    Attributes:
        name: Its name.
        pattern: How its tasks are written, such as "gym:<id>".
        summary: A line about them.
        settings_help: Lines about settings that only its tasks have, for `robot-rl train --help`.
        unsupported: Commands that its tasks do not support, with the reason as it follows the task's name.
        adds_groups: Whether `with_groups` can add observation groups to a task.
    """

    name: ClassVar[str] = ""
    pattern: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    settings_help: ClassVar[str] = ""
    unsupported: ClassVar[Mapping[str, str]] = NEEDS_OUR_TASK
    adds_groups: ClassVar[bool] = False

    @abstractmethod
    def owns(self, name: str) -> bool:
        """Return whether a task's name is of this source, without importing anything."""

    @abstractmethod
    def defaults(self, name: str, device: str) -> Defaults:
        """Return the settings of a task before anything is overridden.

        Args:
            name: The task's name.
            device: "cpu" or "cuda:<index>".

        Raises:
            UserError: There is no such task, or it cannot be made here.
        """

    @abstractmethod
    def resolve(self, tree: Mapping[str, Any], device: str) -> Resolved:
        """Return the task of a tree of settings, checked.

        Args:
            tree: The whole tree: front keys, the learner's settings, and those of `Defaults.settings`.
            device: "cpu" or "cuda:<index>".

        Raises:
            UserError: A value of the wrong type or out of range, or a setting that is not for this source.
        """

    @abstractmethod
    def make_env(self, task: Any, worlds: EnvOptions) -> Any:
        """Make the environment of `Resolved.task`: an `rsl_rl.env.VecEnv` with `close()` (see docs/learner.md)."""

    def list_tasks(self) -> dict[str, str]:
        """Return names and summaries of the tasks that can be listed; empty if there are too many."""
        return {}

    def check_learner(self, env: Any, task: Any, learner: LearnerCfg) -> None:  # noqa: B027  (most need none)
        """Raise UserError, which names another, for a learner that would learn the wrong thing in this environment."""

    def admit(self, tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
        """Return a tree that has the settings of these dotted names, if the defaults omit some."""
        return dict(tree)

    def optional_keys(self, name: str) -> set[str]:
        """Return the dotted names of settings that a task can be without (`~key`)."""
        return set()

    def named_code(self, tree: Mapping[str, Any]) -> list[str]:
        """Return the code that settings, of unchecked types, would import or run; see `robot_rl.runs.trust`."""
        return []

    def with_motion(self, task: Any) -> Any:
        """Return a task with the observation group that a motion prior compares, if it can be added."""
        return task

    def with_world(self, task: Any) -> Any:
        """Return a task with the observation group "world", the inputs of a world's next step; raise UserError."""
        raise UserError(
            f"learner=world_model: needs the state of robot-rl's own tasks, this one is of {self.name}; "
            "use learner=ppo or flashsac"
        )

    def with_groups(self, task: Any, other: Any, groups: Iterable[str], field: str) -> tuple[Any, tuple[str, ...]]:
        """Return a task with the observation groups of another one, for a policy that was trained there.

        Args:
            task: The task.
            other: The other task of this source.
            groups: The names of its groups.
            field: "teacher" or "reference", a prefix for names that are taken.

        Returns:
            The task, and the groups' names in it.

        Raises:
            UserError: The other task is for another robot, or its actions have another meaning.
        """
        return task, ()

    def evaluate(self, task: Any, worlds: EnvOptions, policy: Any, cfg: EvaluationCfg) -> dict[str, Any]:
        """Evaluate a policy in fresh worlds; by default the return and the length of whole episodes.

        Args:
            task: `Resolved.task`.
            worlds: The training's worlds, of which there are at most as many.
            policy: A `robot_rl.runs.policies.PolicySource`.
            cfg: The settings.

        Returns:
            The content of eval.json, see `robot_rl.evaluation.rollout`.

        Raises:
            UserError: A setting of the evaluation that is not for this source.
        """
        from robot_rl.evaluation.rollout import MAX_STEPS, evaluate_episodes

        if cfg.form == "onnx":
            raise UserError(f"form=onnx: in {task.name} the torch policy plays; leave form= out")
        if not policy.is_run:
            raise UserError("policy", policy.name, f"in {task.name} a run's policy plays", "give run=")
        if cfg.seconds is not None:
            raise UserError("seconds", f"{cfg.seconds:g}", f"{task.name} counts steps", "give steps=")
        self.limit_episodes(task, cfg.steps, MAX_STEPS)
        few = EnvOptions(num_envs=min(cfg.episodes, worlds.num_envs), seed=cfg.seed, device=worlds.device)
        with contextlib.closing(self.make_env(task, few)) as env:
            limit = cfg.steps or int(env.max_episode_length) or MAX_STEPS
            return evaluate_episodes(env, policy.load(env), cfg.episodes, limit)

    def limit_episodes(self, task: Any, steps: int, most: int) -> None:  # noqa: B027  (most have one)
        """Limit a task's episodes to `steps`, or to `most` where `steps` is 0 and they would never end."""

    def film(
        self, task: Any, worlds: EnvOptions, policy: Any, cfg: Any, write: Callable[[Iterator[Any]], Path]
    ) -> Path:
        """Film a policy.

        Args:
            task: `Resolved.task`.
            worlds: The visible worlds.
            policy: The policy.
            cfg: Settings of the video; `cfg.film(env, policy)` yields frames as MuJoCo draws them.
            write: Writes frames (H, W, 3) uint8 with even sides as a film, and returns its file.
        """
        raise UserError(f"video: {task.name} cannot be filmed here")

    def export(
        self,
        task: Any,
        worlds: EnvOptions,
        actor: Any,
        *,
        groups: tuple[str, ...],
        out: Path,
        training: Any,
        opset: int | None = None,
    ) -> Any:
        """Write the bundle of a policy, and return the report of its check.

        Args:
            task: `Resolved.task`.
            worlds: The training's worlds; one of them is made.
            actor: The trained actor.
            groups: The observation groups that it sees.
            out: The bundle's directory.
            training: The policy's origin, a `robot_rl_deploy.contract.TrainingSpec`.
            opset: Version of the ONNX operators; None for that of the policy's precision.
        """
        raise UserError(f"export: {task.name} cannot be exported")


def require_team_learner(learner: LearnerCfg, task: str, what: str, names: Sequence[str]) -> None:
    """Raise UserError for a learner of one robot with a task of several; `what` they are, and their names."""
    if not getattr(learner, "is_team", False):
        line = f"trains 1 {what}, task={task} has {len(names)}: {', '.join(names)}"
        raise UserError("learner", learner.name, line, "use learner=mappo")


def require_keys(tree: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Raise UserError for the first missing key of a tree."""
    for key in keys:
        if key not in tree:
            raise UserError(f"{key}: is missing, it can be changed but not left out")
