"""Terms of a load that the robots of a team carry together: its goal, each robot's place below it and end of it.

As those of :mod:`robot_rl_envs.mdp.team` they are for a task of several robots.
"""

import itertools
import math
from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs.entity import mirrors
from robot_rl_envs.entity.crews import agent_of
from robot_rl_envs.mdp.commands import MIRRORED_VELOCITY, POINT, TWO_PI, VELOCITY
from robot_rl_envs.mdp.objects import closed_near, held_near, nearness, to_base
from robot_rl_envs.mdp.team import command_velocity
from robot_rl_envs.quat import quat_from_axis_angle, quat_rotate, yaw_of
from robot_rl_envs.terms import State, command, metric, observation, reward
from robot_rl_envs.terms.checks import above, at_least, check_above

SAME_M = 1e-6
"""How far the sides of a box may be apart that is the same for several robots [m]."""

# -- commands ----------------------------------------------------------------------------------------------------------


@wp.func
def velocity_to_goal(
    s: State,
    i: int,
    object: float,
    distance_lo: float,
    distance_hi: float,
    goal_speed: float,
    gain: float,
    turn_gain: float,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
):
    """Move the goal, and command the velocity that brings the object to it, in the robot's own heading frame."""
    s.goal_pos_w[i] = s.goal_pos_w[i] + s.goal_vel_w[i] * s.step_dt
    away = s.goal_pos_w[i] - s.object_pos_w[i, int(object)]
    want = gain * wp.vec3(away[0], away[1], 0.0) + s.goal_vel_w[i]
    command_velocity(s, i, want, turn_gain, vx_lo, vx_hi, vy_lo, vy_hi, yaw_lo, yaw_hi)


@command(
    components=VELOCITY,
    draws="velocity",
    mirror=MIRRORED_VELOCITY,
    fields={"goal_pos_w": (3,), "goal_vel_w": (3,)},
    update=velocity_to_goal,
    check=at_least(0.0, "distance_lo", "goal_speed", "gain", "turn_gain"),
)
def carry_to_goal(
    s: State,
    i: int,
    rng: wp.uint32,
    object: float,
    distance_lo: float,
    distance_hi: float,
    goal_speed: float,
    gain: float,
    turn_gain: float,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
):
    """Carry an object to a goal that moves: it begins distance_lo to distance_hi [m] away, at goal_speed [m/s] at most.

    The command is a velocity (vx, vy [m/s], yaw rate [rad/s]): gain [1/s] times the way to the goal, and that of the
    goal; the heading is that of the start. Give it team=True: the goal is one for all.
    """
    distance = distance_lo + (distance_hi - distance_lo) * wp.randf(rng)
    angle = TWO_PI * wp.randf(rng)
    speed = goal_speed * wp.randf(rng)
    course = TWO_PI * wp.randf(rng)
    at = s.object_pos_w[i, int(object)]
    s.goal_pos_w[i] = wp.vec3(at[0] + distance * wp.cos(angle), at[1] + distance * wp.sin(angle), 0.0)
    s.goal_vel_w[i] = wp.vec3(speed * wp.cos(course), speed * wp.sin(course), 0.0)


@wp.func
def move_target(
    s: State,
    i: int,
    x_lo: float,
    x_hi: float,
    y_lo: float,
    y_hi: float,
    z_lo: float,
    z_hi: float,
    speed: float,
):
    """Move the target by ``speed`` [m/s] towards its goal, no further, and command it in the robot's own frame."""
    way = s.target_goal_w[i] - s.target_pos_w[i]
    s.target_pos_w[i] = s.target_pos_w[i] + way * wp.min(speed * s.step_dt / wp.max(wp.length(way), 1.0e-6), 1.0)
    s.command[i] = to_base(s, i, s.target_pos_w[i] - s.base_pos_w[i])


def _check_target(params: dict[str, float], scene: Any) -> None:
    check_above(params, "speed", 0.0)
    crew = scene.crew
    if crew is None or scene.base or crew.size < len(crew.names):
        line = f"robot {scene.robot.name!r} is not in a team of one role, all bolted down; take another command"
        raise ValueError(f"speed={params['speed']:g}: {line}")
    ends = [(params[f"{axis}_lo"], params[f"{axis}_hi"]) for axis in "xyz"]
    for agent, pos, yaw in zip(crew.agents, crew.pos, crew.yaw, strict=True):
        lo, hi = np.inf, -np.inf
        for corner in itertools.product(*ends):
            seen = turn(-yaw) @ (turn(crew.yaw[0]) @ corner + crew.pos[0] - np.array(pos))
            lo, hi = np.minimum(lo, seen), np.maximum(hi, seen)
        for k, axis in enumerate("xyz"):
            if abs(lo[k] - ends[k][0]) > SAME_M or abs(hi[k] - ends[k][1]) > SAME_M:
                raise ValueError(
                    f"{axis}_lo={ends[k][0]:g}: robot {crew.names[agent]!r} sees the box of the targets from "
                    f"{lo[k]:.3f} to {hi[k]:.3f} m along its {axis} axis; it must be the same for each of the robots"
                )


