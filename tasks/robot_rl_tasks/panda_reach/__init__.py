"""Franka Panda moves the point between its fingertips to a target, and holds it there."""

from typing import Any

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import commands, events, objects, observations, rewards
from robot_rl_envs.task import (
    Actions,
    Command,
    Event,
    Metric,
    Observation,
    ObservationGroup,
    Reward,
    Sim,
    Task,
)

HAND = "hand_tcp"
REACH_M: dict[str, Any] = {"x_lo": 0.3, "x_hi": 0.6, "y_lo": -0.35, "y_hi": 0.35, "z_lo": 0.15, "z_hi": 0.6}
"""Box of the targets in the frame of the arm's root."""
SIM = Sim(timestep=0.005, decimation=4, iterations=5, ls_iterations=8)


def make_task() -> Task:
    """Build the task."""
    sensed = {
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.002),
        "joint_vel": Observation(observations.joint_vel, noise=0.05, scale=0.3),
        "target": Observation(observations.command),
        "last_action": Observation(observations.last_action, scale=0.3),
    }
    privileged = {"hand": Observation(objects.site_to_target, site=HAND)}
    return Task(
        name="panda_reach",
        summary="Franka Panda brings its hand to a target and holds it there",
        robot=get_robot("franka_panda"),
        sim=SIM,
        episode_length_s=4.0,
        actions=Actions(kind="position", scale=2.0, limit_speed=0.8),
        observations={
            "actor": ObservationGroup(terms=sensed),
            "critic": ObservationGroup(terms=sensed | privileged, noise=False),
        },
        rewards={
            "reach": Reward(objects.reach_target, weight=1.0, site=HAND, std=0.3),
            "precise": Reward(objects.reach_target, weight=2.0, site=HAND, std=0.03),
            "action_rate": Reward(rewards.action_rate, weight=-0.03),
            "joint_vel": Reward(rewards.joint_vel_size, weight=-0.01),
            "torque": Reward(rewards.joint_torque, weight=-2e-5),
        },
        commands={"target": Command(commands.uniform_position, resample_s=(4.0, 4.0), site=HAND, **REACH_M)},
        events={"joints": Event(events.reset_joints, position=0.3, velocity=0.0)},
        metrics={
            "success": Metric(objects.site_reached, over="end", site=HAND, distance=0.02),
            "error": Metric(objects.site_error, after_s=2.0, site=HAND),
        },
        solved=("tracking/success", 0.8),
        num_envs=(512, 4096),
        learner={
            "num_steps": 16,
            "max_iterations": 250,
            "ppo.gamma": 0.95,
            "ppo.entropy_coef": 0.002,
            "actor.init_std": 0.5,
            "actor.hidden": [64, 64],
            "critic.hidden": [64, 64],
        },
        # Targets stay near the measured positions, so an action beyond that is without a gradient.
        presets={
            "world_model": {
                "max_iterations": 120,
                "actor.distribution": "squashed",
                "actor.bound": 1.5,
                "world_model.critic_steps": 4,
                # Far from the target real sums are near zero, and a gap as a share of them says little.
                "world_model.horizon": 32,
                "world_model.max_gap": 3.0,
            }
        },
    )
