"""Unitree Go2 crosses slopes, stairs and obstacles, in rows that get harder as it gets better.

The robot follows a velocity command. It sees the ground around it as a height scan, which a robot has from its depth
cameras or lidar; `go2_rough_blind` is the same task without it.
"""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import (
    commands,
    curricula,
    events,
    metrics,
    observations,
    rewards,
    sensing,
    terminations,
)
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
from robot_rl_envs.terrain import rough_terrains

from robot_rl_tasks.go2_flat import BASE_BODY, GAIT_HZ, LEARNER, LEARNER_CPU


def _observations(*, sees: bool) -> dict[str, ObservationGroup]:
    sensed = {
        "gyro": Observation(observations.base_ang_vel, noise=0.2, scale=0.25),
        "gravity": Observation(observations.projected_gravity, noise=0.05),
        "command": Observation(observations.velocity_command),
        "clock": Observation(observations.gait_clock, frequency_hz=GAIT_HZ),
        "joint_pos": Observation(observations.joint_pos_rel, noise=0.01),
        "joint_vel": Observation(observations.joint_vel, noise=1.0, scale=0.05),
        "last_action": Observation(observations.last_action),
    }
    scan = {"scan": Observation(sensing.height_scan, noise=0.05, clip=1.0, scale=5.0, offset=0.3)}
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
    }
    actor = sensed | scan if sees else sensed
    return {
        "actor": ObservationGroup(terms=actor),
        "critic": ObservationGroup(terms=sensed | scan | privileged, noise=False),
    }


def _rewards() -> dict[str, Reward]:
    return {
        "track": Reward(rewards.track_lin_vel, weight=2.5, std=0.5),
        "yaw": Reward(rewards.track_yaw_rate, weight=1.0, std=0.5),
        "gait": Reward(rewards.trot_contact, weight=1.0, frequency_hz=GAIT_HZ),
        "swing": Reward(rewards.trot_height, weight=1.5, frequency_hz=GAIT_HZ, height=0.1),
        "lin_vel_z": Reward(rewards.lin_vel_z, weight=-0.5),
        "ang_vel_xy": Reward(rewards.ang_vel_xy, weight=-0.05),
        "flat": Reward(rewards.flat_orientation, weight=-0.5),
        "pose": Reward(rewards.pose, weight=-0.3, moving_scale=0.3),
        "torque": Reward(rewards.joint_torque, weight=-1e-4),
        "action_rate": Reward(rewards.action_rate, weight=-0.02),
        "slip": Reward(rewards.foot_slip, weight=-0.2),
        "limits": Reward(rewards.joint_limits, weight=-1.0, soft=0.95),
        "still": Reward(rewards.stand_still, weight=-0.01),
    }


def _commands() -> dict[str, Command]:
    return {
        "velocity": Command(
            commands.heading_velocity,
            resample_s=(10.0, 10.0),
            vx_lo=-0.3,
            vx_hi=1.2,
            vy_lo=-0.3,
            vy_hi=0.3,
            yaw_lo=-1.0,
            yaw_hi=1.0,
            stiffness=0.8,
            heading_share=0.9,
            standing=0.05,
            min_speed=0.15,
            range_lo=1.0,
        )
    }


def _events() -> dict[str, Event]:
    return {
        "mass": Event(events.base_mass, mode="startup", body=BASE_BODY, mass=1.0, com=0.02),
        "base": Event(events.reset_base, xy=0.3, yaw=3.14, velocity=0.2),
        "joints": Event(events.reset_joints, position=0.1, velocity=0.2),
        "friction": Event(events.foot_friction, lo=0.4, hi=1.2),
        "motors": Event(events.motor_strength, lo=0.9, hi=1.1),
        "push": Event(events.push, mode="interval", interval_s=(6.0, 10.0), xy=0.4, yaw=0.3),
    }


def make_task(*, sees: bool = True) -> Task:
    """Build the task.

    Args:
        sees: whether the actor has the height scan; the critic always has.
    """
    return Task(
        name="go2_rough" if sees else "go2_rough_blind",
        summary=f"Unitree Go2 crosses rough ground, {'with a height scan' if sees else 'blind'}",
        robot=get_robot("unitree_go2"),
        terrain=rough_terrains(),
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=5, ls_iterations=8),
        episode_length_s=20.0,
        actions=Actions(kind="position", scale=2.0),
        observations=_observations(sees=sees),
        rewards=_rewards(),
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=1.2),
            "low": Termination(terminations.clearance_below, height=0.12),
            "far": Termination(terminations.far_from_origin, time_out=True, limit=5.0),
        },
        commands=_commands(),
        events=_events(),
        curricula={"levels": Curriculum(curricula.terrain_levels, promote_share=1.0, demote_share=0.25)},
        metrics={
            "lin_vel_error": Metric(metrics.lin_vel_error, after_s=1.0),
            "yaw_vel_error": Metric(metrics.yaw_vel_error, after_s=1.0),
            "terrain_level": Metric(metrics.terrain_level),
        },
        only_positive_rewards=True,
        mirror=True,
        num_envs=(512, 4096),
        learner=LEARNER | {"max_iterations": 1500},
        learner_cpu=dict(LEARNER_CPU),
    )
