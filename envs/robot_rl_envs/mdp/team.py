"""Terms of robots in a team: their place among the others, the messages they receive, whom they touch.

``s`` is that of the robot's own row; the others' shown values are in ``s.team_pos_w`` and so on, see
:mod:`robot_rl_envs.entity.crews`. In a task of one robot these fields and terms do not exist. A load that they carry
together is in :mod:`robot_rl_envs.mdp.carrying`.
"""

from typing import Any

import warp as wp

from robot_rl_envs.entity.crews import agent_of, world_of
from robot_rl_envs.mdp.commands import MIRRORED_VELOCITY, VELOCITY, wrap_angle
from robot_rl_envs.mdp.objects import to_base
from robot_rl_envs.quat import yaw_of
from robot_rl_envs.terms import State, command, event, metric, observation, reward
from robot_rl_envs.terms.checks import at_least, require

# -- commands ----------------------------------------------------------------------------------------------------------


@wp.func
def command_velocity(
    s: State,
    i: int,
    want: wp.vec3,
    turn_gain: float,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
):
    """Command a velocity of the world [m/s] in the robot's own heading frame, and the turn back to the start's yaw."""
    yaw = yaw_of(s.base_quat_wxyz[i])
    c, n = wp.cos(yaw), wp.sin(yaw)
    ahead = c * want[0] + n * want[1]
    left = c * want[1] - n * want[0]
    turn = turn_gain * wrap_angle(s.start_yaw[i] - yaw)
    s.command[i] = wp.vec3(wp.clamp(ahead, vx_lo, vx_hi), wp.clamp(left, vy_lo, vy_hi), wp.clamp(turn, yaw_lo, yaw_hi))


@wp.func
def keep_marching(
    s: State,
    i: int,
    speed_lo: float,
    speed_hi: float,
    gain: float,
    turn_gain: float,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
):
    """Command the team's velocity along x, in the lane of the robot's start, in its own heading frame."""
    side = gain * (s.start_pos_w[i][1] - s.base_pos_w[i][1])
    command_velocity(s, i, wp.vec3(s.march_speed[i], side, 0.0), turn_gain, vx_lo, vx_hi, vy_lo, vy_hi, yaw_lo, yaw_hi)


@command(
    components=VELOCITY,
    draws="velocity",
    mirror=MIRRORED_VELOCITY,
    fields={"march_speed": ()},
    update=keep_marching,
    check=at_least(0.0, "speed_lo", "gain", "turn_gain"),
)
def march(
    s: State,
    i: int,
    rng: wp.uint32,
    speed_lo: float,
    speed_hi: float,
    gain: float,
    turn_gain: float,
    vx_lo: float,
    vx_hi: float,
    vy_lo: float,
    vy_hi: float,
    yaw_lo: float,
    yaw_hi: float,
):
    """Walk along the world's x axis at one speed [m/s] for all, drawn in speed_lo to speed_hi, each in its own lane.

    The command is a velocity (vx, vy [m/s], yaw rate [rad/s]): the lane is regained at gain [1/s] times the distance to
    it. Give it team=True.
    """
    s.march_speed[i] = speed_lo + (speed_hi - speed_lo) * wp.randf(rng)


# -- observations ------------------------------------------------------------------------------------------------------


@wp.func
def other_of(s: State, i: int, n: int) -> int:
    """Return the index in the team of the n-th robot after row i's."""
    return (agent_of(s, i) + 1 + n) % s.team_active.shape[1]


@observation(size=lambda scene: 4 * scene.sizes["others"], unit="m", frame="base")
def others_pos(s: State, i: int, j: int) -> float:
    """Position of each other robot in the base's frame [m], and 1 if it takes part; zeros if it does not."""
    b = other_of(s, i, j / 4)
    w = world_of(s, i)
    if s.team_active[w, b] == 0:
        return 0.0
    if j % 4 == 3:
        return 1.0
    return to_base(s, i, s.team_pos_w[w, b] - s.base_pos_w[i])[j % 4]


