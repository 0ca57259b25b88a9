"""What a team's critic sees of the others, and the rows of several crews side by side."""

from __future__ import annotations

import warp as wp

from robot_rl_envs.team.termination import RowFields

TEAM = "team"
"""The observation group that a team's environment adds."""
SHOWN = "shown"
"""The group of a task that the others' critics see of a robot; "critic" if it is missing."""


@wp.kernel(enable_backward=False)
def show(
    values: wp.array2d(dtype=wp.float32),
    finals: wp.array2d(dtype=wp.float32),
    s: RowFields,
    final: int,
    # outputs
    shown_out: wp.array3d(dtype=wp.float32),
    present_out: wp.array2d(dtype=wp.float32),
):
    """Put the values that a crew's robots show into the arrays of the team; with ``final`` as their episodes ended."""
    i = wp.tid()
    size = s.agents.shape[0]
    w, agent = i / size, s.agents[i % size]
    done = wp.max(s.terminated[i], s.time_out[i])
    is_final = final * done
    present = s.active[i]
    if final == 1:
        present = s.acted[i]
    present_out[w, agent] = float(present)
    for k in range(shown_out.shape[2]):
        value = float(0.0)
        if present == 1 and k < values.shape[1]:
            if is_final == 1:
                value = finals[i, k]
            else:
                value = values[i, k]
        shown_out[w, agent, k] = value


@wp.kernel(enable_backward=False)
def see(
    shown: wp.array3d(dtype=wp.float32),
    present: wp.array2d(dtype=wp.float32),
    s: RowFields,
    final: int,
    # outputs
    seen_out: wp.array2d(dtype=wp.float32),
):
    """Write a robot's critic's view of the others, in turn from the next one on, and the robot's own id."""
    i = wp.tid()
    size = s.agents.shape[0]
    w, agent = i / size, s.agents[i % size]
    if final == 1 and wp.max(s.terminated[i], s.time_out[i]) == 0:
        return
    own = present[w, agent]
    count, width = shown.shape[1], shown.shape[2] + 1
    for n in range(count - 1):
        other = (agent + 1 + n) % count
        seen_out[i, n * width] = own * present[w, other]
        for k in range(width - 1):
            seen_out[i, n * width + 1 + k] = own * shown[w, other, k]
    for n in range(count):
        seen_out[i, (count - 1) * width + n] = wp.where(n == agent, 1.0, 0.0)


def seen_width(shown: int, count: int) -> int:
    """Return the width of the group "team" of a team of ``count`` robots, of which each shows ``shown`` values."""
    return (count - 1) * (shown + 1) + count


@wp.kernel(enable_backward=False)
def merge_rows(
    values: wp.array2d(dtype=wp.float32),
    agents: wp.array(dtype=wp.int32),
    count: int,
    # outputs
    rows_out: wp.array2d(dtype=wp.float32),
):
    """Put the rows of a crew among those of all robots; narrower ones are filled up with zeros."""
    i = wp.tid()
    w, agent = i / agents.shape[0], agents[i % agents.shape[0]]
    for k in range(values.shape[1]):
        rows_out[w * count + agent, k] = values[i, k]


@wp.kernel(enable_backward=False)
def split_rows(
    rows: wp.array2d(dtype=wp.float32),
    agents: wp.array(dtype=wp.int32),
    count: int,
    # outputs
    values_out: wp.array2d(dtype=wp.float32),
):
    """Take the rows of a crew from those of all robots."""
    i = wp.tid()
    w, agent = i / agents.shape[0], agents[i % agents.shape[0]]
    for k in range(values_out.shape[1]):
        values_out[i, k] = rows[w * count + agent, k]


@wp.kernel(enable_backward=False)
def merge_flags(
    s: RowFields,
    count: int,
    # outputs
    reward_out: wp.array(dtype=wp.float32),
    terminated_out: wp.array(dtype=wp.int32),
    time_out_out: wp.array(dtype=wp.int32),
    quarantined_out: wp.array(dtype=wp.int32),
    acted_out: wp.array(dtype=wp.int32),
    restart_out: wp.array(dtype=wp.int32),
):
    """Put the results of a crew's rows among those of all robots."""
    i = wp.tid()
    size = s.agents.shape[0]
    row = i / size * count + s.agents[i % size]
    reward_out[row] = s.reward[i]
    terminated_out[row] = s.terminated[i]
    time_out_out[row] = s.time_out[i]
    quarantined_out[row] = s.quarantined[i]
    acted_out[row] = s.acted[i]
    restart_out[row] = s.restart[i]
