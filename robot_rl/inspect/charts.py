"""Small line charts as SVG text, drawn when the page is made: it needs no script."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape

import numpy as np

WIDTH, HEIGHT = 300, 128
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 10, 22


@dataclass(kw_only=True, slots=True)
class Chart:
    """One diagram.

    Attributes:
        title: what is drawn.
        unit: of the vertical axis.
        times: (n,) [s].
        values: (n,); what is not finite is marked at the top, and an end far away from all before by its value.
        suspect: highlighted, for the reasons mention it.
        target: (m, values) a second, dashed line over the first m times; None for none.
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
    """The chart as a <figure>."""
    flown = _flies_off(chart.values)
    seen = chart.values[:-1] if flown else chart.values
    lines = [seen] if chart.target is None else [seen, chart.target]
    finite = np.concatenate(
        [line[np.isfinite(line)] for line in lines] + [[b for b in chart.bounds if math.isfinite(b)]]
    )
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if high - low < 1e-6 * max(1.0, abs(high)):
        pad = max(0.5, 1e-3 * abs(high))  # One half is lost beside a number of 17 digits.
        low, high = low - pad, high + pad
    marks = _ticks(low, high)
    low, high = min(low, marks[0]), max(high, marks[-1])
    x = _scale(float(chart.times[0]), float(chart.times[-1]), LEFT, WIDTH - RIGHT)
    inside = _scale(low, high, HEIGHT - BOTTOM, TOP)

    def y(value: float) -> float:
        return min(max(inside(value), TOP - 6), HEIGHT - BOTTOM + 6)

    parts = []
    for mark in marks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y(mark) + 4:.1f}" text-anchor="end">{short(mark)}</text>')
    for mark in (chart.times[0], chart.times[-1]):
        anchor = "start" if mark == chart.times[0] else "end"
        text = f"{1000 * mark:.0f} ms".replace("-", "−")
        parts.append(f'<text x="{x(mark):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>')
    tone = "tone2" if chart.suspect else "tone0"
    if chart.target is not None:
        parts.append(
            f'<path class="dashed" d="{_path(x, y, chart.times[: len(chart.target)], chart.target, steps=True)}"/>'
        )
    parts.append(f'<g class="{tone}"><path class="line" d="{_path(x, y, chart.times, chart.values)}"/>')
    for time, value in zip(chart.times, chart.values, strict=True):
        if math.isfinite(value):
            parts.append(f'<circle class="dot" cx="{x(time):.1f}" cy="{y(value):.1f}" r="2"/>')
    parts.append("</g>")
    for time in chart.times[~np.isfinite(chart.values)]:
        cx = min(float(x(time)), WIDTH - RIGHT - 4)
        parts.append(f'<path class="lost" d="M{cx - 4:.1f} {TOP - 4}l8 8m0 -8l-8 8"><title>not finite</title></path>')
    lost = "" if np.isfinite(chart.values).all() else '<span class="far">not finite</span>'
    if flown:
        lost = f'<span class="far">ends at {short(float(chart.values[-1]))}</span>'
    kind = "chart suspect" if chart.suspect else "chart"
    return (
        f'<figure class="{kind}"><figcaption><span class="title">{escape(chart.title)}</span>'
        f'<span class="unit">{escape(chart.unit)}</span>{lost}</figcaption><div class="plot">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">{"".join(parts)}</svg>'
        "</div></figure>"
    )


def _flies_off(values: np.ndarray) -> bool:
    """Whether the last value is so far from all before that they would become one flat line."""
    before = values[:-1][np.isfinite(values[:-1])]
    if not before.size or not math.isfinite(values[-1]):
        return False
    low, high = float(before.min()), float(before.max())
    spread = max(high - low, 0.1 * max(abs(low), abs(high)), 1e-3)
    return bool(values[-1] > high + 3 * spread or values[-1] < low - 3 * spread)


def short(value: float) -> str:
    """A number in few characters."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e4 or 0 < size < 1e-3:
        text = f"{value:.1e}".replace("e+0", "e").replace("e-0", "e−").replace(".0e", "e")
    else:
        text = f"{value:.0f}" if size >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


def _scale(a: float, b: float, left: float, right: float):  # noqa: ANN202
    return lambda value: left + (value - a) / ((b - a) or 1.0) * (right - left)


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    first = math.floor(low / step + 1e-6)
    return [step * k for k in range(first, math.ceil(high / step - 1e-6) + 1)]


def _path(x, y, times: np.ndarray, values: np.ndarray, *, steps: bool = False) -> str:  # noqa: ANN001
    """A path through the finite points; with ``steps`` each value holds until the next time."""
    out, pen = "", "M"
    for k, (time, value) in enumerate(zip(times, values, strict=True)):
        if not math.isfinite(value):
            pen = "M"
            continue
        out += f"{pen}{x(time):.1f} {y(value):.1f}"
        if steps:
            end = times[k + 1] if k + 1 < len(times) else time + (times[-1] - times[-2] if len(times) > 1 else 0.0)
            out += f"L{min(x(end), WIDTH - RIGHT):.1f} {y(value):.1f}"
        pen = "L"
    return out
