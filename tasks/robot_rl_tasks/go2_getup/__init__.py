"""Unitree Go2 gets up from wherever it fell: dropped in any pose, it stands within 3 s."""

import math

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, metrics, observations, rewards
from robot_rl_envs.task import Actions, Event, Metric, Observation, ObservationGroup, Reward, Sim, Task

from robot_rl_tasks import legged

STANDING_M = 0.24
"""Height of the base from which it stands; it is 0.27 m in the default pose under its weight."""
DROPPED_M = 0.15
"""Height above the default pose from which it falls: no leg can reach the ground at the start."""


def _observations() -> dict[str, ObservationGroup]:
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height, scale=3.0),
        "contact": Observation(observations.foot_contact),
    }
    return legged.actor_and_critic(legged.proprioception(), privileged)


def make_task() -> Task:
    """Build the task."""
    return Task(
        name="go2_getup",
        summary="Unitree Go2 gets up from any pose",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=5, ls_iterations=8),
        episode_length_s=4.0,
        actions=Actions(kind="position", scale=2.0),
        observations=_observations(),
        rewards={
            "upright": Reward(rewards.upright, weight=1.0),
            "rise": Reward(rewards.rise, weight=2.0, height=0.27),
            "stance": Reward(rewards.stance, weight=2.0, std=1.0),
            "joint_vel": Reward(rewards.joint_vel_size, weight=-2e-4),
            "torque": Reward(rewards.joint_torque, weight=-1e-4),
            "action_rate": Reward(rewards.action_rate, weight=-0.01),
            "limits": Reward(rewards.joint_limits, weight=-0.5, soft=0.95),
        },
        events=legged.randomization(
            "base_link", least_friction=0.4, drop=Event(events.reset_anyhow, height=DROPPED_M, joints=0.8)
        ),
        metrics={
            "standing": Metric(
                metrics.standing, over="min", after_s=3.0, height=STANDING_M, tilt_rad=math.radians(25.0)
            )
        },
        solved=("tracking/standing", 0.6),
        mirror=True,
        num_envs=(512, 4096),
        learner={
            "num_steps": 24,
            "max_iterations": 500,
            "ppo.entropy_coef": 0.005,
            "actor.init_std": 0.8,
            "symmetry": "network",
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
    )
