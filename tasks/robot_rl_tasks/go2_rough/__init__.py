"""Unitree Go2 crosses slopes, stairs and obstacles, in rows that get harder as it gets better.

The robot follows a velocity command. It sees the ground around it as a height scan, which a robot has from its depth
cameras or lidar; `go2_rough_blind` is the same task without it.
"""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import curricula, events, metrics, observations, rewards, sensing, terminations
from robot_rl_envs.task import Curriculum, Event, Metric, Observation, ObservationGroup, Reward, Task, Termination
from robot_rl_envs.terrain import rough_terrains

from robot_rl_tasks import go2_flat, legged
from robot_rl_tasks.go2_flat import GAIT_HZ


def _observations(flat: Task, *, sees: bool) -> dict[str, ObservationGroup]:
    sensed = flat.vectors["actor"].terms
    scan = {"scan": Observation(sensing.height_scan, noise=0.05, clip=1.0, scale=5.0, offset=0.3)}
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
    }
    seen, unseen = (sensed | scan, privileged) if sees else (sensed, scan | privileged)
    return legged.actor_and_critic(seen, unseen)


def make_task(*, sees: bool = True) -> Task:
    """Build the task.

    Args:
        sees: whether the actor has the height scan; the critic always has.
    """
    flat = go2_flat.make_task()
    return Task(
        name="go2_rough" if sees else "go2_rough_blind",
        summary=f"Unitree Go2 crosses rough ground, {'with a height scan' if sees else 'blind'}",
        robot=get_robot("unitree_go2"),
        terrain=rough_terrains(),
        sim=flat.sim,
        episode_length_s=20.0,
        actions=flat.actions,
        observations=_observations(flat, sees=sees),
        rewards=flat.rewards
        | {
            "swing": Reward(rewards.trot_height, weight=1.5, frequency_hz=GAIT_HZ, height=0.1),
            "lin_vel_z": Reward(rewards.lin_vel_z, weight=-0.5),
            "flat": Reward(rewards.flat_orientation, weight=-0.5),
        },
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=1.2),
            "low": Termination(terminations.clearance_below, height=0.12),
            "far": Termination(terminations.far_from_origin, time_out=True, limit=5.0),
        },
        commands=legged.heading_command(vx=(-0.3, 1.2), vy=(-0.3, 0.3), yaw=(-1.0, 1.0)),
        events=flat.events
        | {
            "base": Event(events.reset_base, xy=0.3, yaw=3.14, velocity=0.2),
            "push": Event(events.push, mode="interval", interval_s=(6.0, 10.0), xy=0.4, yaw=0.3),
        },
        curricula={"levels": Curriculum(curricula.terrain_levels, promote_share=1.0, demote_share=0.25)},
        metrics=flat.metrics | {"terrain_level": Metric(metrics.terrain_level)},
        only_positive_rewards=True,
        mirror=True,
        num_envs=flat.num_envs,
        learner=flat.learner | {"max_iterations": 1500},
        learner_cpu=flat.learner_cpu,
    )