@observation(size=lambda scene: 3 * scene.sizes["others"], unit="m/s", frame="base")
def others_vel(s: State, i: int, j: int) -> float:
    """Velocity of each other robot in the base's frame [m/s]; zeros if it takes no part."""
    b = other_of(s, i, j / 3)
    w = world_of(s, i)
    if s.team_active[w, b] == 0:
        return 0.0
    return to_base(s, i, s.team_lin_vel_w[w, b])[j % 3]


def _check_sender(params: dict[str, float], scene: Any) -> None:
    others = scene.sizes["others"]
    fits = params["sender"] in range(others)
    right = f"must be a whole number from 0 to {others - 1}: the robots after this one, {others} in all"
    require(fits, "sender", params["sender"], right)


@observation(size=0, check=_check_sender)
def received(s: State, i: int, j: int, message: float, sender: float) -> float:
    """Values of a message of the sender-th robot after this one, and 1 if it takes part; zeros if it does not."""
    w, b = world_of(s, i), other_of(s, i, int(sender))
    if s.team_active[w, b] == 0:
        return 0.0
    at = s.message_at[int(message)]
    if at + j == s.message_at[int(message) + 1]:
        return 1.0
    return s.messages[w, b, at + j]


# -- rewards -----------------------------------------------------------------------------------------------------------


@wp.func
def formation_gap(s: State, i: int) -> float:
    """Return the mean distance of the other robots from their places, seen from row i's robot [m].

    Their places are their starts in the task, along the ground; 0 for a robot alone.
    """
    w, a = world_of(s, i), agent_of(s, i)
    total = float(0.0)
    count = float(0.0)
    for b in range(s.crew_agents.shape[0]):
        other = s.crew_agents[b]
        if other != a and s.team_active[w, other] == 1:
            away = s.team_pos_w[w, other] - s.base_pos_w[i]
            want = s.place_pos[b] - s.place_pos[i % s.crew_agents.shape[0]]
            dx, dy = away[0] - want[0], away[1] - want[1]
            total = total + wp.sqrt(dx * dx + dy * dy)
            count = count + 1.0
    return total / wp.max(count, 1.0)


@reward
def keeps_formation(s: State, i: int, std: float) -> float:
    """exp(-(e / std)^2), e the mean distance of the others from their places relative to this robot [m]."""
    e = formation_gap(s, i) / std
    return wp.exp(-e * e)


# -- metrics -----------------------------------------------------------------------------------------------------------


@metric(unit="m", better="smaller")
def formation_error(s: State, i: int) -> float:
    """Mean distance of the others from their places relative to this robot [m]; 0 for a robot alone."""
    return formation_gap(s, i)


@metric(better="larger")
def passed(s: State, i: int, x: float) -> float:
    """1 where the base is beyond ``x`` [m] in the world."""
    if s.base_pos_w[i][0] > x:
        return 1.0
    return 0.0


@metric(better="smaller")
def collides(s: State, i: int, contact: float, force: float) -> float:
    """1 where a contact sensor, as a rule of "others", feels more than ``force`` [N]."""
    if s.contact_force[i, int(contact)] > force:
        return 1.0
    return 0.0


@metric(unit="1")
def team_size(s: State, i: int) -> float:
    """Robots of the world that take part."""
    count = float(0.0)
    w = world_of(s, i)
    for b in range(s.team_active.shape[1]):
        count = count + float(s.team_active[w, b])
    return count


# -- events ------------------------------------------------------------------------------------------------------------


@event(writes="nothing", check=at_least(0.0, "yaw"))
def turn_team(s: State, i: int, rng: wp.uint32, yaw: float):
    """Turn the robots' starts about the world's origin by +-yaw [rad]; give it team=True."""
    angle = yaw * (2.0 * wp.randf(rng) - 1.0)
    at = s.start_pos_w[i]
    c, n = wp.cos(angle), wp.sin(angle)
    s.start_pos_w[i] = wp.vec3(c * at[0] - n * at[1], n * at[0] + c * at[1], at[2])
    s.start_yaw[i] = s.start_yaw[i] + angle
