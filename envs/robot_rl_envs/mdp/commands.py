"""Command terms: what the policy has to do, drawn from the world's own random stream."""

from typing import Any

import warp as wp

from robot_rl_envs.quat import yaw_of
from robot_rl_envs.terms import command
from robot_rl_envs.terms.checks import check_least, check_range, check_share

PI = wp.constant(3.141592653589793)
TWO_PI = wp.constant(6.283185307179586)


@command()
def uniform_velocity(
    s: Any,
    i: int,
    rng: wp.uint32,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
    standing: float,
):
    """Velocity command (vx, vy [m/s], yaw rate [rad/s]) uniform in its ranges; a share ``standing`` of them is zero."""
    vx = vx_lo + (vx_hi - vx_lo) * wp.randf(rng)
    vy = vy_lo + (vy_hi - vy_lo) * wp.randf(rng)
    yaw = yaw_lo + (yaw_hi - yaw_lo) * wp.randf(rng)
    still = wp.randf(rng)
    if still < standing:
        vx = 0.0
        vy = 0.0
        yaw = 0.0
    s.command[i] = wp.vec3(vx, vy, yaw)


@wp.func
def wrap_angle(angle: float) -> float:
    """The same angle in [-pi, pi) [rad]."""
    return angle - TWO_PI * wp.floor((angle + PI) / TWO_PI)


@wp.func
def turn_to_heading(
    s: Any,
    i: int,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
    stiffness: float,
    heading_share: float,
    standing: float,
    min_speed: float,
    range_lo: float,
):
    """Set the yaw rate of a heading command: clip(stiffness * error, yaw_lo, yaw_hi)."""
    if s.has_heading[i] > 0.5:
        error = wrap_angle(s.heading_target[i] - yaw_of(s.base_quat_wxyz[i]))
        s.command[i] = wp.vec3(s.command[i][0], s.command[i][1], wp.clamp(stiffness * error, yaw_lo, yaw_hi))


def _check_heading(params: dict[str, float], scene: Any) -> None:
    for axis in ("vx", "vy", "yaw"):
        check_range(params, f"{axis}_lo", f"{axis}_hi")
    for name in ("heading_share", "standing", "range_lo"):
        check_share(params, name)
    for name in ("stiffness", "min_speed"):
        check_least(params, name, 0.0)
    if not scene.base and params["heading_share"] > 0:
        raise ValueError(
            f"heading_share={params['heading_share']:g}: robot {scene.robot.name!r} has a fixed base, which has no "
            "heading: must be 0"
        )


@command(fields={"heading_target": (), "has_heading": ()}, update=turn_to_heading, check=_check_heading)
def heading_velocity(
    s: Any,
    i: int,
    rng: wp.uint32,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
    stiffness: float,
    heading_share: float,
    standing: float,
    min_speed: float,
    range_lo: float,
):
    """Velocity command (vx, vy [m/s]) towards a heading or with a yaw rate [rad/s].

    A share ``heading_share`` of the draws has a target heading, uniform over the circle, which a yaw rate of
    ``stiffness`` [1/s] times the error follows within yaw_lo to yaw_hi; the others a yaw rate of that range. A share
    ``standing`` is to stand still, and so is a planar command slower than ``min_speed`` [m/s]. vx and vy are scaled by
    ``range_lo`` at first and by 1 at the end of the curriculum ``command_range``.
    """
    scale = range_lo + (1.0 - range_lo) * s.command_range[i]
    vx = scale * (vx_lo + (vx_hi - vx_lo) * wp.randf(rng))
    vy = scale * (vy_lo + (vy_hi - vy_lo) * wp.randf(rng))
    yaw = yaw_lo + (yaw_hi - yaw_lo) * wp.randf(rng)
    s.heading_target[i] = PI * (2.0 * wp.randf(rng) - 1.0)
    s.has_heading[i] = 0.0
    if wp.randf(rng) < heading_share:
        s.has_heading[i] = 1.0
    if vx * vx + vy * vy < min_speed * min_speed:
        vx = 0.0
        vy = 0.0
    if wp.randf(rng) < standing:
        vx = 0.0
        vy = 0.0
        yaw = 0.0
        s.has_heading[i] = 0.0
    s.command[i] = wp.vec3(vx, vy, yaw)
