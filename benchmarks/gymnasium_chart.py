"""The curves of gymnasium_v5.py as one SVG: return over control steps, and over wall-clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from gymnasium_rivals import RIVALS
from plot import Plot, svg, ticks

from robot_rl.view.chart import BLUE, GREEN, ORANGE

HEAD = 30
COLORS = {"ours": BLUE, "cleanrl": ORANGE, "sb3": GREEN}
NAMES = {"ours": "robot-rl", **RIVALS}


def draw(table: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> str:
    """Draw one column an environment: means over seeds, with a band from the lowest to the highest seed.

    Args:
        table: rows of the result, for the names of the environments and what a training of each contestant takes.
        runs: trainings of ours ("rival" is "ours") and of the rivals.

    Returns:
        The SVG.
    """
    x, legend = 44.0, []
    for key, name in NAMES.items():
        legend.append(f'<line x1="{x}" x2="{x + 18}" y1="15" y2="15" stroke="{COLORS[key]}" stroke-width="2"/>')
        legend.append(f'<text x="{x + 23}" y="19" font-size="12">{escape(name)}</text>')
        x += 40 + 6.5 * len(name)
    over_steps, over_time = [], []
    for row in table:
        mine = {key: [r for r in runs if r["env"] == row["env"] and r["rival"] == key] for key in NAMES}
        lines = {key: curves(found, (row.get(key) or {}).get("train_s")) for key, found in mine.items() if found}
        over_steps.append(_plot({key: (at / 1e6, *y) for key, (at, _, *y) in lines.items()}, row["env"], "M steps"))
        over_time.append(_plot({key: (at / 60.0, *y) for key, (_, at, *y) in lines.items()}, "", "min"))
    return svg([*over_steps, *over_time], columns=max(1, len(table)), head=HEAD, extra="".join(legend))


def curves(runs: Sequence[dict[str, Any]], train_s: float | None = None) -> tuple[np.ndarray, ...]:
    """Return control steps, seconds (mean), and the mean, lowest and highest return over the seeds, each (n,).

    Points before every seed has finished an episode are not finite.

    Args:
        runs: trainings of one contestant in one environment.
        train_s: what a training takes alone on the machine [s]: the clock of one with other work is scaled to it.
    """
    steps = np.array(min((run["curve"]["steps"] for run in runs), key=len), dtype=float)
    seconds, values = [], []
    for run in runs:
        at = np.array(run["curve"]["steps"], dtype=float)
        scale = 1.0 if run["load"] == "alone" or not train_s else train_s / run["train_s"]
        seconds.append(scale * np.interp(steps, at, run["curve"]["seconds"]))
        values.append(np.interp(steps, at, [math.nan if v is None else v for v in run["curve"]["return"]]))
    stack = np.array(values)
    return steps, np.mean(seconds, axis=0), stack.mean(axis=0), stack.min(axis=0), stack.max(axis=0)


def _plot(lines: dict[str, tuple[np.ndarray, ...]], title: str, unit: str) -> Plot:
    """One diagram; lines are (x, mean, lowest, highest) by contestant."""
    finite = [part[np.isfinite(part)] for _, *ys in lines.values() for part in ys]
    values = np.concatenate([*finite, [0.0]])
    right = max([float(x[-1]) for x, *_ in lines.values()], default=1.0)
    low, high = float(values.min()), max(float(values.max()), 1.0)
    marks = ticks(low, high, 4)
    plot = Plot((230, 162), (0.0, right), (min(low, marks[0]), max(high, marks[-1])), left=44, right=10, bottom=38)
    plot.axes([mark for mark in ticks(0.0, right, 4) if mark <= right * 1.001], marks, unit, title)
    for key, (x, mean, lowest, highest) in lines.items():
        known = np.isfinite(mean)
        plot.band(x[known], lowest[known], highest[known], COLORS[key])
        plot.line(x[known], mean[known], COLORS[key], width=1.5)
    return plot
