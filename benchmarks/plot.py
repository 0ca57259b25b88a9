"""Curves of the benchmarks as SVG files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from robot_rl.view.chart import GRID, INK, Axis

MARGINS = {"left": 46, "right": 12, "top": 24, "bottom": 46}
"""Space around a plot for its numbers, title and unit [px]."""


def ticks(low: float, high: float, count: int = 3) -> list[float]:
    """Return round values that enclose a range, about `count` steps apart."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    first = math.floor(low / step + 1e-6)
    return [step * k for k in range(first, math.ceil(high / step - 1e-6) + 1)]


class Plot:
    """One diagram as SVG, of which the axes are drawn first.

    Attributes:
        x, y: the axes.
        parts: SVG elements, in the order in which they are drawn.
    """

    def __init__(self, size: tuple[int, int], x: tuple[float, float], y: tuple[float, float], **margins: int) -> None:
        """Lay out the axes from value to value in `size` [px], less the margins `left`, `right`, `top` and `bottom`."""
        left, right, top, bottom = (margins.get(side, value) for side, value in MARGINS.items())
        self.size, self.parts = size, list[str]()
        self.x = Axis(low=x[0], high=x[1], start=left, end=size[0] - right)
        self.y = Axis(low=y[0], high=y[1], start=size[1] - bottom, end=top)

    def text(self, x: float, y: float, text: str, anchor: str = "", **attributes: Any) -> None:
        """Write a text, which is escaped, at a pixel; `font_size` is written as font-size."""
        words = {"text-anchor": anchor, **{key.replace("_", "-"): value for key, value in attributes.items()}}
        extra = "".join(f' {key}="{value}"' for key, value in words.items() if value)
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>')

    def axes(self, xs: Iterable[float], ys: Iterable[float], unit: str, title: str) -> None:
        """Draw lines and numbers at `ys`, numbers at `xs`, the unit of the horizontal axis and the title."""
        ys = list(ys)
        left, right, low = self.x.start, self.x.end, self.y.start
        lines = "".join(f"M{left:g} {self.y(value):.1f}H{right:g}" for value in ys)
        self.parts.append(f'<path d="{lines}" stroke="{GRID}"/>')
        for value in ys:
            self.text(left - 5, self.y(value) + 4, f"{value:g}", "end")
        for value in xs:
            self.text(self.x(value), low + 16, f"{value:g}", "middle")
        self.text((left + right) / 2, low + 34, unit, "middle", font_size=12)
        self.text(left, self.y.end - 9, title, font_size=13)

    def line(self, xs: Any, ys: Any, color: str, *, width: float = 2.0, dash: str = "") -> None:
        """Draw a line through values, with a gap for one that is not finite."""
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        drawn = path(self.x(np.asarray(xs, dtype=float)), self.y(np.asarray(ys, dtype=float)))
        self.parts.append(
            f'<path class="line" d="{drawn}" fill="none" stroke="{color}" stroke-width="{width:g}"{extra}/>'
        )

    def band(self, xs: Any, lows: Any, highs: Any, color: str) -> None:
        """Fill the space between two lines."""
        xs, lows, highs = (np.asarray(values, dtype=float) for values in (xs, lows, highs))
        drawn = path(self.x(np.concatenate([xs, xs[::-1]])), self.y(np.concatenate([lows, highs[::-1]])))
        self.parts.append(f'<path d="{drawn}Z" fill="{color}" fill-opacity="0.15"/>')

    def dots(self, xs: Any, ys: Any, radius: float, color: str) -> None:
        """Draw a dot at each place with finite values."""
        for x, y in zip(xs, ys, strict=True):
            if math.isfinite(y):
                place = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}"'
                self.parts.append(f'<circle {place} r="{radius:g}" fill="{color}"/>')


def svg(plots: Sequence[Plot], *, columns: int = 0, head: int = 0, extra: str = "") -> str:
    """Return an SVG file of plots of one size side by side, in rows of so many, below `head` pixels for `extra`."""
    (width, height), columns = plots[0].size, columns or len(plots)
    parts = [
        f'<g transform="translate({k % columns * width} {head + k // columns * height})">{"".join(plot.parts)}</g>'
        for k, plot in enumerate(plots)
    ]
    box = f"0 0 {width * columns} {head + height * -(-len(plots) // columns)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="11" '
        f'fill="{INK}">\n<rect width="100%" height="100%" fill="#fff"/>\n{extra}' + "\n".join(parts) + "\n</svg>\n"
    )


def path(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return the path of an SVG line through points [px], with a gap for one that is not finite."""
    out, pen = "", "M"
    for x, y in zip(xs, ys, strict=True):
        finite = math.isfinite(x) and math.isfinite(y)
        out += f"{pen}{x:.1f} {y:.1f}" if finite else ""
        pen = "L" if finite else "M"
    return out
