"""A task that is a registered environment of Gymnasium, named ``gym:<id>``."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError
from robot_rl.sources.external import import_registering, missing_module, one_line, split_name

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

    from robot_rl.sources.gymnasium.adapter import GymEnv

PREFIX = "gym:"
VECTORIZATIONS = {"sync": "sync", "async": "async", "own": "vector_entry_point"}
"""Names of a vectorization, ours and Gymnasium's."""
OWN_SETTINGS = ("render_mode", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Arguments of an environment that are not the user's to set."""
LINGER_S = 30
"""How long a world's process stays alive after SIGTERM [s], while the learner finishes its iteration and saves."""


@dataclass(kw_only=True, slots=True)
class GymTask:
    """An environment of Gymnasium, and how it is made.

    Attributes:
        name: "gym:" and the environment's id, with "<module>:" before the id if a module registers it.
        vectorization: "sync" (one process), "async" (a process a world) or "own" (its own vector environment).
        actions: Mapping of actions to a Box: see `robot_rl.sources.gymnasium.spaces.ActionMap`.
        settings: Arguments of the environment by name.
    """

    name: str
    vectorization: str = "sync"
    actions: str = "clip"
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the choices."""
        from robot_rl.sources.gymnasium.spaces import MAPPINGS

        for key, value, right in (
            ("vectorization", self.vectorization, tuple(VECTORIZATIONS)),
            ("actions", self.actions, MAPPINGS),
        ):
            if value not in right:
                raise UserError(key, value, f"must be one of {', '.join(right)}")

    @property
    def id(self) -> str:
        """Return the environment's id, with its module if there is one."""
        return self.name.removeprefix(PREFIX)

    def make_vector(self, num_envs: int, render_mode: str | None = None) -> VectorEnv:
        """Make the vector environment; finished worlds are reset within the step if that can be chosen.

        Args:
            num_envs: Number of worlds.
            render_mode: "rgb_array" for images.

        Raises:
            UserError: There is no such environment, a dependency is missing, or an argument does not fit.
        """
        with gymnasium_errors(self.name) as gymnasium:
            options: dict[str, Any] = {}
            if self.vectorization != "own":
                # The adapter copies the observations in any case.
                options["vector_kwargs"] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP, "copy": False}
            if self.vectorization == "async":
                options["wrappers"] = [_ignore_signals]
            if render_mode is not None:
                options["render_mode"] = render_mode
            mode = VECTORIZATIONS[self.vectorization]
            changed = {key: value for key, value in self.settings.items() if value != default_settings(self).get(key)}
            return gymnasium.make_vec(self.id, num_envs, vectorization_mode=mode, **options, **changed)

    def make_env(
        self, num_envs: int, *, seed: int | None = None, device: str = "cpu", render_mode: str | None = None
    ) -> GymEnv:
        """Make the environment that the learner takes.

        Args:
            num_envs: Number of worlds.
            seed: Of the worlds.
            device: Device of the learner.
            render_mode: "rgb_array" for images.
        """
        from robot_rl.sources.gymnasium.adapter import GymEnv

        env = self.make_vector(num_envs, render_mode)
        limit = self.settings.get("max_episode_steps")
        try:
            return GymEnv(env, seed=seed, device=device, actions=self.actions, max_episode_length=limit)
        except BaseException:
            env.close()
            raise

    def describe(self) -> tuple[dict[str, tuple[str, ...]], bool]:
        """Return the observation groups by "actor" and "critic", and whether actions are choices; one world is made."""
        from robot_rl.sources.gymnasium.spaces import ActionMap, ObservationReader

        single = self if self.vectorization == "own" else GymTask(name=self.name, settings=self.settings)
        with contextlib.closing(single.make_vector(1)) as env:
            groups = ObservationReader(env.single_observation_space).default
            return groups, ActionMap(env.single_action_space, self.actions).choices is not None


@contextlib.contextmanager
def gymnasium_errors(name: str) -> Iterator[Any]:
    """Import gymnasium, and convert its errors about the environment `name` inside to `UserError`."""
    try:
        import gymnasium
        from gymnasium import error
    except ModuleNotFoundError:
        raise UserError("task", name, "Gymnasium is not installed", "pip install 'robot-rl[gymnasium]'") from None
    try:
        yield gymnasium
    except (error.Error, error.DeprecatedWrapper) as problem:
        raise UserError("task", name, one_line(problem)) from problem
    except ModuleNotFoundError as problem:
        raise missing_module(name, problem) from problem


def find_spec(name: str) -> EnvSpec:
    """Return the registration of an environment; raise UserError, with the nearest, without one."""
    module, env_id = split_name(name, PREFIX, "HalfCheetah-v5")
    with gymnasium_errors(name) as gymnasium:
        import_registering(name, module)
        return gymnasium.spec(env_id)


def default_vectorization(name: str) -> str:
    """Return "sync" where single worlds can be made, else "own"."""
    return "own" if find_spec(name).entry_point is None else "sync"


def default_settings(task: GymTask) -> dict[str, Any]:
    """Return the arguments of an environment that are numbers, words or flags, with their defaults."""
    spec = find_spec(task.name)
    entry = spec.vector_entry_point if task.vectorization == "own" else spec.entry_point
    if entry is None:
        kind = "vector environment of its own" if task.vectorization == "own" else "environment of one world"
        raise UserError("vectorization", task.vectorization, f"{task.name} has no {kind}")
    with gymnasium_errors(task.name) as gymnasium:
        creator = gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    given: dict[str, Any] = dict(spec.kwargs)
    with contextlib.suppress(ValueError):  # Some are compiled, without a signature.
        parameters = inspect.signature(creator).parameters.values()
        given = {parameter.name: parameter.default for parameter in parameters} | given
    settings = {name: value for name, value in given.items() if _is_plain(value) and name not in OWN_SETTINGS}
    # Gymnasium limits single worlds by a wrapper, and a vector environment if the registration has a limit.
    has_clock = task.vectorization != "own" or spec.max_episode_steps is not None
    return ({"max_episode_steps": spec.max_episode_steps} if has_clock else {}) | settings


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _ignore_signals(env: Any) -> Any:
    """Ignore Ctrl-C and a scheduler's signals in a world's process: the learner finishes its iteration first."""
    if multiprocessing.parent_process() is not None:
        for number in (signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _linger)
    return env


def _linger(number: int, frame: FrameType | None) -> None:
    """Stay alive for a while after SIGTERM: a scheduler may send it to every process of a job, or the learner does."""
    signal.signal(number, signal.SIG_IGN)
    signal.alarm(LINGER_S)
