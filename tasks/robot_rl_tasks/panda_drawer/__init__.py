"""Franka Panda pulls a drawer open: it hooks its fingers behind the handle's bar from above.

Where the cabinet stands is drawn in each world. The actor knows the place behind the bar as a camera's
detector gives it: `handle_pos`, in the frame of the arm's root.
"""

from pathlib import Path

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, objects, observations, rewards
from robot_rl_envs.objects import Articulated
from robot_rl_envs.task import Actions, Event, Metric, Observation, ObservationGroup, Reward, Sim, Task

HAND, HOOK, SLIDE = "hand_tcp", "cabinet/hook", "cabinet/slide"
OPEN_M = 0.2
"""The drawer counts as open from here; it slides by 0.3 m."""


def _observations() -> dict[str, ObservationGroup]:
    sensed = {
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.002),
        "joint_vel": Observation(observations.joint_vel, noise=0.05, scale=0.3),
        "handle": Observation(objects.site_pos, site=HOOK, noise=0.005, measured="handle_pos"),
        "hand_to_handle": Observation(
            objects.site_to_site, site=HAND, to_site=HOOK, scale=3.0, noise=0.005, measured="hand_to_handle"
        ),
        "last_action": Observation(observations.last_action, scale=0.3),
    }
    privileged = {
        "opened": Observation(objects.object_joint_pos, object_joint=SLIDE, scale=3.0),
        "speed": Observation(objects.object_joint_vel, object_joint=SLIDE),
    }
    return {
        "actor": ObservationGroup(terms=sensed),
        "critic": ObservationGroup(terms=sensed | privileged, noise=False),
    }


def make_task() -> Task:
    """Build the task."""
    return Task(
        name="panda_drawer",
        summary="Franka Panda pulls a drawer open",
        robot=get_robot("franka_panda"),
        sim=Sim(timestep=0.005, decimation=4, iterations=5, ls_iterations=8),
        episode_length_s=5.0,
        actions=Actions(kind="position", scale=1.5, limit_speed=0.8),
        observations=_observations(),
        rewards={
            "reach": Reward(objects.reach_site, weight=1.0, site=HAND, to_site=HOOK, std=0.2),
            "behind": Reward(objects.reach_site, weight=1.0, site=HAND, to_site=HOOK, std=0.03),
            "open": Reward(objects.object_joint_open, weight=6.0, object_joint=SLIDE, goal=0.3),
            "action_rate": Reward(rewards.action_rate, weight=-0.02),
            "joint_vel": Reward(rewards.joint_vel_size, weight=-0.01),
            # The targets are limited, but contacts of the hand also move the fingers.
            "too_fast": Reward(rewards.joint_vel_excess, weight=-10.0, share=1.0),
        },
        objects={"cabinet": Articulated(model=Path(__file__).parent / "cabinet.xml", pos=(0.6, 0.0, 0.0))},
        events={
            "joints": Event(events.reset_joints, position=0.1, velocity=0.0),
            "motors": Event(events.motor_strength, lo=0.7, hi=1.2),
            "friction": Event(objects.object_friction, object="cabinet", lo=0.4, hi=1.2),
            "cabinet": Event(
                objects.place_fixed,
                object="cabinet",
                x_lo=-0.03,
                x_hi=0.05,
                y_lo=-0.1,
                y_hi=0.1,
                z_lo=-0.03,
                z_hi=0.03,
            ),
        },
        metrics={
            "success": Metric(objects.joint_opened, over="end", object_joint=SLIDE, goal=OPEN_M),
            "handle_error": Metric(objects.site_distance, site=HAND, to_site=HOOK),
        },
        solved=("tracking/success", 0.5),
        num_envs=(256, 4096),
        learner={
            "num_steps": 24,
            "max_iterations": 600,
            "normalize_values": True,
            "ppo.gamma": 0.98,
            "ppo.entropy_coef": 0.002,
            "ppo.schedule": "linear",
            "actor.init_std": 0.5,
        },
        learner_cpu={"actor.hidden": [128, 128], "critic.hidden": [128, 128]},
    )