def turn(yaw: float) -> np.ndarray:
    """Return the rotation (3, 3) by an angle [rad] about the vertical."""
    c, n = math.cos(yaw), math.sin(yaw)
    return np.array([[c, -n, 0.0], [n, c, 0.0], [0.0, 0.0, 1.0]])


@wp.func
def of_first(s: State, point: wp.vec3) -> wp.vec3:
    """Return the place in the world of a point in the frame of the first robot, which is bolted down [m]."""
    heading = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), s.place_yaw[0])
    return s.place_pos[0] + quat_rotate(heading, point)


@command(
    components=POINT,
    draws="position",
    mirror=mirrors.POLAR,
    fields={"target_pos_w": (3,), "target_goal_w": (3,)},
    update=move_target,
    check=_check_target,
)
def carry_to_target(
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
):
    """Target of the team that travels at ``speed`` [m/s] to a goal, both uniform in a box, for robots bolted down.

    The box [m] is in the base frame, and the same in that of every robot, as for two that face each other. The target
    is kept in the world, and the command is its position in the robot's own base frame [m]. At a reset it starts at a
    point of the box; later each draw is a new goal only. Give it team=True: the target is one for all.
    """
    x = x_lo + (x_hi - x_lo) * wp.randf(rng)
    y = y_lo + (y_hi - y_lo) * wp.randf(rng)
    z = z_lo + (z_hi - z_lo) * wp.randf(rng)
    s.target_goal_w[i] = of_first(s, wp.vec3(x, y, z))
    if s.step_count[i] == 0:
        x = x_lo + (x_hi - x_lo) * wp.randf(rng)
        y = y_lo + (y_hi - y_lo) * wp.randf(rng)
        z = z_lo + (z_hi - z_lo) * wp.randf(rng)
        s.target_pos_w[i] = of_first(s, wp.vec3(x, y, z))
        s.command[i] = to_base(s, i, s.target_pos_w[i] - s.base_pos_w[i])


# -- observations ------------------------------------------------------------------------------------------------------


@wp.func
def own_axis(s: State, i: int, thing: int) -> wp.vec3:
    """Return the direction from an object's middle to row i's own end of it, in the world's frame.

    The ends are those along its x axis. The team's robots take them in turn, the first one the end ahead.
    """
    side = 1.0 - 2.0 * float(agent_of(s, i) % 2)
    return quat_rotate(s.object_quat_wxyz[i, thing], wp.vec3(side, 0.0, 0.0))


@wp.func
def own_end(s: State, i: int, thing: int, reach: float) -> wp.vec3:
    """Return the place on an object that row i's robot is to hold, ``reach`` [m] from its middle, in the world."""
    return s.object_pos_w[i, thing] + reach * own_axis(s, i, thing)


@observation(size=3, unit="m", frame="base")
def end_pos(s: State, i: int, j: int, object: float, reach: float) -> float:
    """Position of the robot's own end of an object, ``reach`` [m] from its middle, in the base's frame [m]."""
    return to_base(s, i, own_end(s, i, int(object), reach) - s.base_pos_w[i])[j]


@observation(size=3, unit="m", frame="base")
def site_to_end(s: State, i: int, j: int, site: float, object: float, reach: float) -> float:
    """Vector from a site to the robot's own end of an object, in the base's frame [m]."""
    return to_base(s, i, own_end(s, i, int(object), reach) - s.site_pos_w[i, int(site)])[j]


@observation(size=3, frame="base")
def end_axis(s: State, i: int, j: int, object: float) -> float:
    """Direction from an object's middle to the robot's own end of it, in the base's frame."""
    return to_base(s, i, own_axis(s, i, int(object)))[j]


@observation(size=3, frame="base")
def object_axis(s: State, i: int, j: int, object: float) -> float:
    """Direction of an object's x axis in the base's frame."""
    return to_base(s, i, quat_rotate(s.object_quat_wxyz[i, int(object)], wp.vec3(1.0, 0.0, 0.0)))[j]


@observation(size=3, unit="m/s", frame="base")
def object_velocity(s: State, i: int, j: int, object: float) -> float:
    """Velocity of an object relative to the base's, in the base's frame [m/s]."""
    return to_base(s, i, s.object_lin_vel_w[i, int(object)] - s.base_lin_vel_w[i])[j]


# -- rewards -----------------------------------------------------------------------------------------------------------


