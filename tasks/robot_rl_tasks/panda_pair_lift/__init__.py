"""Two Franka Pandas grasp a bar at its ends and carry it, level, after a target that moves in the air.

They face each other. Each arm is to hold its own end, and knows it from a camera's detector or motion capture:
`bar_end`, in its root's frame. The other one sends how far its hand is from its end, which arrives some time
later or not at all. What both see is the same: one policy serves either side of the bar.
"""

import math
from typing import Any

from robot_rl_envs.agents import Agent, Message
from robot_rl_envs.mdp import carrying, events, objects, observations, randomize, rewards, team
from robot_rl_envs.objects import Box, Contact
from robot_rl_envs.task import Actions, Command, Event, Metric, Observation, ObservationGroup, Reward, Sim, Task

from robot_rl_tasks.panda_lift import HAND, LIFTED_M, NEAR_M, ready_panda

BAR = "bar"
WIDTH_M, HEIGHT_M = 0.04, 0.05
GRIP_M = 0.2
"""Distance of each hand from the middle of the bar."""
APART_M = 0.7
"""Distance of each root from the middle: the hands start above the ends of the bar."""
CLOSE_M = 0.02
"""Distance of a hand from its end of the bar at which it should close; with 1.5 cm some seeds hover there for good."""
OWN_END: dict[str, Any] = {"object": BAR, "reach": GRIP_M}
TARGET_M: dict[str, Any] = {"x_lo": 0.6, "x_hi": 0.8, "y_lo": -0.15, "y_hi": 0.15, "z_lo": 0.15, "z_hi": 0.35}
"""Box of the targets in the frame of either arm's root: about the middle between them."""
REGION_M: dict[str, Any] = {"x_lo": -0.05, "x_hi": 0.05, "y_lo": -0.1, "y_hi": 0.1, "z_lo": 0.0, "z_hi": 0.0}
"""Where the bar starts, from the middle."""


def _observations() -> dict[str, ObservationGroup]:
    sensed = {
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.002),
        "joint_vel": Observation(observations.joint_vel, noise=0.05, scale=0.3),
        "end": Observation(carrying.end_pos, noise=0.003, measured="bar_end", **OWN_END),
        "hand_to_end": Observation(
            carrying.site_to_end, site=HAND, scale=5.0, noise=0.003, measured="hand_to_bar_end", **OWN_END
        ),
        "axis": Observation(carrying.end_axis, object=BAR, noise=0.01, measured="bar_axis"),
        "other": Observation(team.received, message="grip", sender=0, scale=5.0, noise=0.003),
        "target": Observation(observations.command),
        "last_action": Observation(observations.last_action, scale=0.3),
    }
    privileged = {
        "bar_to_target": Observation(objects.object_to_target, object=BAR),
        "bar_vel": Observation(objects.object_lin_vel, object=BAR),
        "bar_quat": Observation(objects.object_quat, object=BAR),
        "left": Observation(objects.contact_force, contact="left", scale=0.2, clip=20.0),
        "right": Observation(objects.contact_force, contact="right", scale=0.2, clip=20.0),
    }
    return {
        "actor": ObservationGroup(terms=sensed),
        "critic": ObservationGroup(terms=sensed | privileged, noise=False),
    }


def _messages() -> dict[str, Message]:
    """Return the messages between the arms: the vector from a hand to its end of the bar, in its own frame."""
    sent = {"hand_to_end": Observation(carrying.site_to_end, site=HAND, measured="hand_to_bar_end", **OWN_END)}
    return {"grip": Message(terms=sent, width=3, latency_s=(0.0, 0.04), loss=0.05, max_age_s=0.2)}


