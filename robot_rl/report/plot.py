"""Parts of plots: round ticks, short numbers, line charts as SVG, and an image to draw bars on.

SVG charts need no script. The interactive curves of a run's report are drawn by templates/report.js in the browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

INK, FAINT, GRID = "#222222", "#777777", "#dddddd"
BLUE, LIGHT_BLUE, ORANGE, GREEN = "#0b62c4", "#6aa2dd", "#d1660a", "#5a8f29"
WIDTH, HEIGHT = 300, 128
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 10, 22


def short(value: float) -> str:
    """Return a number in few characters."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e4 or 0 < size < 1e-3:
        text = f"{value:.1e}".replace("e+0", "e").replace("e-0", "e−").replace(".0e", "e")
    else:
        text = f"{value:.0f}" if size >= 100 else f"{value:.3g}"
    return text.replace("-", "−")


def microseconds(us: float) -> str:
    """Return a time [us] with a suitable unit."""
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def ticks(low: float, high: float, count: int = 3) -> list[float]:
    """Return round values that enclose a range, about `count` steps apart."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    first = math.floor(low / step + 1e-6)
    return [step * k for k in range(first, math.ceil(high / step - 1e-6) + 1)]


@dataclass(kw_only=True, slots=True)
class Axis:
    """An axis of a plot: values from `low` to `high` are at pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: Any) -> Any:
        """Return the position of a value, or of each of an array [px]."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.start)


@dataclass(kw_only=True, slots=True)
class Chart:
    """A small line chart over time.

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
    flown = _flies_off(chart.values)
    x, y, marks = _axes(chart, chart.values[:-1] if flown else chart.values)
    parts = []
    for mark in marks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y(mark) + 4:.1f}" text-anchor="end">{short(mark)}</text>')
    for mark, anchor in ((chart.times[0], "start"), (chart.times[-1], "end")):
        text = f"{1000 * mark:.0f} ms".replace("-", "−")
        parts.append(f'<text x="{x(mark):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>')
    clipped = np.clip(y(chart.values), TOP - 6, HEIGHT - BOTTOM + 6)
    inside = np.where(np.isfinite(chart.values), clipped, math.nan).tolist()
    across = [x(time) for time in chart.times]
    if chart.target is not None:
        parts.append(f'<path class="dashed" d="{_steps(across, [y(value) for value in chart.target])}"/>')
    parts.append(f'<g class="{"tone2" if chart.suspect else "tone0"}"><path class="line" d="{path(across, inside)}"/>')
    for cx, cy in zip(across, inside, strict=True):
        if math.isfinite(cy):
            parts.append(f'<circle class="dot" cx="{cx:.1f}" cy="{cy:.1f}" r="2"/>')
    parts.append("</g>")
    for time in chart.times[~np.isfinite(chart.values)]:
        cx = min(x(time), WIDTH - RIGHT - 4)
        parts.append(f'<path class="lost" d="M{cx - 4:.1f} {TOP - 4}l8 8m0 -8l-8 8"><title>not finite</title></path>')
    lost = "" if np.isfinite(chart.values).all() else '<span class="far">not finite</span>'
    if flown:
        lost = f'<span class="far">ends at {short(float(chart.values[-1]))}</span>'
    return (
        f'<figure class="chart{" suspect" if chart.suspect else ""}"><figcaption><span class="title">'
        f'{escape(chart.title)}</span><span class="unit">{escape(chart.unit)}</span>{lost}</figcaption>'
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f"{''.join(parts)}</svg></div></figure>"
    )


def _axes(chart: Chart, seen: np.ndarray) -> tuple[Axis, Axis, list[float]]:
    """Return the axes of a chart and the ticks of the vertical one, which includes the values `seen`."""
    lines = [seen, chart.bounds] if chart.target is None else [seen, chart.target, chart.bounds]
    finite = np.concatenate([np.asarray(line)[np.isfinite(line)] for line in lines])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if high - low < 1e-6 * max(1.0, abs(high)):
        pad = max(0.5, 1e-3 * abs(high))  # 0.5 has no effect on a number of 17 digits.
        low, high = low - pad, high + pad
    marks = ticks(low, high)
    low, high = min(low, marks[0]), max(high, marks[-1])
    x = Axis(low=float(chart.times[0]), high=float(chart.times[-1]), start=LEFT, end=WIDTH - RIGHT)
    return x, Axis(low=low, high=high, start=HEIGHT - BOTTOM, end=TOP), marks


def _flies_off(values: np.ndarray) -> bool:
    """Return whether the last value is so far from the others that they would be drawn as a flat line."""
    before = values[:-1][np.isfinite(values[:-1])]
    if not before.size or not math.isfinite(values[-1]):
        return False
    low, high = float(before.min()), float(before.max())
    spread = max(high - low, 0.1 * max(abs(low), abs(high)), 1e-3)
    return bool(values[-1] > high + 3 * spread or values[-1] < low - 3 * spread)


def path(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return the path of an SVG line through points [px], with a gap for one that is not finite."""
    out, pen = "", "M"
    for x, y in zip(xs, ys, strict=True):
        finite = math.isfinite(x) and math.isfinite(y)
        out += f"{pen}{x:.1f} {y:.1f}" if finite else ""
        pen = "L" if finite else "M"
    return out


def _steps(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return the path of a line on which each value holds until the next of `xs`, which may have more."""
    last = xs[-1] + (xs[-1] - xs[-2] if len(xs) > 1 else 0.0)
    ends = [min(x, WIDTH - RIGHT) for x in [*xs[1:], last][: len(ys)]]
    corners = [place for pair in zip(xs[: len(ys)], ends, strict=True) for place in pair]
    return path(corners, [y for y in ys for _ in range(2)])


class Canvas:
    """An image that is drawn at twice its size, for smooth edges; coordinates are pixels of the final image."""

    SCALE = 2

    def __init__(self, width: int, height: int) -> None:
        """Create a white image of `width` by `height` pixels."""
        from PIL import Image, ImageDraw

        self._image = Image.new("RGB", (self.SCALE * width, self.SCALE * height), "white")
        self._draw = ImageDraw.Draw(self._image)

    def text(self, at: tuple[float, float], text: str, size: int, fill: str, anchor: str = "la") -> None:
        """Write a text of a size [px]."""
        from PIL import ImageFont

        font = ImageFont.load_default(size=self.SCALE * size)
        self._draw.text((self.SCALE * at[0], self.SCALE * at[1]), text, fill=fill, font=font, anchor=anchor)

    def line(self, points: Sequence[float], fill: str, width: int = 1) -> None:
        """Draw a line through points x0, y0, x1, y1, ..."""
        self._draw.line([self.SCALE * value for value in points], fill=fill, width=self.SCALE * width)

    def box(self, box: Sequence[float], fill: str) -> None:
        """Fill a box x0, y0, x1, y1."""
        x0, y0, x1, y1 = (self.SCALE * value for value in box)
        self._draw.rectangle((x0, y0, max(x0, x1), max(y0, y1)), fill=fill)

    def bars(self, edges: Sequence[tuple[float, float]], heights: Sequence[float], base: float, room: float) -> None:
        """Draw bars from `base` up; the tallest is `room` high, and any other than 0 at least a pixel."""
        for (left, right), height in zip(edges, heights, strict=True):
            if height:
                self.box((left, base - max(room * height / max(heights), 1.0), right, base), BLUE)

    def image(self) -> Any:
        """Return the image at its final size, a `PIL.Image.Image`."""
        from PIL import Image

        width, height = self._image.size
        return self._image.resize((width // self.SCALE, height // self.SCALE), Image.Resampling.LANCZOS)
