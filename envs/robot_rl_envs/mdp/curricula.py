"""Curricula: changes of a world between two episodes, in every world at once by masks."""

from typing import Any

import warp as wp

from robot_rl_envs.mdp.rewards import track_lin_vel
from robot_rl_envs.terms import State, curriculum
from robot_rl_envs.terms.checks import check_above, check_least, check_share


@wp.func
def planar_speed(s: State, i: int) -> float:
    """Commanded speed in the plane [m/s]."""
    return wp.sqrt(s.command[i][0] * s.command[i][0] + s.command[i][1] * s.command[i][1])


@wp.func
def sum_commanded_distance(s: State, i: int, promote_share: float, demote_share: float):
    """Add this step's |v*_xy| dt [m]; an episode's first step resets the sum."""
    if s.step_count[i] == 1:
        s.commanded_distance_m[i] = 0.0
    s.commanded_distance_m[i] = s.commanded_distance_m[i] + planar_speed(s, i) * s.step_dt


def _check_levels(params: dict[str, float], scene: Any) -> None:
    if scene.terrain is None:
        raise ValueError(f"promote_share={params['promote_share']:g}: levels need a terrain; set one")
    check_above(params, "promote_share", 0.0)
    check_least(params, "demote_share", 0.0)


@curriculum(fields={"commanded_distance_m": ()}, update=sum_commanded_distance, check=_check_levels, reads_command=2)
def terrain_levels(s: State, i: int, rng: wp.uint32, promote_share: float, demote_share: float):
    """Promote a world that got far from its start, demote one that fell short of its command.

    Far is more than ``promote_share`` of half a tile; short is less than ``demote_share`` of the commanded distance:
    the sum of |v*_xy| dt, and after a failure the rest of the episode at the last command. The distance
    traveled is straight from its start in the plane. A world that solves the last row continues in a random one.

    After Rudin et al., "Learning to walk in minutes using massively parallel deep reinforcement learning", CoRL 2021.
    """
    x = s.base_pos_w[i][0] - s.env_origin_w[i][0]
    y = s.base_pos_w[i][1] - s.env_origin_w[i][1]
    went = wp.sqrt(x * x + y * y)
    commanded = s.commanded_distance_m[i]
    if s.terminated[i] == 1:
        commanded = commanded + planar_speed(s, i) * float(wp.max(s.episode_steps - s.episode_length[i], 0)) * s.step_dt
    rows = s.terrain_origins.shape[0]
    level = s.terrain_level[i]
    anywhere = wp.min(int(wp.randf(rng) * float(rows)), rows - 1)
    if went > promote_share * 0.5 * s.terrain_tile_size:
        level = level + 1
        if level >= rows:
            level = anywhere
    elif went < demote_share * commanded:
        level = level - 1
    s.terrain_level[i] = wp.clamp(level, 0, rows - 1)


@wp.func
def sum_tracking(s: State, i: int, threshold: float, step: float, std: float):
    """Add this step's tracking, in [0, 1]; an episode's first step resets the sum."""
    if s.step_count[i] == 1:
        s.tracking_sum[i] = 0.0
    s.tracking_sum[i] = s.tracking_sum[i] + track_lin_vel(s, i, std)


def _check_command_range(params: dict[str, float], scene: Any) -> None:
    check_share(params, "threshold")
    check_share(params, "step")


@curriculum(fields={"tracking_sum": ()}, update=sum_tracking, check=_check_command_range, reads_command=2)
def command_range(s: State, i: int, rng: wp.uint32, threshold: float, step: float, std: float):
    """Grow the world's command range by ``step`` if it tracked well, shrink it if it failed or tracked badly.

    Well is a mean of exp(-|v*_xy - v_xy|^2 / std^2) over the episode, at most 1, above ``threshold``; badly is below
    half of it. ``s.command_range`` stays in [0, 1]; the command defines its meaning: see ``heading_velocity``.
    """
    mean = s.tracking_sum[i] / float(wp.max(s.step_count[i], 1))
    change = float(0.0)
    if s.terminated[i] == 1 or mean < 0.5 * threshold:
        change = -step
    elif mean > threshold:
        change = step
    s.command_range[i] = wp.clamp(s.command_range[i] + change, 0.0, 1.0)