def _rewards() -> dict[str, Reward]:
    """Return those of panda_lift, for the own end of the bar; those of the whole bar are both arms'."""
    return {
        "reach": Reward(carrying.reach_end, weight=1.0, site=HAND, std=0.1, **OWN_END),
        "close": Reward(
            carrying.closes_on_end,
            weight=2.0,
            site=HAND,
            joint="finger_joint1",
            distance=CLOSE_M,
            opened=0.04,
            **OWN_END,
        ),
        "grasp": Reward(
            carrying.grasps_end,
            weight=1.0,
            site=HAND,
            distance=NEAR_M,
            left_contact="left",
            right_contact="right",
            force=4.0,
            **OWN_END,
        ),
        "lift": Reward(carrying.end_raised, weight=4.0, rest=HEIGHT_M / 2, height=0.1, **OWN_END),
        "carry": Reward(objects.object_at_target, weight=6.0, credit="team", object=BAR, std=0.2, height=LIFTED_M),
        "precise": Reward(objects.object_at_target, weight=4.0, credit="team", object=BAR, std=0.05, height=LIFTED_M),
        "level": Reward(carrying.object_inclined, weight=-10.0, credit="team", object=BAR),
        "action_rate": Reward(rewards.action_rate, weight=-0.02),
        "joint_vel": Reward(rewards.joint_vel_size, weight=-0.01),
        "floor": Reward(objects.contact_load, weight=-20.0, contact="floor", force=20.0),
        "palm": Reward(objects.contact_load, weight=-10.0, contact="palm", force=20.0),
        "others": Reward(objects.contact_load, weight=-10.0, contact="others", force=20.0),
        "too_fast": Reward(rewards.joint_vel_excess, weight=-10.0, share=1.0),
        "pose": Reward(rewards.pose, weight=-1.0, moving_scale=1.0),
    }


def make_task() -> Task:
    """Build the task."""
    panda = ready_panda()
    return Task(
        name="panda_pair_lift",
        summary="Two Franka Pandas grasp a bar at its ends and carry it, level, after a moving target",
        robots={
            "east": Agent(robot=panda, pos=(APART_M, 0.0, 0.0), yaw=math.pi),
            "west": Agent(robot=panda, pos=(-APART_M, 0.0, 0.0)),
        },
        sim=Sim(timestep=0.005, decimation=4, iterations=5, ls_iterations=8),
        episode_length_s=5.0,
        actions=Actions(kind="position", scale=1.0, limit_speed=0.8),
        observations=_observations(),
        rewards=_rewards(),
        commands={"target": Command(carrying.carry_to_target, team=True, resample_s=(2.0, 4.0), speed=0.1, **TARGET_M)},
        objects={
            BAR: Box(size=(0.5, WIDTH_M, HEIGHT_M), pos=(0.0, 0.0, HEIGHT_M / 2), mass=0.3, friction=0.8, condim=4)
        },
        contacts={
            "left": Contact(first="left_pad", second=BAR),
            "right": Contact(first="right_pad", second=BAR),
            "palm": Contact(first="hand_collision", second=BAR),
            "floor": Contact(first="robot", second="floor"),
            "others": Contact(first="robot", second="others"),
        },
        events={
            "joints": Event(events.reset_joints, position=0.1, velocity=0.0),
            "bar": Event(objects.reset_object, team=True, object=BAR, yaw=0.25, **REGION_M),
            "mass": Event(randomize.body_mass, mode="startup", team=True, body=BAR, lo=0.5, hi=1.5),
        },
        metrics={
            "success": Metric(objects.object_reached, over="end", object=BAR, distance=0.05),
            "bar_error": Metric(objects.object_error, after_s=2.0, object=BAR),
            "slope": Metric(carrying.object_slope, after_s=2.0, object=BAR),
            "dropped": Metric(carrying.object_dropped, over="end", object=BAR, height=LIFTED_M),
            "collides": Metric(team.collides, contact="others", force=1.0),
        },
        solved=("tracking/success", 0.5),
        num_envs=(128, 2048),
        learner={
            "num_steps": 24,
            "max_iterations": 1000,
            "normalize_values": True,
            "ppo.gamma": 0.98,
            "ppo.entropy_coef": 0.002,
            "ppo.schedule": "linear",
            "ppo.learning_rate": 1e-3,
            "actor.init_std": 0.5,
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
        learner_name="mappo",
        messages=_messages(),
    )
