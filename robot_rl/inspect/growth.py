"""Which quantities of a record ran away: the last control steps of those that grew the fastest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robot_rl.inspect.record import Record

SHOWN_STEPS = 10
SHOWN_ROWS = 6


@dataclass(kw_only=True, slots=True)
class Growth:
    """One quantity.

    Attributes:
        name: such as "velocity of FL_hip_joint".
        unit: such as "rad/s".
        values: its last values, NaN where not finite.
        factor: how many times its usual size it reached; infinite where it is not finite at the end.
    """

    name: str
    unit: str
    values: np.ndarray
    factor: float


def fastest(record: Record) -> list[Growth]:
    """The quantities that grew the most beyond their usual size over the record, the fastest first."""
    groups = (
        ("velocity of", "m/s, rad/s", record.about["dof_names"], record.qvel, 0.1),
        ("action of", "", record.about["action_names"], record.action, 0.1),
    )
    rows = []
    for what, unit, names, values, floor in groups:
        for k, name in enumerate(names):
            factor = _factor(values[:, k], floor)
            rows.append(Growth(name=f"{what} {name}", unit=unit, values=values[-SHOWN_STEPS:, k], factor=factor))
    # Where everything is lost at the end, the last finite values tell which was first.
    rows.sort(key=lambda row: (-row.factor, -_before_the_end(row.values)))
    return rows[:SHOWN_ROWS]


def _factor(values: np.ndarray, floor: float) -> float:
    if not math.isfinite(values[-1]):
        return math.inf
    size = np.abs(values[np.isfinite(values)])
    usual = float(np.median(size[: max(1, len(size) // 2)]))
    return float(size[-3:].max()) / max(usual, floor)


def _before_the_end(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite[-1] - finite[0]) if finite.size else 0.0
