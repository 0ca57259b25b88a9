"""The state of robots in a team: fields of ``s`` beyond those of one robot, and the functions of the stages on them.

Rows are (world, robot): row i is robot ``i % A`` of a crew of A, in world ``i / A``. What a robot shows to the others
is in arrays of the whole team, one row a world and one column a robot, which are written in separate stages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from robot_rl_envs import engine
from robot_rl_envs.agents import Crew
from robot_rl_envs.entity.derive import derive_site
from robot_rl_envs.quat import quat_from_axis_angle, quat_multiply, quat_rotate

BLIND = wp.constant(engine.FAULT_OBSERVATION)
STATE_BIT, PLACED_BIT = wp.constant(engine.DIRTY_STATE), wp.constant(engine.DIRTY_PLACED)

CONSTANTS = ("crew_agents", "place_pos", "place_yaw", "parking", "message_at")
"""Fields that never change: no part of a checkpoint."""

Fields = dict[str, tuple[Any, int, tuple[int, ...]]]


def crew_fields(crew: Crew | None, rows: int) -> Fields:
    """Return the fields of ``s`` of a crew: name -> dtype, number of dimensions, shape; none without one.

    ``active`` (R,): 1 if the robot takes part; ``acted``: 1 if it did in this step; ``joining``: 1 if it begins to
    after this step; ``joins_in``: control steps until then, 0 for never; ``restart``: 1 if the world's episode
    ended; ``ends``: bits of its causes, 1 a failure, 2 its time; ``blind``: 1 + the index of an observation that was
    not finite; ``shared_reward`` (R, 2): rewards of the role and of the team; ``start_pos_w`` [m] and ``start_yaw``
    [rad]: the robot's start. Constants: ``crew_agents`` (A,) the robots' indices in the team, ``place_pos`` and
    ``place_yaw`` (A,) their places in the task, ``parking`` (3,) and the distance there. Of the whole team, (N, T):
    ``team_pos_w``, ``team_quat_wxyz``, ``team_lin_vel_w``, ``team_ang_vel_b`` of the bases, ``team_active``;
    ``messages`` (N, T, W) the values of the robots' messages, those of message m from ``message_at[m]`` on.
    """
    if crew is None:
        return {}
    found: Fields = dict.fromkeys(
        ("active", "acted", "joining", "joins_in", "restart", "ends", "blind"), (wp.int32, 1, (rows,))
    )
    found |= {"shared_reward": (wp.float32, 2, (rows, 2))}
    found |= {"start_pos_w": (wp.vec3, 1, (rows,)), "start_yaw": (wp.float32, 1, (rows,))}
    found |= {"crew_agents": (wp.int32, 1, (crew.size,)), "parking": (wp.float32, 1, (3,))}
    found |= {"place_pos": (wp.vec3, 1, (crew.size,)), "place_yaw": (wp.float32, 1, (crew.size,))}
    if crew.messages:
        found["message_at"] = (wp.int32, 1, (len(crew.messages) + 1,))
    return found | team_fields(crew, rows // crew.size)


def team_fields(crew: Crew, worlds: int) -> Fields:
    """Return the fields that all crews of a team share, as :func:`crew_fields`."""
    shape = (worlds, len(crew.names))
    vectors = ("team_pos_w", "team_lin_vel_w", "team_ang_vel_b")
    found: Fields = dict.fromkeys(vectors, (wp.vec3, 2, shape))
    if crew.messages:
        found["messages"] = (wp.float32, 3, (*shape, sum(crew.messages.values())))
    return found | {"team_quat_wxyz": (wp.vec4, 2, shape), "team_active": (wp.int32, 2, shape)}


def fill(arrays: dict[str, wp.array], crew: Crew | None) -> None:
    """Set the constants."""
    if crew is None:
        return
    arrays["crew_agents"].assign(np.array(crew.agents, dtype=np.int32))
    arrays["place_pos"].assign(np.array(crew.pos, dtype=np.float32))
    arrays["place_yaw"].assign(np.array(crew.yaw, dtype=np.float32))
    arrays["parking"].assign(np.array([*crew.team.parking, crew.team.spacing], dtype=np.float32))
    if crew.messages:
        arrays["message_at"].assign(np.cumsum([0, *crew.messages.values()], dtype=np.int32))


@wp.func
def world_of(s: Any, i: int) -> int:
    """Return the world of row i."""
    return i / s.crew_agents.shape[0]


@wp.func
def agent_of(s: Any, i: int) -> int:
    """Return the index of row i's robot in the team."""
    return s.crew_agents[i % s.crew_agents.shape[0]]


@wp.func
def let_go(s: Any, i: int, targets: wp.array2d(dtype=wp.float32), follows: int):
    """Let the motors of a robot that takes no part only damp: position targets follow the joints, efforts are 0."""
    for j in range(s.action.shape[1]):
        s.action[i, j] = 0.0
    for j in range(s.joint_qpos.shape[0]):
        k = s.joint_ctrl[j]
        if k >= 0:
            targets[i, k] = 0.0
            if follows == 1:
                targets[i, k] = s.qpos[i, s.joint_qpos[j]]


