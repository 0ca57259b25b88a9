"""Unitree G1 is to cross slopes, low stairs and obstacles, in rows that get harder as it gets better.

It is `g1_flat` on a terrain gentler than the Go2's: the same rewards by the same clock, heights counted from the ground
below, and a height scan. The actor's vector is longer than that of `g1_flat`, so a run of that task cannot be its
`init_from`; it can be its teacher (`learner=distill teacher.run=g1_flat/latest`).
"""

from robot_rl_assets.registry import get_robot
from robot_rl_envs.mdp import curricula, events, metrics, observations, sensing, terminations
from robot_rl_envs.task import Curriculum, Event, Metric, Observation, ObservationGroup, Reward, Task, Termination
from robot_rl_envs.terrain import Flat, Obstacles, RandomRough, Slope, Stairs, TerrainCfg

from robot_rl_tasks import g1_flat, legged
from robot_rl_tasks.g1_rough import ground

STANDING_M = 0.73
"""Height of the base above the ground below it, as in `g1_flat`."""


def _terrain() -> TerrainCfg:
    """Return half of the Go2's heights: a foot of the G1 swings 10 cm high and is flat."""
    return TerrainCfg(
        tiles={
            "flat": Flat(proportion=0.1),
            "random_rough": RandomRough(noise=(0.005, 0.03), proportion=0.2),
            "slope_up": Slope(up=True, slope=(0.0, 0.2), noise=(0.0, 0.01), proportion=0.15),
            "slope_down": Slope(up=False, slope=(0.0, 0.2), noise=(0.0, 0.01), proportion=0.15),
            "stairs_up": Stairs(up=True, step_height=(0.01, 0.09), tread=0.4, proportion=0.15),
            "stairs_down": Stairs(up=False, step_height=(0.01, 0.09), tread=0.4, proportion=0.15),
            "obstacles": Obstacles(height=(0.01, 0.08), proportion=0.1),
        },
        max_init_level=2,
    )


def _observations(flat: Task) -> dict[str, ObservationGroup]:
    # The base hangs 0.4 m higher than a Go2's; the middle of the scan is that of the standing robot.
    scan = {"scan": Observation(sensing.height_scan, noise=0.05, clip=1.0, scale=5.0, offset=STANDING_M)}
    sensed = flat.vectors["actor"].terms
    privileged = {
        "lin_vel": Observation(observations.base_lin_vel),
        "clearance": Observation(sensing.base_clearance),
        "contact": Observation(observations.foot_contact),
        "foot_height": Observation(observations.foot_height),
    }
    return legged.actor_and_critic(sensed | scan, privileged)


def make_task() -> Task:
    """Build the task."""
    flat = g1_flat.make_task()
    return Task(
        name="g1_rough",
        summary="Unitree G1, a humanoid, crosses rough ground, with a height scan",
        robot=get_robot("unitree_g1"),
        terrain=_terrain(),
        sim=flat.sim,
        episode_length_s=20.0,
        actions=flat.actions,
        observations=_observations(flat),
        rewards=flat.rewards
        | {
            "flat": Reward(flat.rewards["flat"].fn, weight=-1.5),
            "height": Reward(ground.clearance, weight=-20.0, target=STANDING_M),
        },
        terminations={
            "tilted": Termination(terminations.tilted, limit_rad=0.8),
            "low": Termination(terminations.clearance_below, height=0.5),
            "far": Termination(terminations.far_from_origin, time_out=True, limit=5.0),
        },
        commands=legged.heading_command(vx=(-0.3, 0.8), vy=(-0.2, 0.2), yaw=(-0.5, 0.5)),
        events=flat.events | {"base": Event(events.reset_base, xy=0.3, yaw=3.14, velocity=0.1)},
        curricula={"levels": Curriculum(curricula.terrain_levels, promote_share=1.0, demote_share=0.25)},
        metrics=flat.metrics | {"terrain_level": Metric(metrics.terrain_level)},
        only_positive_rewards=True,
        mirror=True,
        num_envs=flat.num_envs,
        learner=flat.learner | {"max_iterations": 1200},
        learner_cpu=flat.learner_cpu,
    )
