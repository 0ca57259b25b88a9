"""Unitree G1 on flat ground walks as a velocity command says, and stands at command 0.

Rewards of stepping outweigh those of standing: nothing is paid for being alive, and contacts against
the gait clock cost as much as those by it bring. With more paid for standing, policies stood still as long as tried.
"""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import commands, events, rewards, terminations
from robot_rl_envs.task import Actions, Command, Event, Reward, Sim, Task, Termination

from robot_rl_tasks import legged
from robot_rl_tasks.g1_flat import gait

GAIT_HZ = 1.25
SWING = 0.45
"""Share of a period that a foot is in the air."""
LEARNER = {
    "num_steps": 24,
    "ppo.entropy_coef": 0.001,
    "ppo.schedule": "linear",
    "ppo.learning_rate": 1e-3,
    "actor.init_std": 0.4,
    "symmetry": "network",
}
"""Settings of the learner in every task of a G1."""
LEARNER_CPU = {"actor.hidden": [256, 128], "critic.hidden": [256, 128]}
IMAGINED = {
    "symmetry": "network",
    "max_iterations": 400,
    "world_model.learning_rate": 1e-3,
    "world_model.critic_steps": 16,
    "world_model.hidden": [512, 512],
}
"""Likewise through a learned world: 29 joints take a larger model, and falls a critic that is soon right."""


def _rewards() -> dict[str, Reward]:
    return {
        "track": Reward(rewards.track_lin_vel, weight=2.0, std=0.5),
        "yaw": Reward(rewards.track_yaw_rate, weight=1.5, std=0.7),
        "gait": Reward(gait.walk_contact, weight=3.0, frequency_hz=GAIT_HZ, swing=SWING),
        "swing": Reward(gait.walk_height, weight=3.0, frequency_hz=GAIT_HZ, swing=SWING, height=0.1),
        "legs": Reward(gait.walk_joints, weight=2.0, frequency_hz=GAIT_HZ, swing=SWING, lift=0.35, std=0.5),
        "lin_vel_z": Reward(rewards.lin_vel_z, weight=-0.5),
        "ang_vel_xy": Reward(rewards.ang_vel_xy, weight=-0.05),
        "flat": Reward(rewards.flat_orientation, weight=-3.0),
        "height": Reward(rewards.base_height, weight=-20.0, target=0.73),
        "hips": Reward(gait.hips_turned, weight=-0.5),
        "upper_body": Reward(gait.upper_body, weight=-0.3),
        "feet_close": Reward(gait.feet_close, weight=-5.0, distance=0.18),
        "torque": Reward(rewards.joint_torque, weight=-2e-5),
        "action_rate": Reward(rewards.action_rate, weight=-0.01),
        "slip": Reward(rewards.foot_slip, weight=-0.2),
        "limits": Reward(rewards.joint_limits, weight=-1.0, soft=0.95),
        "still": Reward(rewards.stand_still, weight=-0.002),
    }


def make_task() -> Task:
    """Build the task."""
    return Task(
        name="g1_flat",
        summary="Unitree G1, a humanoid, walks with vx, vy and yaw rate on flat ground",
        robot=get_robot("unitree_g1"),
        sim=Sim(timestep=0.02 / 3, decimation=3, iterations=4, ls_iterations=6),
        episode_length_s=20.0,
        actions=Actions(kind="position"),
        observations=legged.walking_observations(GAIT_HZ),
        rewards=_rewards(),
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=0.8),
            "low": Termination(terminations.base_below, height=0.55),
        },
        commands={
            "velocity": Command(
                commands.uniform_velocity,
                resample_s=(4.0, 8.0),
                vx_lo=-0.5,
                vx_hi=1.0,
                vy_lo=-0.3,
                vy_hi=0.3,
                yaw_lo=-0.5,
                yaw_hi=0.5,
                standing=0.1,
            )
        },
        events=legged.randomization(
            "torso_link",
            least_friction=0.5,
            base=Event(events.reset_base, xy=0.5, yaw=3.14, velocity=0.3),
            joints=Event(events.reset_joints, position=0.05, velocity=0.1),
        )
        | {"push": Event(events.push, mode="interval", interval_s=(6.0, 10.0), xy=0.3, yaw=0.2)},
        metrics=legged.velocity_errors(),
        only_positive_rewards=True,
        mirror=True,
        num_envs=(512, 4096),
        learner={"max_iterations": 700, **LEARNER},
        learner_cpu=dict(LEARNER_CPU),
        presets={"world_model": dict(IMAGINED)},
        solved=("tracking/lin_vel_error", 0.25),
    )
