"""Analysis of a recorded world: its replay by plain MuJoCo, and the quantities that grew the fastest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.view.inspect.record import MAX_SPEED, Record, load_model

if TYPE_CHECKING:
    import mujoco


SHOWN_STEPS = 10
SHOWN_ROWS = 6
USUAL = 0.1
"""Smallest usual size of a velocity or action."""


@dataclass(kw_only=True, slots=True)
class Replay:
    """The result of a replay.

    Attributes:
        verdict: one sentence.
        notes: differences between replay and run.
        differences: for each step the largest difference in position and in velocity between replay and record, over
            values that are finite in both.
        bad_step: index of the first control step with a state that is not finite or too fast, None without one.
        bad_substep: its substep, from 1 on.
        bad_name: the first such component of the state.
    """

    verdict: str = ""
    notes: list[str] = field(default_factory=list)
    differences: list[tuple[float, float]] = field(default_factory=list)
    bad_step: int | None = None
    bad_substep: int = 0
    bad_name: str = ""


def replay(record: Record) -> Replay:
    """Step the recorded world from its first recorded state under its recorded controls.

    The start is the recorded state in float32 without the solver's warm start, so small differences are normal; they
    grow with contacts. After an event that moved the world the replay continues from the recorded state. If it does not
    break, since an unstable motion amplifies small differences, the last step is replayed on its own.
    """
    model = load_model(record)
    if isinstance(model, str):
        return Replay(verdict=f"Not replayed: {model}.")
    result = Replay(notes=_notes(record, model))
    from robot_rl_envs.engines.mujoco_warnings import ignore, take_warnings

    with take_warnings(ignore):
        raised = _run(record, model, result, 0)
        if result.bad_step is None:
            last = Replay()
            raised = _run(record, model, last, len(record.action) - 1)
            if last.bad_step is not None:
                result.bad_step, result.bad_substep, result.bad_name = last.bad_step, last.bad_substep, last.bad_name
                result.notes.append("It does not break from the first state on; from the second to last state it does.")
    result.verdict = _verdict(record, result, raised)
    return result


def _run(record: Record, model: mujoco.MjModel, result: Replay, start: int) -> str:
    """Fill the result from step ``start`` on; return the error of MuJoCo."""
    import mujoco

    data = mujoco.MjData(model)
    substeps, last = int(record.about["decimation"]), record.ctrl.shape[1] - 1
    for t in range(start, len(record.action)):
        if t == start or record.written[t]:
            data.qpos[:], data.qvel[:] = record.qpos[t], record.qvel[t]
        for m in range(substeps):
            data.ctrl[:] = record.ctrl[t, min(m, last)]
            try:
                mujoco.mj_step(model, data)
            except mujoco.FatalError as error:
                result.bad_step, result.bad_substep = t, m + 1
                return " ".join(str(error).split())
            name = _first_bad(record, data)
            if name:
                result.bad_step, result.bad_substep, result.bad_name = t, m + 1, name
                break
        result.differences.append((_apart(data.qpos, record.qpos[t + 1]), _apart(data.qvel, record.qvel[t + 1])))
        if result.bad_step is not None:
            break
    return ""


def _first_bad(record: Record, data: mujoco.MjData) -> str:
    for what, names, values, limit in (
        ("velocity", record.about["dof_names"], data.qvel, MAX_SPEED),
        ("position", record.about["qpos_names"], data.qpos, math.inf),
    ):
        bad = np.flatnonzero(~np.isfinite(values) | (np.abs(values) > limit))
        if bad.size:
            every = f" (with {bad.size - 1} more)" if bad.size > 1 else ""
            return f"{what} of {names[bad[0]]} = {values[bad[0]]:g}{every}"
    return ""


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    gap = np.abs(one - other)
    gap = gap[np.isfinite(gap)]
    return float(gap.max()) if gap.size else math.nan


def _notes(record: Record, model: Any) -> list[str]:
    notes = []
    if record.about["engine"] != "mujoco":
        notes.append(f"The run stepped in float32 ({record.about['engine']}), the replay in float64 (mujoco).")
    if record.written[1:].any():
        notes.append("Events changed the state between some steps: there the replay continues from the recorded state.")
    if model.nhistory or model.na:
        notes.append("Actuators have internal state (delays, activations), which is not recorded.")
    bad = np.flatnonzero(~np.isfinite(record.ctrl).all(axis=(1, 2)))
    if bad.size:
        where = bad[0] - len(record.ctrl)
        notes.append(f"A control is not finite in step {where}: MuJoCo uses 0 for all controls of that step.")
    return notes


def _verdict(record: Record, result: Replay, raised: str) -> str:
    steps = len(record.action)
    if result.bad_step is not None:
        where = f"in step {result.bad_step - steps} (of {-steps} to -1), substep {result.bad_substep}"
        if raised:
            return f"Reproduced: MuJoCo raises {where}: {raised}"
        return f"Reproduced: the replay breaks {where}: {result.bad_name}."
    dq, dv = (np.array(column) for column in zip(*result.differences, strict=True))
    far = f"largest difference {_largest(dq):.2g} in position, {_largest(dv):.2g} in velocity"
    reason = record.about["reason"]
    why = {
        "action": "the action was not finite, so the error is in the policy or its input",
        "reward": "the state was finite, and the reward term named above has to be fixed",
        "observation": "the state was finite, and the observation term named above has to be fixed",
        "overflow": "a buffer of the engine was full, while plain MuJoCo with this model's memory may have room",
        "raised": "the error depends on something that is not recorded, such as the solver's warm start",
        "state": "something other than these controls broke the state: another precision, an applied force, a write "
        "outside the step",
    }.get(reason, "")
    return f"Not reproduced by physics alone ({far}): {why}."


def _largest(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.max()) if values.size else math.nan


@dataclass(kw_only=True, slots=True)
class Growth:
    """One quantity.

    Attributes:
        name: such as "velocity of FL_hip_joint".
        values: its last values.
        factor: its last size relative to the usual one; infinite if the last value is not finite.
    """

    name: str
    values: np.ndarray
    factor: float


def fastest(record: Record) -> list[Growth]:
    """Return the velocities and actions that grew the most relative to their usual size, the fastest first."""
    groups = (
        ("velocity of", record.about["dof_names"], record.qvel),
        ("action of", record.about["action_names"], record.action),
    )
    rows = [
        Growth(name=f"{what} {name}", values=values[-SHOWN_STEPS:, k], factor=_factor(values[:, k]))
        for what, names, values in groups
        for k, name in enumerate(names)
    ]
    # If everything is infinite at the end, the last finite values show which was first.
    rows.sort(key=lambda row: (-row.factor, -_before_the_end(row.values)))
    return rows[:SHOWN_ROWS]


def _factor(values: np.ndarray) -> float:
    if not math.isfinite(values[-1]):
        return math.inf
    size = np.abs(values[np.isfinite(values)])
    usual = float(np.median(size[: max(1, len(size) // 2)]))
    return float(size[-3:].max()) / max(usual, USUAL)


def _before_the_end(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite[-1] - finite[0]) if finite.size else 0.0
