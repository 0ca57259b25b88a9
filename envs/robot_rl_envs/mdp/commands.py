"""Command terms: the goals of the policy, drawn from the world's own random stream."""

from typing import Any

import warp as wp

from robot_rl_envs.entity import mirrors
from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, yaw_of
from robot_rl_envs.terms import State, command
from robot_rl_envs.terms.checks import check_above, check_least, check_reach, check_share

PI = wp.constant(3.141592653589793)
TWO_PI = wp.constant(6.283185307179586)

VELOCITY = {"vx": "m/s", "vy": "m/s", "yaw": "rad/s"}
POINT = {"x": "m", "y": "m", "z": "m"}
QUATERNION = {"qw": "1", "qx": "1", "qy": "1", "qz": "1"}
MIRRORED_VELOCITY = (1.0, -1.0, -1.0)


@command(components=VELOCITY, draws="velocity", mirror=MIRRORED_VELOCITY)
def uniform_velocity(
    s: State,
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
    s: State,
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
    for name in ("heading_share", "standing", "range_lo"):
        check_share(params, name)
    for name in ("stiffness", "min_speed"):
        check_least(params, name, 0.0)
    if not scene.base and params["heading_share"] > 0:
        raise ValueError(
            f"heading_share={params['heading_share']:g}: robot {scene.robot.name!r} has a fixed base, which has no "
            "heading: must be 0"
        )


@command(
    components=VELOCITY,
    draws="velocity",
    mirror=MIRRORED_VELOCITY,
    fields={"heading_target": (), "has_heading": ()},
    update=turn_to_heading,
    check=_check_heading,
)
def heading_velocity(
    s: State,
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


@command(components=POINT, draws="position", mirror=mirrors.POLAR, check=check_reach)
def uniform_position(
    s: State,
    i: int,
    rng: wp.uint32,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    site: float,
):
    """Target for a site of the robot, uniform in a box [m] in the base frame; a fixed base must be able to reach it."""
    x = x_lo + (x_hi - x_lo) * wp.randf(rng)
    y = y_lo + (y_hi - y_lo) * wp.randf(rng)
    z = z_lo + (z_hi - z_lo) * wp.randf(rng)
    s.command[i] = wp.vec3(x, y, z)


@command(components=POINT | QUATERNION, draws="pose", mirror=mirrors.POLAR + mirrors.QUATERNION, check=check_reach)
def uniform_pose(
    s: State,
    i: int,
    rng: wp.uint32,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    roll_lo: float,
    roll_hi: float,
    pitch_lo: float,
    pitch_hi: float,
    yaw_lo: float,
    yaw_hi: float,
    site: float,
):
    """Target pose for a site of the robot: a point as of ``uniform_position``, and an orientation w, x, y, z.

    The orientation turns the base frame by yaw about z, then by pitch about its new y, then by roll about its new x
    [rad], each uniform in its range. Of the two quaternions of a rotation it is the one with w >= 0.
    """
    s.command[i][0] = x_lo + (x_hi - x_lo) * wp.randf(rng)
    s.command[i][1] = y_lo + (y_hi - y_lo) * wp.randf(rng)
    s.command[i][2] = z_lo + (z_hi - z_lo) * wp.randf(rng)
    roll = quat_from_axis_angle(wp.vec3(1.0, 0.0, 0.0), roll_lo + (roll_hi - roll_lo) * wp.randf(rng))
    pitch = quat_from_axis_angle(wp.vec3(0.0, 1.0, 0.0), pitch_lo + (pitch_hi - pitch_lo) * wp.randf(rng))
    yaw = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), yaw_lo + (yaw_hi - yaw_lo) * wp.randf(rng))
    q = quat_multiply(yaw, quat_multiply(pitch, roll))
    if q[0] < 0.0:
        q = -q
    for k in range(4):
        s.command[i][3 + k] = q[k]


@wp.func
def move_to_goal(
    s: State,
    i: int,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    speed: float,
    site: float,
):
    """Move the target towards its goal by ``speed`` [m/s] times a control step, and no further than the goal."""
    way = s.target_goal[i] - s.command[i]
    distance = wp.length(way)
    step = speed * s.step_dt
    if distance <= step:
        s.command[i] = s.target_goal[i]
    else:
        s.command[i] = s.command[i] + way * (step / distance)


def _check_moving(params: dict[str, float], scene: Any) -> None:
    check_above(params, "speed", 0.0)
    check_reach(params, scene)


@command(
    components=POINT,
    draws="position",
    mirror=mirrors.POLAR,
    fields={"target_goal": (3,)},
    update=move_to_goal,
    check=_check_moving,
)
def moving_position(
    s: State,
    i: int,
    rng: wp.uint32,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    speed: float,
    site: float,
):
    """Target that travels at ``speed`` [m/s] on a straight line to a goal, both uniform in the box.

    At a reset it starts at a point of the box; later each draw is a new goal only. The box is as of
    ``uniform_position``. Held by hand (``env.set_command``) it stays; released, it continues to its goal from there.
    """
    x = x_lo + (x_hi - x_lo) * wp.randf(rng)
    y = y_lo + (y_hi - y_lo) * wp.randf(rng)
    z = z_lo + (z_hi - z_lo) * wp.randf(rng)
    s.target_goal[i] = wp.vec3(x, y, z)
    if s.step_count[i] == 0:
        x = x_lo + (x_hi - x_lo) * wp.randf(rng)
        y = y_lo + (y_hi - y_lo) * wp.randf(rng)
        z = z_lo + (z_hi - z_lo) * wp.randf(rng)
        s.command[i] = wp.vec3(x, y, z)
