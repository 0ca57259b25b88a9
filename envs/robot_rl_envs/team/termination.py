"""The team's stage between a step's rewards and its resets: whose episode ends, and who gets which reward.

A row's own stage knows only its robot. Here the worlds are settled: first each crew adds its facts of a world, then
each gets the consequences for its robots.
"""

from __future__ import annotations

from collections.abc import Mapping

import warp as wp

from robot_rl_envs.engine import FAULT_OTHERS

_OTHERS = wp.constant(FAULT_OTHERS)


@wp.struct
class RowFields:
    """Fields of ``s`` of a crew, one row a robot."""

    agents: wp.array(dtype=wp.int32)  # (A,) its robots' indices in the team
    active: wp.array(dtype=wp.int32)
    acted: wp.array(dtype=wp.int32)
    joining: wp.array(dtype=wp.int32)
    restart: wp.array(dtype=wp.int32)
    ends: wp.array(dtype=wp.int32)
    terminated: wp.array(dtype=wp.int32)
    time_out: wp.array(dtype=wp.int32)
    quarantined: wp.array(dtype=wp.int32)
    episode_length: wp.array(dtype=wp.int32)
    reward: wp.array(dtype=wp.float32)
    episode_return: wp.array(dtype=wp.float32)
    shared_reward: wp.array2d(dtype=wp.float32)


def make_row_fields(arrays: Mapping[str, wp.array]) -> RowFields:
    """Return the fields of a crew, of its environment's arrays."""
    rows = RowFields()
    for name in RowFields.vars:
        setattr(rows, name, arrays["crew_agents" if name == "agents" else name])
    return rows


@wp.struct
class WorldCounts:
    """What is known of each world (N,) after all crews were counted.

    Attributes:
        fault: FAULT_* bits of any of its robots.
        ends: bits of the causes that end the episode for all: 1 a failure, 2 its time.
        left: robots that take part in the next step.
        count, reward: robots that took part, and their summed rewards for the team.
        age: control steps towards the time limit.
    """

    fault: wp.array(dtype=wp.int32)
    ends: wp.array(dtype=wp.int32)
    left: wp.array(dtype=wp.int32)
    count: wp.array(dtype=wp.int32)
    reward: wp.array(dtype=wp.float32)
    age: wp.array(dtype=wp.int32)


@wp.kernel(enable_backward=False)
def count_agents(s: RowFields, index: int, worlds: WorldCounts):
    """Add a crew's robots to the facts of each world; the first crew begins it."""
    w = wp.tid()
    size = s.agents.shape[0]
    fault = int(0)
    ends = int(0)
    left = int(0)
    count = int(0)
    total = float(0.0)
    if index == 0:
        worlds.age[w] = s.episode_length[w * size]
    else:
        fault = worlds.fault[w]
        ends = worlds.ends[w]
        left = worlds.left[w]
        count = worlds.count[w]
        total = worlds.reward[w]
    for a in range(size):
        i = w * size + a
        fault = fault | s.quarantined[i]
        if s.acted[i] == 1:
            count = count + 1
            ends = ends | s.ends[i]
            total = total + s.shared_reward[i, 1]
            if s.terminated[i] == 0:
                left = left + 1
        if s.joining[i] == 1:
            left = left + 1
    worlds.fault[w] = fault
    worlds.ends[w] = ends
    worlds.left[w] = left
    worlds.count[w] = count
    worlds.reward[w] = total


@wp.kernel(enable_backward=False)
def end_episodes(
    s: RowFields,
    least: int,
    floors: int,
    worlds: WorldCounts,
    # outputs
    team_active_out: wp.array2d(dtype=wp.int32),
):
    """Finish the rewards of a crew's robots, and mark those whose episode ends."""
    w = wp.tid()
    size = s.agents.shape[0]
    fault = int(worlds.fault[w])
    ends = int(worlds.ends[w])
    if worlds.left[w] < least:
        ends = ends | 1
    of_team = worlds.reward[w] / float(wp.max(worlds.count[w], 1))
    of_role = float(0.0)
    members = int(0)
    for a in range(size):
        i = w * size + a
        if s.acted[i] == 1:
            of_role = of_role + s.shared_reward[i, 0]
            members = members + 1
    of_role = of_role / float(wp.max(members, 1))
    for a in range(size):
        i = w * size + a
        acted = s.acted[i]
        s.episode_length[i] = worlds.age[w]
        reward = s.reward[i] + of_role + of_team
        if floors == 1:
            reward = wp.max(reward, 0.0)
        terminated = acted * s.terminated[i]
        time_out = int(0)
        restart = int(0)
        if ends != 0 or fault != 0:
            restart = int(1)
            s.joining[i] = 0
            if terminated == 0 and acted == 1:
                terminated = ends & 1
                time_out = 1 - terminated
        if fault != 0:
            s.quarantined[i] = wp.where(s.quarantined[i] != 0, s.quarantined[i], fault | _OTHERS)
            terminated = acted
            time_out = int(0)
        if acted == 0 or fault != 0:
            reward = float(0.0)
        s.reward[i] = reward
        s.episode_return[i] = s.episode_return[i] + reward
        s.terminated[i] = terminated
        s.time_out[i] = time_out
        s.restart[i] = restart
        team_active_out[w, s.agents[a]] = acted * (1 - terminated)
