"""A quantity of a quarantined world over its last moments, as a diagram without a script."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape

import numpy as np

from robot_rl.view.chart import Plot, short, ticks

WIDTH, HEIGHT = 300, 128


@dataclass(kw_only=True, slots=True)
class Chart:
    """A small line chart over time; `draw` makes it.

    Attributes:
        title: its title.
        unit: of the vertical axis.
        times: (n,) [s].
        values: (n,); values that are not finite are marked at the top; a last one far off the others is a number.
        suspect: highlight the chart.
        target: (m,) a second, dashed line over the first m times; None for none.
        bounds: (lo, hi) that the vertical axis includes at least, (nan, nan) for none.
    """

    title: str
    unit: str
    times: np.ndarray
    values: np.ndarray
    suspect: bool = False
    target: np.ndarray | None = None
    bounds: tuple[float, float] = field(default=(math.nan, math.nan))


def draw(chart: Chart) -> str:
    """Return the chart as a <figure>."""
    flown, times, values = _flies_off(chart.values), chart.times, chart.values
    plot, marks = _axes(chart, values[:-1] if flown else values)
    plot.axes((), marks, number=short)
    for time, anchor in ((times[0], "start"), (times[-1], "end")):
        plot.text(plot.x(time), HEIGHT - 6, milliseconds(time), anchor)
    bottom, top = plot.y.low, plot.y.high
    beyond = 6 * (top - bottom) / (plot.y.start - plot.y.end)  # Six pixels outside the axes is the furthest.
    inside = np.where(np.isfinite(values), np.clip(values, bottom - beyond, top + beyond), math.nan)
    if chart.target is not None:
        # Each value holds until the next.
        ends = np.append(times[1:], times[-1])[: len(chart.target)]
        corners = np.stack([times[: len(chart.target)], ends], axis=1).ravel()
        plot.line(corners, np.repeat(chart.target, 2), width=1, css="target")
    plot.line(times, inside)
    plot.dots(times, inside)
    for time in times[~np.isfinite(values)]:
        x, y = min(plot.x(time), plot.x.end - 4), plot.y.end - 4
        plot.parts.append(f'<path class="lost" d="M{x - 4:.1f} {y}l8 8m0 -8l-8 8"><title>not finite</title></path>')
    lost = "" if np.isfinite(values).all() else '<span class="far">not finite</span>'
    if flown:
        lost = f'<span class="far">ends at {short(float(values[-1]))}</span>'
    return (
        f'<figure class="chart{" suspect" if chart.suspect else ""}"><figcaption><span class="title">'
        f'{escape(chart.title)}</span><span class="unit">{escape(chart.unit)}</span>{lost}</figcaption>'
        f'<div class="plot {"tone2" if chart.suspect else "tone0"}"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(chart.title)}">{"".join(plot.parts)}</svg></div></figure>'
    )


def milliseconds(seconds: float) -> str:
    """Return a time [s] in milliseconds, with its unit."""
    return f"{1000 * seconds:.0f} ms".replace("-", "−")


def _axes(chart: Chart, seen: np.ndarray) -> tuple[Plot, list[float]]:
    """Return the plot of a chart and the ticks of the vertical axis, which includes the values `seen`."""
    lines = [seen, chart.bounds] if chart.target is None else [seen, chart.target, chart.bounds]
    finite = np.concatenate([np.asarray(line)[np.isfinite(line)] for line in lines])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if high - low < 1e-6 * max(1.0, abs(high)):
        pad = max(0.5, 1e-3 * abs(high))  # 0.5 has no effect on a number of 17 digits.
        low, high = low - pad, high + pad
    marks = ticks(low, high)
    across = (float(chart.times[0]), float(chart.times[-1]))
    up = (min(low, marks[0]), max(high, marks[-1]))
    return Plot((WIDTH, HEIGHT), across, up, left=44, right=8, top=10, bottom=22), marks


def _flies_off(values: np.ndarray) -> bool:
    """Return whether the last value is so far from the others that they would be drawn as a flat line."""
    before = values[:-1][np.isfinite(values[:-1])]
    if not before.size or not math.isfinite(values[-1]):
        return False
    low, high = float(before.min()), float(before.max())
    spread = max(high - low, 0.1 * max(abs(low), abs(high)), 1e-3)
    return bool(values[-1] > high + 3 * spread or values[-1] < low - 3 * spread)
