"""Unitree Go2 jumps onto a box in front of it, and stays there.

The box is 15 to 30 cm high and 30 to 60 cm ahead of the base, drawn in each episode. The actor knows its top
as a detector or motion capture reports it: `box_top`, in the base's frame. Without a command, it jumps once started.
"""

import math
from typing import Any

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, objects, observations, rewards, terminations
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Actions, Event, Metric, Observation, ObservationGroup, Reward, Sim, Task, Termination

from robot_rl_tasks import legged
from robot_rl_tasks.go2_jump import jump

BOX = "box"
SIDE_M, DEPTH_M = 0.9, 0.4
"""Length and width of the box, and its height; the rest of it is in the floor."""
HEIGHT_M, AHEAD_M = (0.15, 0.30), (0.30, 0.60)
"""Height of the box's top above the floor, and distance of its near side from the robot's start."""
STAND_M, STANDING_M = 0.27, 0.2
"""Height of the base above the top of the box: in the default pose, and from which it stands."""

_TOP: dict[str, Any] = {"object": BOX, "up": DEPTH_M / 2}
_ON: dict[str, Any] = {**_TOP, "half": SIDE_M / 2}
_STANDING: dict[str, Any] = {**_ON, "height": STANDING_M, "tilt_rad": math.radians(25.0)}


def _observations() -> dict[str, ObservationGroup]:
    sensed = legged.proprioception(box=Observation(jump.box_top, noise=0.01, scale=2.0, measured="box_top", **_TOP))
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height, scale=3.0),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
    }
    return legged.actor_and_critic(sensed, privileged)


def _rewards() -> dict[str, Reward]:
    return {
        "near": Reward(jump.near_place, weight=3.0, height=STAND_M, std=0.5, **_TOP),
        "leap": Reward(jump.leap, weight=8.0, object=BOX),
        "feet": Reward(jump.feet_on, weight=2.0, **_ON),
        "settled": Reward(jump.settled, weight=5.0, std=1.0, **_STANDING),
        "flat": Reward(rewards.flat_orientation, weight=-1.0),
        # Small: in one short run with -3 the robot did not leave the ground. Trained with this weight only.
        "fall": Reward(rewards.terminated, weight=-0.5),
        "bump": Reward(objects.touches, weight=-2.0, contact="bump", force=1.0),
        "torque": Reward(rewards.joint_torque, weight=-1e-4),
        "action_rate": Reward(rewards.action_rate, weight=-0.01),
        "speed": Reward(rewards.joint_vel_excess, weight=-1.0, share=0.9),
        "limits": Reward(rewards.joint_limits, weight=-1.0, soft=0.95),
    }


def make_task() -> Task:
    """Build the task."""
    middle = sum(AHEAD_M) / 2 + SIDE_M / 2
    ahead, high = (AHEAD_M[1] - AHEAD_M[0]) / 2, (HEIGHT_M[1] - HEIGHT_M[0]) / 2
    return Task(
        name="go2_jump",
        summary="Unitree Go2 jumps onto a box and stands on it",
        robot=get_robot("unitree_go2"),
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=5, ls_iterations=8),
        episode_length_s=3.0,
        actions=Actions(kind="position", scale=2.0, actuator=legged.GO2_MOTORS),
        observations=_observations(),
        rewards=_rewards(),
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=1.2),
            "low": Termination(terminations.base_below, height=0.1),
        },
        objects={
            BOX: Box(size=(SIDE_M, SIDE_M, DEPTH_M), pos=(middle, 0.0, sum(HEIGHT_M) / 2 - DEPTH_M / 2), fixed=True)
        },
        contacts={"bump": Contact(first="base_link", second=BOX)},
        events=legged.randomization(
            "base_link",
            least_friction=0.5,
            by_curve=True,
            box=Event(
                objects.place_fixed, object=BOX, x_lo=-ahead, x_hi=ahead, y_lo=0.0, y_hi=0.0, z_lo=-high, z_hi=high
            ),
            base=Event(events.reset_base, xy=0.05, yaw=0.15, velocity=0.1),
            joints=Event(events.reset_joints, position=0.1, velocity=0.2),
        ),
        metrics={
            "on_box": Metric(jump.stands_on, over="end", **_STANDING),
            "flight_time": Metric(jump.flight_time, over="max"),
        },
        mirror=True,
        num_envs=(512, 4096),
        learner={
            "num_steps": 24,
            "max_iterations": 800,
            "ppo.entropy_coef": 0.005,
            "actor.init_std": 0.8,
            "symmetry": "network",
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
        solved=("tracking/on_box", 0.5),
    )
