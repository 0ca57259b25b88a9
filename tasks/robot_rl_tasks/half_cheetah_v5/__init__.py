"""Gymnasium's HalfCheetah-v5: a planar runner with a front and a back leg runs along x."""

from robot_rl_envs.mdp import gymnasium, rewards
from robot_rl_envs.task import Event, Sim, Task

from robot_rl_tasks.gymnasium_v5 import make_gymnasium_task, observed

REQUIRES = "gymnasium"


def make_task() -> Task:
    """Build the task."""
    return make_gymnasium_task(
        "half_cheetah_v5",
        summary="Gymnasium's HalfCheetah-v5: a planar runner runs along x",
        sim=Sim(timestep=0.01, decimation=5, iterations=100, ls_iterations=50, integrator="euler"),
        control=1.0,
        observations={"pos": observed(gymnasium.planar_pos), "vel": observed(gymnasium.all_vel)},
        rewards={
            "forward": (gymnasium.slider_speed, 1.0, {}),
            "control": (rewards.action_size, -0.1, {}),
        },
        noise=Event(gymnasium.noise_normal, position=0.1, velocity=0.1),
    )
