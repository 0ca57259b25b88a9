"""Unitree G1 follows reference motions: squat, wave, step, turn, and those of files.

``motions.mine=file.csv`` adds one.
"""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import events, motions, observations, rewards
from robot_rl_envs.task import (
    Actions,
    Command,
    Curriculum,
    Event,
    Metric,
    Observation,
    ObservationGroup,
    Reward,
    Sim,
    Task,
    Termination,
)

from robot_rl_tasks import legged
from robot_rl_tasks.g1_flat import IMAGINED, LEARNER, LEARNER_CPU

MOTIONS = ("squat", "wave", "step", "turn")
TRACKED = (
    "torso_link",
    "left_knee_link",
    "right_knee_link",
    "left_ankle_roll_link",
    "right_ankle_roll_link",
    "left_elbow_link",
    "right_elbow_link",
    "left_wrist_yaw_link",
    "right_wrist_yaw_link",
)


def _observations() -> dict[str, ObservationGroup]:
    sensed = legged.proprioception(joint_vel_noise=0.5, reference=Observation(observations.command, noise=0.05))
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height),
        "contact": Observation(observations.foot_contact),
        "reference_contact": Observation(motions.reference_contact),
        "bodies": Observation(motions.body_errors),
        "phase": Observation(motions.motion_phase),
    }
    return legged.actor_and_critic(sensed, privileged)


def _rewards() -> dict[str, Reward]:
    return {
        "joints": Reward(motions.track_joints, weight=1.5, std=0.25),
        "precise": Reward(motions.track_joints, weight=1.0, std=0.1),
        "joint_vel": Reward(motions.track_joint_vel, weight=0.25, std=2.0),
        "height": Reward(motions.track_base_height, weight=0.5, std=0.1),
        "tilt": Reward(motions.track_base_tilt, weight=0.5, std=0.25),
        "velocity": Reward(motions.track_base_vel, weight=0.5, std=0.4),
        "turn": Reward(motions.track_base_turn, weight=0.5, std=1.0),
        "bodies": Reward(motions.track_body_pos, weight=1.0, std=0.15),
        "orientations": Reward(motions.track_body_quat, weight=0.5, std=0.4),
        "contact": Reward(motions.track_contact, weight=0.5),
        "action_rate": Reward(rewards.action_rate, weight=-0.02),
        "torque": Reward(rewards.joint_torque, weight=-1e-5),
        "limits": Reward(rewards.joint_limits, weight=-1.0, soft=0.98),
        "slip": Reward(rewards.foot_slip, weight=-0.1),
    }


def make_task() -> Task:
    """Build the task."""
    return Task(
        name="g1_track",
        summary="Unitree G1, a humanoid, follows reference motions",
        robot=get_robot("unitree_g1"),
        motions={name: name for name in MOTIONS},
        tracked=TRACKED,
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=4, ls_iterations=6),
        episode_length_s=10.0,
        actions=Actions(kind="position", around="command"),
        observations=_observations(),
        rewards=_rewards(),
        terminations={
            "ended": Termination(motions.motion_ended, time_out=True),
            "height": Termination(motions.base_height_off, limit=0.2),
            "tilt": Termination(motions.base_tilt_off, limit_rad=0.7),
            "bodies": Termination(motions.body_height_off, limit=0.25),
        },
        commands={"reference": Command(motions.reference_motion, resample_s=(10.0, 10.0))},
        curricula={"failures": Curriculum(motions.failing_starts, memory_s=20.0)},
        events=legged.randomization(
            "torso_link",
            least_friction=0.5,
            start=Event(
                motions.reset_to_motion, position=0.05, velocity=0.1, uniform=0.3, spread=0.7, only=-1.0, phase=-1.0
            ),
        )
        | {"push": Event(events.push, mode="interval", interval_s=(5.0, 10.0), xy=0.2, yaw=0.2)},
        metrics={
            "joint_error": Metric(motions.joint_error),
            "body_error": Metric(motions.body_error),
            "contact_agreement": Metric(motions.contact_agreement),
        },
        # With any motions, the policy for a mirrored motion is the mirror image of the policy for the motion itself.
        mirror=True,
        num_envs=(512, 4096),
        learner={"max_iterations": 600, **LEARNER},
        learner_cpu=dict(LEARNER_CPU),
        presets={"world_model": IMAGINED | {"max_iterations": 350, "world_model.horizon": 24}},
        solved=("tracking/joint_error", 0.1),
    )
