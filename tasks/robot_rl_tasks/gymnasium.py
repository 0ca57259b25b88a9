"""Registers every task with Gymnasium when it is imported: ``robot_rl/<task>-v0``, one world or a vector of them.

    import gymnasium
    import robot_rl_tasks.gymnasium
    envs = gymnasium.make_vec("robot_rl/go2_flat-v0", num_envs=64, vectorization_mode="vector_entry_point")

``gymnasium.make_vec("robot_rl_tasks.gymnasium:robot_rl/go2_flat-v0", ...)`` needs no import before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.envs import registration

from robot_rl_tasks.registry import get_task, list_tasks

if TYPE_CHECKING:
    from robot_rl_envs.adapters.gymnasium_env import TaskEnv, TaskVectorEnv

NAMESPACE, VERSION = "robot_rl", 0


def env_id(task: str) -> str:
    """The id under which a task is registered."""
    return f"{NAMESPACE}/{task}-v{VERSION}"


def make_vector(
    task: str,
    num_envs: int = 1,
    *,
    groups: Any = "actor",
    engine: str = "auto",
    device: str = "cpu",
    num_threads: int = 0,
    **options: Any,
) -> TaskVectorEnv:
    """Make worlds of a task; see `robot_rl_envs.adapters.gymnasium_env.TaskVectorEnv`.

    Args:
        task: the task's name.
        num_envs: number of worlds.
        groups: the observation group that is the observation, a list of them, or "all".
        engine: "auto", "mujoco" or "mujoco_warp".
        device: "cpu", "cuda" or "cuda:k".
        num_threads: threads of the CPU engine; 0 takes all cores.
        options: seed, autoreset_mode, render_mode.

    Raises:
        ValueError: no such task, or an option that does not fit; one line.
    """
    from robot_rl_envs.adapters.gymnasium_env import TaskVectorEnv

    options |= {"engine": engine, "device": device, "num_threads": num_threads}
    return TaskVectorEnv(get_task(task), num_envs, groups=groups, **options)


def make_one(
    task: str,
    *,
    groups: Any = "actor",
    engine: str = "auto",
    device: str = "cpu",
    num_threads: int = 0,
    **options: Any,
) -> TaskEnv:
    """Make one world of a task; see `make_vector` for the arguments."""
    from robot_rl_envs.adapters.gymnasium_env import TaskEnv

    options |= {"engine": engine, "device": device, "num_threads": num_threads}
    return TaskEnv(get_task(task), groups=groups, **options)


def register() -> None:
    """Register every task that is not registered yet."""
    for task in list_tasks():
        if env_id(task) not in registration.registry:
            registration.register(
                env_id(task),
                entry_point=f"{__name__}:make_one",
                vector_entry_point=f"{__name__}:make_vector",
                kwargs={"task": task},
            )


register()
