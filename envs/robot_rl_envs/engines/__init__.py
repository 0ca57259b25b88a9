"""The physics engines behind one protocol; :func:`make_engine` makes one by name."""

from __future__ import annotations

import difflib
import functools
from importlib import metadata, util
from typing import TYPE_CHECKING

from robot_rl_envs.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from robot_rl_envs.entity.scene import Scene

ENGINES = ("auto", "mujoco", "mujoco_warp", "isaac")

MUJOCO = 4
"""The first version of MuJoCo that steps many worlds by itself."""

__all__ = ["ENGINES", "Engine", "make_engine", "resolve_engine"]


@functools.cache
def mujoco_version() -> str:
    """Return the installed version of MuJoCo; the file that says it takes 8 ms to read."""
    return metadata.version("mujoco")


def resolve_engine(name: str, device: str) -> str:
    """Return the engine that ``name`` means on ``device``.

    "auto" is mujoco_warp on CUDA and mujoco elsewhere; in Isaac Lab's environment, which has an older MuJoCo, isaac.

    Raises:
        ValueError: the name is unknown, or the engine is not installed or does not run on that device.
    """
    if name not in ENGINES:
        near = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"engine={name!r}: must be one of {', '.join(ENGINES)}{hint}")
    cuda = device.startswith("cuda")
    found = mujoco_version()
    is_old = int(found.partition(".")[0]) < MUJOCO
    if name == "auto" and is_old and util.find_spec("isaaclab") is not None:
        return "isaac"
    if name != "isaac" and is_old:
        raise ValueError(
            f"engine={name!r}: MuJoCo {found} is here, {MUJOCO}.0 is needed; where Isaac Lab is use engine=isaac"
        )
    if name == "auto":
        return "mujoco_warp" if cuda else "mujoco"
    if name == "mujoco" and cuda:
        raise ValueError(
            f"engine='mujoco' runs on the CPU, not on device={device!r}: use engine=mujoco_warp or device=cpu"
        )
    if name == "isaac":
        from robot_rl_envs.engines.isaac_scene import check_installed

        check_installed()
    return name


def make_engine(
    name: str | Callable[[Scene], Engine], scene: Scene, *, num_envs: int, device: str, num_threads: int = 0
) -> Engine:
    """Build an engine for ``scene`` with ``num_envs`` worlds.

    ``name`` is one of :data:`ENGINES` or a function of the scene; ``num_threads`` are of the CPU engine, 0: all cores.
    """
    if callable(name):
        return name(scene)
    name = resolve_engine(name, device)
    if name == "mujoco":
        from robot_rl_envs.engines.mujoco import MujocoEngine

        return MujocoEngine(scene, num_envs=num_envs, num_threads=num_threads)
    if name == "isaac":
        from robot_rl_envs.engines.isaac import IsaacEngine

        return IsaacEngine(scene, num_envs=num_envs, device=device)
    from robot_rl_envs.engines.mujoco_warp import MujocoWarpEngine

    return MujocoWarpEngine(scene, num_envs=num_envs, device=device)
