# Warp types its vectors more loosely than pyright reads them.
# pyright: reportOperatorIssue=false, reportReturnType=false, reportCallIssue=false, reportArgumentType=false
"""Terms of a robot that jumps onto a box: the place of its top, the leap, the landing, and whether it stands there.

The box is an object whose frame is in its middle and not turned; ``up`` is half its height and ``half`` half its length
and width [m].
"""

import warp as wp
from robot_rl_envs.mdp.objects import nearness, to_base
from robot_rl_envs.terms import State, metric, observation, reward

SUNK_M = wp.constant(0.02)
"""How far a sole may be below the top of the box, and still be on it: contacts give way a little."""


@wp.func
def top_of(s: State, i: int, thing: int, up: float) -> wp.vec3:
    """Return the middle of the box's top in the world [m]."""
    return s.object_pos_w[i, thing] + wp.vec3(0.0, 0.0, up)


@wp.func
def count_feet_on(s: State, i: int, thing: int, up: float, half: float) -> float:
    """Return the number of feet over the top of the box and not below it."""
    top = top_of(s, i, thing, up)
    count = float(0.0)
    for f in range(s.foot_contact.shape[1]):
        way = s.foot_pos_w[i, f] - top
        # on a plane the height of a sole is that above the floor
        if wp.abs(way[0]) < half and wp.abs(way[1]) < half and s.foot_height_w[i, f] > top[2] - SUNK_M:
            count = count + 1.0
    return count


@wp.func
def count_touching(s: State, i: int) -> float:
    """Return the number of feet in contact."""
    count = float(0.0)
    for f in range(s.foot_contact.shape[1]):
        count = count + s.foot_contact[i, f]
    return count


@observation(size=3, unit="m", frame="base", mirror=(1.0, -1.0, 1.0))
def box_top(s: State, i: int, j: int, object: float, up: float) -> float:
    """Vector from the base to the middle of the box's top, in the base's frame [m]."""
    return to_base(s, i, top_of(s, i, int(object), up) - s.base_pos_w[i])[j]


@reward
def near_place(s: State, i: int, object: float, up: float, height: float, std: float) -> float:
    """1 - tanh(d / std) of the base's distance d [m] from its place: ``height`` [m] above the middle of the top."""
    place = top_of(s, i, int(object), up) + wp.vec3(0.0, 0.0, height)
    return nearness(wp.length(place - s.base_pos_w[i]), std)


@reward
def leap(s: State, i: int, object: float) -> float:
    """Horizontal speed towards the box's middle [m/s] while no foot touches anything, times max(cos tilt, 0)^2.

    Away from the box it is negative: over an episode it is the way through the air, which hopping on the spot does not
    make longer.
    """
    if count_touching(s, i) > 0.0:
        return 0.0
    way = s.object_pos_w[i, int(object)] - s.base_pos_w[i]
    way = wp.vec3(way[0], way[1], 0.0)
    level = wp.max(-s.projected_gravity_b[i][2], 0.0)
    return level * level * wp.dot(s.base_lin_vel_w[i], way) / wp.max(wp.length(way), 0.1)


@reward
def feet_on(s: State, i: int, object: float, up: float, half: float) -> float:
    """Share of the feet over the top of the box and not below it."""
    return count_feet_on(s, i, int(object), up, half) / float(s.foot_contact.shape[1])


@wp.func
def is_standing(s: State, i: int, thing: int, up: float, half: float, height: float, tilt_rad: float) -> float:
    """1 if the robot stands on the box, as of ``stands_on``."""
    feet = float(s.foot_contact.shape[1])
    high = s.base_pos_w[i][2] - top_of(s, i, thing, up)[2] > height
    level = -s.projected_gravity_b[i][2] > wp.cos(tilt_rad)
    if count_feet_on(s, i, thing, up, half) == feet and high and level:
        return 1.0
    return 0.0


@reward
def settled(
    s: State, i: int, object: float, up: float, half: float, height: float, tilt_rad: float, std: float
) -> float:
    """exp(-|q - q_default|^2 / std^2) of all joints [rad] if the robot stands on the box, as of ``stands_on``."""
    total = float(0.0)
    for j in range(s.joint_pos.shape[1]):
        d = s.joint_pos[i, j] - s.default_joint_pos[j]
        total = total + d * d
    return is_standing(s, i, int(object), up, half, height, tilt_rad) * wp.exp(-total / (std * std))


@metric(better="larger")
def stands_on(s: State, i: int, object: float, up: float, half: float, height: float, tilt_rad: float) -> float:
    """1 where all feet are on the box, the base ``height`` [m] above its top, leaning less than ``tilt_rad`` [rad]."""
    return is_standing(s, i, int(object), up, half, height, tilt_rad)


@metric(unit="s", better="larger")
def flight_time(s: State, i: int) -> float:
    """Time for which no foot has touched anything [s]; 0 while one does."""
    if count_touching(s, i) > 0.0:
        return 0.0
    time = s.foot_air_time_s[i, 0]
    for f in range(s.foot_air_time_s.shape[1]):
        time = wp.min(time, s.foot_air_time_s[i, f])
    return time
