"""Scores of hypotheses: how well the model predicts a log's windows if a cause is removed from the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import UserError
from robot_rl.explain.causes import Cause
from robot_rl.identify.plant_model import PlantModel
from robot_rl.identify.robot_log import RobotLog
from robot_rl.identify.walking import WalkingProblem, walking_windows
from robot_rl.identify.windows import Problem, Window, cut_windows

Array = NDArray[np.float64]
MARGIN = 0.3
"""Scores that differ by less are not told apart: a third in the size of the residuals."""
FLOOR = 0.3
"""In standard deviations: a smaller residual is as good as the sensor."""
MOST = 300.0
"""In standard deviations: a larger residual is as bad."""
WINDOW_S = {"free": 0.1, "fixed": 0.3}
MOST_WINDOWS, FEW_WINDOWS, FEW = 36, 7, 8
"""Windows of a log; of the first round; the hypotheses that it leaves."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A hypothesis and its score: the mean over channels of the logarithm of the residuals' size. Less is better."""

    cause: Cause | None
    score: float


def windows_of(log: RobotLog, base: str, seconds: float = 0.0, most: int = MOST_WINDOWS) -> list[Window]:
    """Return windows all over a log, about `most`, of a length [s], by default that of `WINDOW_S`."""
    seconds = seconds or WINDOW_S[base]
    every = max(0.4 * seconds, (log.seconds - seconds) / most)
    cut = walking_windows if base == "free" else cut_windows
    found = cut([log], seconds, every, skip=min(0.1, 0.1 * log.seconds))
    if len(found) < 4:
        raise UserError(
            f"{log.name}: has {len(found)} stretches of {seconds:g} s under constant gains; needs 4 or more"
        )
    return found


def make_problem(
    model: PlantModel, windows: Sequence[Window], *, tied: Sequence[int] | None = None, adapt: bool = False
) -> Problem:
    """Return windows of a robot that hangs or walks, as the model's base says."""
    if model.base == "free":
        return WalkingProblem(model, windows, tied=tied, adapt=adapt)
    return Problem(model, windows, tied=tied)


def residuals(problem: Problem, thetas: Sequence[Array]) -> Array:
    """Return measurements less predictions, in standard deviations, (C, M, K)."""
    off = (problem.measured - problem.predict(thetas)) / problem.sigmas(0)
    return np.clip(np.nan_to_num(off, nan=MOST), -MOST, MOST)


def score(problem: Problem, off: Array, part: NDArray[np.bool_]) -> float:
    """Return the score of residuals (M, K) in the windows of `part`, (W,).

    A channel's size is the median over rows: a robot's single stumble counts little. A kind's size is the root of the
    mean square over its channels, so that one joint among twelve counts.
    """
    counts = np.diff(np.append(problem.first, len(off)))
    rows = np.repeat(part, counts)
    size = 1.4826 * np.median(np.abs(off[rows]), axis=0)
    kinds = [np.sqrt(np.mean(size[channel] ** 2)) for channel in problem.channels.values()]
    return float(np.mean(np.log(np.array(kinds) + FLOOR)))


def repaired(windows: Sequence[Window], cause: Cause | None) -> list[Window]:
    """Return the windows of the log without a cause."""
    if cause is None:
        return list(windows)
    log = cause.repair(windows[0].log)
    return [Window(log, w.first, w.rows) for w in windows]


def rank(model: PlantModel, windows: Sequence[Window], known: Sequence[Cause], theta: Array) -> list[Scored]:
    """Return the hypotheses from the best to the worst, with None for a log that is right.

    All are scored on a few windows, and the best of them on all.
    """
    few = [windows[n] for n in np.linspace(0, len(windows) - 1, min(FEW_WINDOWS, len(windows))).astype(int)]
    first = [(_score(model, few, cause, theta, np.ones(len(few), bool)), n) for n, cause in enumerate(known)]
    best = sorted(n for _, n in sorted(first)[:FEW])
    part = np.arange(len(windows)) % 2 == 1
    found = [Scored(cause, _score(model, windows, cause, theta, part)) for cause in (None, *(known[n] for n in best))]
    return sorted(found, key=lambda row: row.score)


def _score(
    model: PlantModel, windows: Sequence[Window], cause: Cause | None, theta: Array, part: NDArray[np.bool_]
) -> float:
    problem = make_problem(model, repaired(windows, cause))
    return score(problem, residuals(problem, [theta])[0], part)
