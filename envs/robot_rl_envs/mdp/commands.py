"""Command terms: what the policy is asked to do, drawn from the world's own random stream."""

from typing import Any

import warp as wp

from robot_rl_envs.terms import command


@command()
@wp.func
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
