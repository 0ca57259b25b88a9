"""The curves of gymnasium_v5.py as one SVG: return over control steps, and over wall-clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from gymnasium_rivals import RIVALS

from robot_rl.view.chart import BLUE, GREEN, ORANGE, Axis, path, ticks

WIDTH, HEIGHT = 230, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 24, 26
HEAD = 30
COLOURS = {"ours": BLUE, "cleanrl": ORANGE, "sb3": GREEN}
NAMES = {"ours": "robot-rl", **RIVALS}


def draw(table: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> str:
    """Draw one column an environment: means over seeds, with a band from the lowest to the highest seed.

    Args:
        table: rows of the result, for the names of the environments and what a training of each contestant takes.
        runs: trainings of ours ("rival" is "ours") and of the rivals.

    Returns:
        The SVG.
    """
    width, height = WIDTH * max(1, len(table)), HEAD + 2 * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10" fill="#333">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    x = LEFT
    for key, name in NAMES.items():
        parts.append(f'<line x1="{x}" x2="{x + 18}" y1="15" y2="15" stroke="{COLOURS[key]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 23}" y="19" font-size="12">{escape(name)}</text>')
        x += 40 + 6.5 * len(name)
    for k, row in enumerate(table):
        mine = {key: [r for r in runs if r["env"] == row["env"] and r["rival"] == key] for key in NAMES}
        lines = {key: curves(found, (row.get(key) or {}).get("train_s")) for key, found in mine.items() if found}
        for below, unit in enumerate(("M steps", "min")):
            shown = {key: (seconds / 60.0 if below else steps / 1e6, *y) for key, (steps, seconds, *y) in lines.items()}
            title = row["env"] if not below else ""
            panel = _panel(shown, title, unit)
            parts.append(f'<g transform="translate({k * WIDTH} {HEAD + below * HEIGHT})">{panel}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


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


def _panel(lines: dict[str, tuple[np.ndarray, ...]], title: str, unit: str) -> str:
    """One diagram; lines are (x, mean, lowest, highest) by contestant."""
    finite = [part[np.isfinite(part)] for _, *ys in lines.values() for part in ys]
    values = np.concatenate([*finite, [0.0]])
    right = max([float(x[-1]) for x, *_ in lines.values()], default=1.0)
    low, high = float(values.min()), max(float(values.max()), 1.0)
    marks = ticks(low, high, 4)
    px = Axis(low=0.0, high=right, start=LEFT, end=WIDTH - RIGHT)
    py = Axis(low=min(low, marks[0]), high=max(high, marks[-1]), start=HEIGHT - BOTTOM, end=TOP)
    parts = [f'<text x="{LEFT}" y="{TOP - 9}" font-size="12" font-weight="bold">{escape(title)}</text>']
    for mark in marks:
        y = py(mark)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{mark:g}</text>')
    for mark in ticks(0.0, right, 4):
        if mark <= right * 1.001:
            parts.append(f'<text x="{px(mark):.1f}" y="{HEIGHT - BOTTOM + 12}" text-anchor="middle">{mark:g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{unit}</text>')
    for key, (x, mean, lowest, highest) in lines.items():
        known = np.isfinite(mean)
        across = [px(value) for value in x[known]]
        band = path([*across, *across[::-1]], map(py, [*highest[known], *lowest[known][::-1]]))
        parts.append(f'<path d="{band}Z" fill="{COLOURS[key]}" opacity="0.15"/>')
        line = path(across, map(py, mean[known]))
        parts.append(f'<path d="{line}" fill="none" stroke="{COLOURS[key]}" stroke-width="1.5"/>')
    return "".join(parts)