@wp.func
def place_error(s: State, i: int, thing: int) -> float:
    """Return how far the base is from its place below an object, along the ground [m].

    The place is the robot's start in the task, from the object's start, in the object's heading.
    """
    yaw = yaw_of(s.object_quat_wxyz[i, thing])
    away = s.base_pos_w[i] - s.object_pos_w[i, thing]
    c, n = wp.cos(yaw), wp.sin(yaw)
    place = s.place_pos[i % s.crew_agents.shape[0]]
    dx = c * away[0] + n * away[1] - place[0]
    dy = c * away[1] - n * away[0] - place[1]
    return wp.sqrt(dx * dx + dy * dy)


@reward
def keeps_place(s: State, i: int, object: float, std: float) -> float:
    """exp(-(e / std)^2), e the distance of the base from its place below an object [m]."""
    e = place_error(s, i, int(object)) / std
    return wp.exp(-e * e)


@wp.func
def goal_distance(s: State, i: int, thing: int) -> float:
    """Return the distance of an object from the goal along the ground [m]."""
    away = s.goal_pos_w[i] - s.object_pos_w[i, thing]
    return wp.sqrt(away[0] * away[0] + away[1] * away[1])


@reward
def object_near_goal(s: State, i: int, object: float, std: float) -> float:
    """exp(-(d / std)^2), d the distance of an object from the goal [m]."""
    d = goal_distance(s, i, int(object)) / std
    return wp.exp(-d * d)


@reward
def object_tilt(s: State, i: int, object: float) -> float:
    """1 - cos of the angle between an object's z axis and the vertical."""
    return 1.0 - quat_rotate(s.object_quat_wxyz[i, int(object)], wp.vec3(0.0, 0.0, 1.0))[2]


@wp.func
def end_distance(s: State, i: int, site: float, object: float, reach: float) -> float:
    """Return the distance of a site from the robot's own end of an object [m]."""
    return wp.length(own_end(s, i, int(object), reach) - s.site_pos_w[i, int(site)])


@reward
def reach_end(s: State, i: int, site: float, object: float, reach: float, std: float) -> float:
    """1 - tanh(d / std) of the distance d [m] from a site to the robot's own end of an object."""
    return nearness(end_distance(s, i, site, object, reach), std)


@reward(check=above(0.0, "distance", "opened"))
def closes_on_end(
    s: State, i: int, site: float, object: float, reach: float, joint: float, distance: float, opened: float
) -> float:
    """How far a finger has closed if the robot's own end of an object is between the fingers, in [0, 1].

    The formula of :func:`robot_rl_envs.mdp.objects.closes`, d the distance [m] from the site to that end.
    """
    return closed_near(s, i, int(joint), opened, end_distance(s, i, site, object, reach) / distance)


@reward(check=above(0.0, "distance", "force"))
def grasps_end(
    s: State,
    i: int,
    site: float,
    object: float,
    reach: float,
    distance: float,
    left_contact: float,
    right_contact: float,
    force: float,
) -> float:
    """How firmly the robot's own end of an object is held, in [0, 1].

    The formula of :func:`robot_rl_envs.mdp.objects.grasps`, d the distance [m] from the site to that end.
    """
    d = end_distance(s, i, site, object, reach) / distance
    return held_near(s, i, int(left_contact), int(right_contact), force, d)


@reward(check=above(0.0, "height"))
def end_raised(s: State, i: int, object: float, reach: float, rest: float, height: float) -> float:
    """Height of the robot's own end of an object above ``rest`` [m] as a share of ``height`` [m], in [0, 1]."""
    return wp.clamp((own_end(s, i, int(object), reach)[2] - rest) / height, 0.0, 1.0)


@reward
def object_inclined(s: State, i: int, object: float) -> float:
    """Squared sine of the angle between an object's x axis and the ground."""
    sine = own_axis(s, i, int(object))[2]
    return sine * sine


# -- metrics -----------------------------------------------------------------------------------------------------------


@metric(unit="rad", better="smaller")
def object_slope(s: State, i: int, object: float) -> float:
    """Angle between an object's x axis and the ground [rad]."""
    return wp.abs(wp.asin(wp.clamp(own_axis(s, i, int(object))[2], -1.0, 1.0)))


@metric(unit="m", better="smaller")
def goal_error(s: State, i: int, object: float) -> float:
    """Distance of an object from the goal along the ground [m]."""
    return goal_distance(s, i, int(object))


@metric(better="larger")
def object_delivered(s: State, i: int, object: float, distance: float, height: float) -> float:
    """1 where an object is within ``distance`` [m] of the goal along the ground, and above ``height`` [m]."""
    if goal_distance(s, i, int(object)) < distance and s.object_pos_w[i, int(object)][2] > height:
        return 1.0
    return 0.0


@metric(better="smaller")
def object_dropped(s: State, i: int, object: float, height: float) -> float:
    """1 where an object is below a height [m]."""
    if s.object_pos_w[i, int(object)][2] < height:
        return 1.0
    return 0.0


@metric(unit="m", better="smaller")
def place_distance(s: State, i: int, object: float) -> float:
    """Distance of the base from its place below an object [m]."""
    return place_error(s, i, int(object))
