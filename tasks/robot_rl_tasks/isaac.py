"""Tasks of ours among Isaac Lab's environments: importing this registers them.

import gymnasium, robot_rl_tasks.isaac
from isaaclab_tasks.utils import parse_env_cfg
cfg = parse_env_cfg("RobotRL-Go2-Flat-v0", device="cpu", num_envs=64)
env = gymnasium.make("RobotRL-Go2-Flat-v0", cfg=cfg)
"""

from __future__ import annotations

from typing import Any

IDS = {"RobotRL-Go2-Flat-v0": "go2_flat", "RobotRL-Cartpole-v0": "cartpole"}
"""Isaac Lab's id of each task."""


def go2_flat_cfg() -> Any:
    """The Go2 that follows a velocity command on flat ground."""
    return _cfg("go2_flat")


def cartpole_cfg() -> Any:
    """The cart-pole that swings up."""
    return _cfg("cartpole")


def _cfg(name: str) -> Any:
    from robot_rl_envs.adapters.isaac_env import make_cfg

    from robot_rl_tasks.registry import get_task

    return make_cfg(get_task(name))


def register() -> None:
    """Register every environment of IDS with Gymnasium; a second time changes nothing."""
    import gymnasium

    for name, task in IDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point="robot_rl_envs.adapters.isaac_env:RobotEnv",
                disable_env_checker=True,
                kwargs={"env_cfg_entry_point": f"{__name__}:{task}_cfg"},
            )


register()
