"""Sets of terms that several legged robots' tasks have, in the order and with the figures that they have there."""

from __future__ import annotations

from robot_rl_envs.actuation import ExplicitPd
from robot_rl_envs.mdp import actuation, commands, events, metrics, observations, rewards
from robot_rl_envs.task import Command, Event, Metric, Observation, ObservationGroup, Reward

GO2_MOTORS = ExplicitPd(saturation_effort=1.5)
"""Motors of a Go2 that moves at its limits: their torque falls from a third of the speed limit on, to none at it.

Unitree gives 20.2 N m up to 13.5 rad/s, and no torque at 30 rad/s: 1.6 times the limit at standstill. An ideal servo
drives the knees of a jump at four times their limit.
"""


def proprioception(*, joint_vel_noise: float = 1.0, **others: Observation) -> dict[str, Observation]:
    """Return the values of the robot's IMU and encoders, and its last action; ``others`` come before its joints."""
    return {
        "gyro": Observation(observations.base_ang_vel, noise=0.2, scale=0.25),
        "gravity": Observation(observations.projected_gravity, noise=0.05),
        **others,
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.01),
        "joint_vel": Observation(observations.joint_vel, noise=joint_vel_noise, scale=0.05),
        "last_action": Observation(observations.last_action),
    }


def actor_and_critic(sensed: dict[str, Observation], privileged: dict[str, Observation]) -> dict[str, ObservationGroup]:
    """Return the two groups: the critic sees the actor's values, without noise, and values that no robot measures."""
    return {
        "actor": ObservationGroup(terms=sensed),
        "critic": ObservationGroup(terms=sensed | privileged, noise=False),
    }


def walking_observations(gait_hz: float) -> dict[str, ObservationGroup]:
    """Return the observations of a robot that walks on flat ground by a velocity command and a gait clock."""
    sensed = proprioception(
        command=Observation(observations.velocity_command),
        clock=Observation(observations.gait_clock, frequency_hz=gait_hz),
    )
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "height": Observation(observations.base_height),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
    }
    return actor_and_critic(sensed, privileged)


def heading_command(
    *, vx: tuple[float, float], vy: tuple[float, float], yaw: tuple[float, float]
) -> dict[str, Command]:
    """Return the command on rough ground [m/s, m/s, rad/s]: as a rule a heading that is kept for the whole tile."""
    return {
        "velocity": Command(
            commands.heading_velocity,
            resample_s=(10.0, 10.0),
            vx_lo=vx[0],
            vx_hi=vx[1],
            vy_lo=vy[0],
            vy_hi=vy[1],
            yaw_lo=yaw[0],
            yaw_hi=yaw[1],
            stiffness=0.8,
            heading_share=0.9,
            standing=0.05,
            min_speed=0.15,
            range_lo=1.0,
        )
    }


def smooth_trot(*, flat: float) -> dict[str, Reward]:
    """Return the rewards of a level base and quiet joints, as a trotting Go2 has them; ``flat`` weighs its tilt."""
    return {
        "lin_vel_z": Reward(rewards.lin_vel_z, weight=-1.0),
        "ang_vel_xy": Reward(rewards.ang_vel_xy, weight=-0.05),
        "flat": Reward(rewards.flat_orientation, weight=flat),
        "pose": Reward(rewards.pose, weight=-0.3, moving_scale=0.3),
        "torque": Reward(rewards.joint_torque, weight=-1e-4),
        "action_rate": Reward(rewards.action_rate, weight=-0.02),
        "slip": Reward(rewards.foot_slip, weight=-0.2),
        "limits": Reward(rewards.joint_limits, weight=-1.0, soft=0.95),
        "still": Reward(rewards.stand_still, weight=-0.01),
    }


def velocity_errors() -> dict[str, Metric]:
    """Return how far the robot is from its velocity command."""
    return {
        "lin_vel_error": Metric(metrics.lin_vel_error, after_s=1.0),
        "yaw_vel_error": Metric(metrics.yaw_vel_error, after_s=1.0),
    }


def randomization(
    body: str | int, *, least_friction: float, by_curve: bool = False, **resets: Event
) -> dict[str, Event]:
    """Return the events that vary worlds, and those at an episode's start.

    Args:
        body: The body with a random mass and center of mass.
        least_friction: Least friction of the feet; the greatest is 1.2.
        by_curve: Whether the motors are `GO2_MOTORS`.
        resets: How an episode starts, after the mass is drawn and before the friction.
    """
    motors = Event(events.motor_strength, lo=0.9, hi=1.1)
    if by_curve:
        motors = Event(
            actuation.explicit_gains, kp_lo=1.0, kp_hi=1.0, kd_lo=1.0, kd_hi=1.0, strength_lo=0.9, strength_hi=1.1
        )
    return {
        "mass": Event(events.base_mass, mode="startup", body=body, mass=1.0, com=0.02),
        **resets,
        "friction": Event(events.foot_friction, lo=least_friction, hi=1.2),
        "motors": motors,
    }
