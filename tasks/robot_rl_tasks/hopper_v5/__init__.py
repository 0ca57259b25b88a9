"""Gymnasium's Hopper-v5: a planar robot hops along x on its one leg."""

from typing import Any

from robot_rl_envs.mdp import gymnasium, rewards
from robot_rl_envs.task import Event, Sim, Task, Termination

from robot_rl_tasks.gymnasium_v5 import NO_LIMIT, make_gymnasium_task, observed

REQUIRES = "gymnasium"
HEALTHY: dict[str, Any] = {"z_lo": 0.7, "z_hi": NO_LIMIT, "angle": 0.2, "limit": 100.0}


def make_task() -> Task:
    """Build the task."""
    return make_gymnasium_task(
        "hopper_v5",
        summary="Gymnasium's Hopper-v5: a planar robot hops along x on one leg",
        sim=Sim(timestep=0.002, decimation=4, iterations=100, ls_iterations=50, integrator="rk4"),
        control=1.0,
        observations={"pos": observed(gymnasium.planar_pos), "vel": observed(gymnasium.all_vel, clip=10.0)},
        rewards={
            "forward": (gymnasium.slider_speed, 1.0, {}),
            "healthy": (gymnasium.planar_healthy, 1.0, HEALTHY),
            "control": (rewards.action_size, -1e-3, {}),
        },
        noise=Event(gymnasium.noise_uniform, position=5e-3, velocity=5e-3),
        unhealthy=Termination(gymnasium.planar_unhealthy, **HEALTHY),
    )
