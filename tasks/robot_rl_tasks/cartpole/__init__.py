"""Swing a pole up from hanging down, and balance it."""

import math

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, metrics, observations, rewards, terminations
from robot_rl_envs.task import (
    Actions,
    Event,
    Metric,
    Observation,
    ObservationGroup,
    Reward,
    Sim,
    Task,
    Termination,
)

from robot_rl_tasks.cartpole.energy import swing_energy

SLIDER, HINGE = 0, 1
SWING_FREQUENCY = 4.29
"""Of small swings of the pole [rad/s]: sqrt(m g l / I) of the model's 0.2 kg, 0.4 m and 0.0427 kg m^2."""


def make_task() -> Task:
    """Build the task."""
    sensed = {
        "cart_pos": Observation(observations.one_joint_pos, joint=SLIDER),
        "pole_angle": Observation(observations.joint_angle_sin_cos, joint=HINGE),
        "joint_vel": Observation(observations.joint_vel, scale=0.2),
    }
    return Task(
        name="cartpole",
        summary="swing a pole up from hanging down and balance it",
        robot=get_robot("cartpole"),
        sim=Sim(timestep=0.01, decimation=4, floor_height=-0.9),
        episode_length_s=4.0,
        actions=Actions(kind="effort"),
        observations={"actor": ObservationGroup(terms=sensed), "critic": ObservationGroup(terms=dict(sensed))},
        rewards={
            "upright": Reward(rewards.upright_pole, weight=1.0, joint=HINGE),
            # Without it hanging still and spinning are optima that some seeds never leave.
            "energy": Reward(swing_energy, weight=0.5, joint=HINGE, frequency=SWING_FREQUENCY),
            # At a third of it the quickest swing-up uses the whole rail, and one start in a hundred leaves it.
            "centred": Reward(rewards.centred, weight=-0.3, joint=SLIDER),
            "pole_vel": Reward(rewards.joint_vel_sq, weight=-0.005, joint=HINGE),
            "effort": Reward(rewards.action_size, weight=-0.01),
        },
        terminations={"off_rail": Termination(terminations.joint_beyond, joint=SLIDER, limit=1.75)},
        events={
            "cart": Event(events.reset_joint_to, joint=SLIDER, centre=0.0, spread=0.2, velocity=0.1),
            # Slow, in short episodes: a policy that has learned comes to rest hanging down nowhere but at its start.
            "pole": Event(events.reset_joint_to, joint=HINGE, centre=math.pi, spread=math.pi, velocity=0.2),
        },
        metrics={"upright": Metric(metrics.joint_cos, joint=HINGE)},
        mirror=True,
        num_envs=(512, 4096),
        learner={
            "num_steps": 16,
            "max_iterations": 120,
            "ppo.gamma": 0.98,
            # Steps of up to 1e-2 left the value function so wrong that some seeds ran off the rail to the end.
            "ppo.max_learning_rate": 2e-3,
            "actor.hidden": [64, 64],
            "critic.hidden": [64, 64],
            "symmetry": "network",
        },
        solved=("tracking/upright", 0.6),
    )
