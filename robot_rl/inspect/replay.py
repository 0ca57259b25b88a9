"""Plays a recorded world again with plain MuJoCo, and says where it leaves what is finite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl.inspect.record import MAX_SPEED, Record, load_model

if TYPE_CHECKING:
    import mujoco


@dataclass(kw_only=True, slots=True)
class Replay:
    """What came of it.

    Attributes:
        possible: whether there was a model to step.
        verdict: one sentence.
        notes: what makes the replay differ from the run, or is worth knowing.
        differences: for each step the largest difference in position and in velocity between replay and record, over
            what is finite in both.
        bad_step: index of the control step in which the replay left what is finite, None where it did not.
        bad_substep: the substep of it, from 1 on.
        bad_name: the first component of the state that did.
    """

    possible: bool
    verdict: str
    notes: list[str] = field(default_factory=list)
    differences: list[tuple[float, float]] = field(default_factory=list)
    bad_step: int | None = None
    bad_substep: int = 0
    bad_name: str = ""


def replay(record: Record) -> Replay:
    """Step the recorded world from its first recorded state under its recorded controls.

    The start is the recorded state in float32 without the solver's warm start, so small differences are normal; they
    grow with contacts. Where an event moved the world between two steps, the replay goes on from the recorded state.
    Where it does not break, for a motion that runs away magnifies small differences, the last step is tried alone.
    """
    model = load_model(record)
    if isinstance(model, str):
        return Replay(possible=False, verdict=f"Not replayed: {model}.")
    result = Replay(possible=True, verdict="", notes=_notes(record, model))
    import mujoco

    mujoco.set_mju_user_warning(lambda _: None)  # else it writes to stderr and to MUJOCO_LOG.TXT
    try:
        raised = _run(record, model, result, 0)
        if result.bad_step is None:
            alone = Replay(possible=True, verdict="")
            raised = _run(record, model, alone, len(record.action) - 1)
            if alone.bad_step is not None:
                result.bad_step, result.bad_substep, result.bad_name = alone.bad_step, alone.bad_substep, alone.bad_name
                result.notes.append(
                    "From the first state on it does not break by the end; from the last but one it does."
                )
    finally:
        mujoco.set_mju_user_warning(None)
    result.verdict = _verdict(record, result, raised)
    return result


def _run(record: Record, model: mujoco.MjModel, result: Replay, start: int) -> str:
    """Fill the result from step ``start`` on; return what MuJoCo raised."""
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
        notes.append(
            "Events changed the state between some of the steps: there the replay goes on from the recorded state."
        )
    if model.nhistory or model.na:
        notes.append("Actuators remember (delays, activations): what they remembered at the start is not recorded.")
    bad = np.flatnonzero(~np.isfinite(record.ctrl).all(axis=(1, 2)))
    if bad.size:
        where = bad[0] - len(record.ctrl)
        notes.append(f"A control is not finite in step {where}: MuJoCo takes all controls of that step for 0.")
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
        "action": "the action was not finite, so the fault lies in the policy or in what it was given",
        "reward": "the state was finite, and the reward term named above is to be mended",
        "observation": "the state was finite, and the observation term named above is to be mended",
        "overflow": "a buffer of the engine was full, which plain MuJoCo with this model's memory may have room for",
        "raised": "the error depends on something that is not recorded, such as the solver's warm start",
        "state": "something other than these controls broke the state: another precision, an applied force, a write "
        "from outside the step",
    }.get(reason, "")
    return f"Not reproduced by physics alone ({far}): {why}."


def _largest(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.max()) if values.size else math.nan
