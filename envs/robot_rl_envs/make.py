"""Build an environment from a task, with clear errors for settings that do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_rl_envs.env import Env
    from robot_rl_envs.task import Task


def make_env(
    task: Task,
    *,
    num_envs: int,
    device: str = "cpu",
    engine: str = "auto",
    seed: int = 0,
    num_threads: int = 0,
    world_offset: int = 0,
) -> Env:
    """Build ``num_envs`` worlds of ``task``; of a task with several robots a team's, with a row for each robot.

    Args:
        task: the task to simulate.
        num_envs: at least 1.
        device: "cpu", "cuda" or "cuda:k".
        engine: "auto", "mujoco" (CPU threads), "mujoco_warp" (GPU) or "isaac" (Isaac Lab on Newton).
        seed: seed of all random streams.
        num_threads: threads of the CPU engine; 0 uses all cores.
        world_offset: global index of the first world, if worlds are spread over processes.

    Raises:
        ValueError: one line that names the field, its value and the right ones.
    """
    for name, value, least in (("num_envs", num_envs, 1), ("num_threads", num_threads, 0), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r}: must be an integer of at least {least}")
    if device != "cpu" and not device.startswith("cuda"):
        raise ValueError(f"device={device!r}: must be cpu, cuda or cuda:<index>")
    from robot_rl_envs.engines import resolve_engine

    resolve_engine(engine, device)
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise ValueError(f"device={device!r}: no CUDA device is visible to PyTorch; use device=cpu")
    options: dict[str, Any] = {"num_envs": num_envs, "device": device, "engine": engine, "seed": seed}
    options |= {"num_threads": num_threads, "world_offset": world_offset}
    from robot_rl_envs.env import Env

    return Env(task, **options)