@wp.func
def begin_robot(s: Any, i: int, faults: int):
    """Begin the bookkeeping of a step: whether row i takes part, and whether it joins after it."""
    s.acted[i] = s.active[i]
    s.restart[i] = 0
    s.joining[i] = 0
    if s.joins_in[i] > 0:
        s.joins_in[i] = s.joins_in[i] - 1
        if s.joins_in[i] == 0:
            s.joining[i] = 1
    found = faults
    if s.blind[i] > 0:
        found = found | BLIND
        s.fault_term[i] = s.blind[i] - 1
        s.blind[i] = 0
    s.quarantined[i] = found


@wp.func
def publish(s: Any, i: int):
    """Show the others the base of row i's robot."""
    w, a = world_of(s, i), agent_of(s, i)
    s.team_pos_w[w, a] = s.base_pos_w[i]
    s.team_quat_wxyz[w, a] = s.base_quat_wxyz[i]
    s.team_lin_vel_w[w, a] = s.base_lin_vel_w[i]
    s.team_ang_vel_b[w, a] = s.base_ang_vel_b[i]
    s.team_active[w, a] = s.active[i]


@wp.func
def start_robot(s: Any, i: int, rng: wp.uint32, least: int, most: int):
    """Draw how many robots begin the episode, and where row i's robot starts: at its place, or parked.

    A robot that joins later starts at its place, moved as the first robot that is there has moved.
    """
    w, a = world_of(s, i), agent_of(s, i)
    own = i % s.crew_agents.shape[0]
    s.start_pos_w[i] = s.place_pos[own]
    s.start_yaw[i] = s.place_yaw[own]
    if s.joining[i] == 1:
        s.active[i] = 1
        first = int(-1)
        for b in range(s.crew_agents.shape[0]):
            if first < 0 and s.team_active[w, s.crew_agents[b]] == 1:
                first = b
        if first >= 0:
            moved = s.team_pos_w[w, s.crew_agents[first]] - s.place_pos[first]
            s.start_pos_w[i] = s.start_pos_w[i] + wp.vec3(moved[0], moved[1], 0.0)
    else:
        count = wp.min(least + int(wp.randf(rng) * float(most - least + 1)), most)
        s.active[i] = 1
        s.joins_in[i] = 0
        if a >= count:
            s.active[i] = 0
            s.start_pos_w[i] = wp.vec3(s.parking[0], s.parking[1] + s.parking[2] * float(a), 0.0)
            s.start_yaw[i] = 0.0


@wp.func
def draw_join(s: Any, i: int, rng: wp.uint32, share: float, lo: float, hi: float):
    """Draw whether and when row i's robot, if it is parked, joins the others [s]."""
    chance = wp.randf(rng)
    after = lo + (hi - lo) * wp.randf(rng)
    if s.joining[i] == 0 and s.active[i] == 0 and chance < share:
        s.joins_in[i] = wp.max(int(after / s.step_dt), 1)


@wp.func
def place_robot(s: Any, i: int):
    """Move row i's robot, posed about the origin by the reset events, to its start."""
    q, d = s.base_qpos, s.base_dof
    turn = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), s.start_yaw[i])
    pos = wp.vec3(s.qpos[i, q], s.qpos[i, q + 1], s.qpos[i, q + 2])
    pos = quat_rotate(turn, pos) + s.start_pos_w[i]
    quat = wp.vec4(s.qpos[i, q + 3], s.qpos[i, q + 4], s.qpos[i, q + 5], s.qpos[i, q + 6])
    quat = quat_multiply(turn, quat)
    vel = quat_rotate(turn, wp.vec3(s.qvel[i, d], s.qvel[i, d + 1], s.qvel[i, d + 2]))
    for k in range(3):
        s.qpos[i, q + k] = pos[k]
        s.qvel[i, d + k] = vel[k]
    for k in range(4):
        s.qpos[i, q + 3 + k] = quat[k]


@wp.func
def finish_robot(s: Any, i: int, age: int):
    """Finish a reset of row i: a robot that joins keeps the clock of its world, and the world its state."""
    if s.joining[i] == 1:
        s.episode_length[i] = age
        s.dirty[i] = (s.dirty[i] & ~STATE_BIT) | PLACED_BIT


@wp.func
def end_robot(s: Any, i: int):
    """Let row i's robot drop out."""
    s.active[i] = 0


@wp.func
def derive_mount(s: Any, i: int):
    """Fill the pose of the base of row i's robot, which is bolted down at its place in the task."""
    own = i % s.crew_agents.shape[0]
    s.base_pos_w[i] = s.place_pos[own]
    s.base_quat_wxyz[i] = quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), s.place_yaw[own])


@wp.func
def derive_mounted_sites(s: Any, c: Any, i: int):
    """Fill pose and velocity of each named site of row i's robot, which is bolted down at its place in the task."""
    zero = wp.vec3(0.0, 0.0, 0.0)
    for k in range(c.site_object.shape[0]):
        if c.site_object[k] < 0:
            derive_site(s, c, i, k, s.base_pos_w[i], s.base_quat_wxyz[i], zero, zero)
