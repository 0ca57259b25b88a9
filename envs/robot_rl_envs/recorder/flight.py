"""The flight recorder: the last 200 ms of every world, in a ring that the stages of a step write on the device.

A row is the start of a control step (state, command) with the step's action and control; a quarantined world's
last row is the state that the step ended in. At quarantine the world's ring is copied into one of a few slots, which
the host writes to files at its next sync (:mod:`.quarantine`). Nothing here is part of a checkpoint.
"""

from typing import Any

import warp as wp

from robot_rl_envs import engine

REASONS = {
    "raised": engine.FAULT_RAISED,
    "action": engine.FAULT_ACTION,
    "overflow": engine.FAULT_OVERFLOW,
    "state": engine.FAULT_STATE,
    "reward": engine.FAULT_REWARD,
    "observation": engine.FAULT_OBSERVATION,
}
"""Reasons by name, the likely cause first: a world that has several is counted under the first."""

STEP, WRITTEN, REWARD, COMMAND = 0, 1, 2, 3
"""Columns of a row: control steps since the reset; DIRTY_* bits of the fields written since the step before; the reward
of the step before; from COMMAND on the command, then qpos, qvel, action, ctrl (of each substep, if they differ)."""
MARKS = ("world", "counter", "step", "faults", "overflow", "rows_needed", "contacts_needed", "term")
"""What a slot contains in addition to its rows."""

_AT_COMMAND, _AT_REWARD = wp.constant(COMMAND), wp.constant(REWARD)
_RAISED, _ACTION, _OVERFLOW, _STATE, _REWARD = (wp.constant(bit) for bit in list(REASONS.values())[:5])
_ENDED = wp.constant(_RAISED | _ACTION | _OVERFLOW | _STATE)


@wp.struct
class Flight:
    """The recorder's arrays.

    Attributes:
        rows: (length, N, width) the rings, so that a step writes one stretch of memory; the row of control step n is n
            modulo length, NaN before the first one.
        slots: (S, length, width) rings of quarantined worlds.
        marks: (S, len(MARKS)).
        models: (S, k) the randomized model fields of these worlds, one after the other.
        claimed: (chunks,) number of worlds that requested a slot.
        needed: (N, 2) the engine's ``EngineData.needed``.
        qpos: first column of qpos in a row, after the command.
        chunk: worlds of a chunk of launches.
        slots_per_chunk: chunks run in parallel on a CPU, so each has its own slots.
    """

    rows: wp.array3d(dtype=wp.float32)
    slots: wp.array3d(dtype=wp.float32)
    marks: wp.array2d(dtype=wp.int32)
    models: wp.array2d(dtype=wp.float32)
    claimed: wp.array(dtype=wp.int32)
    needed: wp.array2d(dtype=wp.int32)
    qpos: int
    chunk: int
    slots_per_chunk: int


@wp.func
def reason_of(faults: int) -> int:
    """Index in REASONS of the first reason among fault bits."""
    if (faults & _RAISED) != 0:
        return 0
    if (faults & _ACTION) != 0:
        return 1
    if (faults & _OVERFLOW) != 0:
        return 2
    if (faults & _STATE) != 0:
        return 3
    if (faults & _REWARD) != 0:
        return 4
    return 5


@wp.func
def record_start(s: Any, f: Flight, i: int):
    """Write the state and the command at the start of world i's control step."""
    row = s.counter[i] % f.rows.shape[0]
    f.rows[row, i, 0] = float(s.step_count[i])
    f.rows[row, i, 1] = float(s.dirty[i])
    f.rows[row, i, _AT_REWARD] = s.reward[i]
    for k in range(len(s.command[i])):
        f.rows[row, i, _AT_COMMAND + k] = s.command[i][k]
    at = f.qpos + s.qpos.shape[1]
    for k in range(s.qpos.shape[1]):
        f.rows[row, i, f.qpos + k] = s.qpos[i, k]
    for k in range(s.qvel.shape[1]):
        f.rows[row, i, at + k] = s.qvel[i, k]


@wp.func
def record_action(s: Any, f: Flight, i: int):
    """Write the action of world i into the row of its control step."""
    row = s.counter[i] % f.rows.shape[0]
    at = f.qpos + s.qpos.shape[1] + s.qvel.shape[1]
    for k in range(s.action.shape[1]):
        f.rows[row, i, at + k] = s.action[i, k]


@wp.func
def record_control(s: Any, f: Flight, i: int, substep: int, j: int):
    """Write control j of one substep."""
    row = s.counter[i] % f.rows.shape[0]
    at = f.qpos + s.qpos.shape[1] + s.qvel.shape[1] + s.action.shape[1]
    f.rows[row, i, at + substep * s.ctrl.shape[1] + j] = s.ctrl[i, j]


@wp.func
def record_end(s: Any, f: Flight, i: int):
    """Write the state that the control step ended in, as the row of the next one."""
    record_start(s, f, i)
    record_action(s, f, i)


@wp.func
def dump(s: Any, f: Flight, i: int, first: int) -> int:
    """Copy the ring of the quarantined world i into a slot; return the slot, -1 if none is free."""
    faults = s.quarantined[i]
    if (faults & _ENDED) == 0:
        record_end(s, f, i)
    chunk = first / f.chunk
    mine = wp.atomic_add(f.claimed, chunk, 1)
    if mine >= f.slots_per_chunk:
        return -1
    slot = chunk * f.slots_per_chunk + mine
    for t in range(f.rows.shape[0]):
        for k in range(f.rows.shape[2]):
            f.slots[slot, t, k] = f.rows[t, i, k]
    f.marks[slot, 0] = i
    f.marks[slot, 1] = s.counter[i]
    f.marks[slot, 2] = s.step_count[i]
    f.marks[slot, 3] = faults
    f.marks[slot, 4] = s.overflow[i]
    f.marks[slot, 5] = f.needed[i, 0]
    f.marks[slot, 6] = f.needed[i, 1]
    f.marks[slot, 7] = s.fault_term[i]
    return slot
