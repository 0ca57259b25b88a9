"""What metrics are, as a task declares them and as eval.json and run.yaml have them."""

import math
from collections.abc import Mapping
from typing import Any

Descriptions = dict[str, dict[str, Any]]
"""Metric -> "unit", "meaning" and "better" ("smaller", "larger" or "" for neither).

A task's own metric has also "over" (the statistic over an episode) and "after_s" (the first seconds that do not count).
"""

OVER = {"mean": "time mean", "end": "in the last step", "max": "maximum", "min": "minimum"}


def explain(description: Mapping[str, Any]) -> str:
    """Return a metric's meaning in words, with the statistic over an episode."""
    meaning, over, after_s = str(description["meaning"]), description.get("over"), description.get("after_s")
    if over is None:
        return meaning
    words = "; ".join(filter(None, (meaning, OVER.get(over, str(over)))))
    return f"{words} from {after_s:g} s on" if after_s else words


def shown_unit(unit: str) -> str:
    """Return a unit as it is shown after a number: nothing for "1"."""
    return "" if unit == "1" else unit


def read_solved(value: Any) -> tuple[str, float] | None:
    """Return `solved` of a run.yaml that may be damaged: a key of rows and a finite number; else None."""
    if not isinstance(value, list) or len(value) != 2 or isinstance(value[1], bool):
        return None
    is_number = isinstance(value[1], int | float) and math.isfinite(value[1])
    return (str(value[0]), float(value[1])) if is_number else None


def judged(metrics: Mapping[str, Any]) -> list[str]:
    """Return the names of a task's own metrics that have better values, in order."""
    return [name for name, row in metrics.items() if "over" in row and row["better"]]
