"""Gymnasium's Humanoid-v5: a humanoid walks along x."""

from typing import Any

from robot_rl_envs.mdp import gymnasium, rewards
from robot_rl_envs.task import Event, Sim, Task, Termination

from robot_rl_tasks.gymnasium_v5 import NO_LIMIT, make_gymnasium_task, observed

REQUIRES = "gymnasium"
HEALTHY: dict[str, Any] = {"z_lo": 1.0, "z_hi": 2.0}
CONTACT, MOST = 5e-7, 10.0
"""Weight of the contact cost, and its maximum, in a step."""


def make_task() -> Task:
    """Build the task."""
    return make_gymnasium_task(
        "humanoid_v5",
        summary="Gymnasium's Humanoid-v5: a humanoid walks along x",
        sim=Sim(timestep=0.003, decimation=5, solver="pgs", iterations=50, ls_iterations=50, integrator="rk4"),
        control=0.4,
        observations={
            "pos": observed(gymnasium.floating_pos),
            "vel": observed(gymnasium.all_vel),
            "inertias": observed(gymnasium.body_inertias),
            "velocities": observed(gymnasium.body_velocities),
            "forces": observed(gymnasium.actuator_forces),
            "contact": observed(gymnasium.contact_forces),
        },
        rewards={
            "forward": (gymnasium.mass_speed, 1.25, {}),
            "healthy": (gymnasium.floating_healthy, 5.0, HEALTHY),
            "control": (rewards.action_size, -0.1, {}),
            "contact": (gymnasium.contact_size, -CONTACT, {"clip": NO_LIMIT, "most": MOST / CONTACT}),
        },
        noise=Event(gymnasium.noise_uniform, position=0.01, velocity=0.01),
        unhealthy=Termination(gymnasium.floating_unhealthy, **HEALTHY),
    )
