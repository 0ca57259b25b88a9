"""Gymnasium's Ant-v5: a four-legged robot runs along x."""

from typing import Any

from robot_rl_envs.mdp import gymnasium, rewards
from robot_rl_envs.task import Event, Sim, Task, Termination

from robot_rl_tasks.gymnasium_v5 import NO_LIMIT, make_gymnasium_task, observed

REQUIRES = "gymnasium"
HEALTHY: dict[str, Any] = {"z_lo": 0.2, "z_hi": 1.0}


def make_task() -> Task:
    """Build the task."""
    return make_gymnasium_task(
        "ant_v5",
        summary="Gymnasium's Ant-v5: a four-legged robot runs along x",
        sim=Sim(timestep=0.01, decimation=5, iterations=100, ls_iterations=50, integrator="rk4"),
        control=1.0,
        observations={
            "pos": observed(gymnasium.floating_pos),
            "vel": observed(gymnasium.all_vel),
            "contact": observed(gymnasium.contact_forces, clip=1.0),
        },
        rewards={
            "forward": (gymnasium.torso_speed, 1.0, {}),
            "healthy": (gymnasium.floating_healthy, 1.0, HEALTHY),
            "control": (rewards.action_size, -0.5, {}),
            "contact": (gymnasium.contact_size, -5e-4, {"clip": 1.0, "most": NO_LIMIT}),
        },
        noise=Event(gymnasium.noise_normal, position=0.1, velocity=0.1),
        unhealthy=Termination(gymnasium.floating_unhealthy, **HEALTHY),
    )
