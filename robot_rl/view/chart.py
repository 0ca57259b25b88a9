"""Charts: those of pages, which static/chart.js draws in the browser, and an image to draw bars on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

INK, FAINT, GRID = "#222222", "#777777", "#dddddd"
BLUE, LIGHT_BLUE, ORANGE, GREEN = "#0b62c4", "#6aa2dd", "#d1660a", "#5a8f29"


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
class Series:
    """One curve; color 0 of `tone` is the main one, 1 to 6 are the categorical ones, and a dashed one has none."""

    name: str
    values: list[float | None]
    tone: int = 0
    dashed: bool = False


@dataclass(kw_only=True, slots=True)
class Chart:
    """A chart of a page, which static/chart.js draws.

    Attributes:
        title: its title.
        unit: of the vertical axis, shown next to the title.
        series: the curves, all over the same rows.
        kind: "line", or "stack" for stacked areas.
        zero: include 0 in the vertical axis.
        log: logarithmic vertical axis.
        target: a horizontal line at this value, with its label.
        top: fixed upper end of the vertical axis.
        small: draw it smaller.
        dots: mark each value.
        suspect: highlight it.
        note: a few words under the title.
        x: its own horizontal places, ascending; None: those of the page.
        x_unit: their unit.
    """

    title: str
    unit: str
    series: list[Series]
    kind: str = "line"
    zero: bool = False
    log: bool = False
    target: tuple[float, str] | None = None
    top: float | None = None
    small: bool = False
    dots: bool = False
    suspect: bool = False
    note: str = ""
    x: list[float | None] | None = None
    x_unit: str = ""


def numbers(values: np.ndarray) -> list[float | None]:
    """Return values with six digits each, None for one that is not finite."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def block(axes: dict[str, list[float | None]], charts: Iterable[Chart]) -> str:
    """Return the data of a page's charts, in the page's order, over the horizontal axes {key: values}."""
    data = {"axes": axes, "charts": [asdict(chart) for chart in charts]}
    # "<" never appears in the block, so nothing in a metric's name can end it.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>\n'


def figure(chart: Chart, index: int) -> str:
    """Return the <figure> of a chart, which has that index in the page's block."""
    title = escape(chart.title)
    unit = f'<span class="unit">{escape(chart.unit)}</span>' if chart.unit else ""
    suspect = " suspect" if chart.suspect else ""
    legend = read = ""
    if len(chart.series) > 1 or chart.kind == "stack":
        items = "".join(
            f'<span class="tone{s.tone}"><i></i><b>{escape(s.name)}</b> <output></output></span>' for s in chart.series
        )
        legend = f'<div class="legend">{items}</div>'
    else:
        read = '<output class="read"></output>'
    return (
        f'<figure class="chart{suspect}" data-chart="{index}"><figcaption><span class="title">{title}</span>{unit}'
        f'{read}</figcaption>{legend}<p class="aside"></p>'
        f'<div class="plot" tabindex="0" role="img" aria-label="{title}: curve over time; '
        'arrow keys move the reading point"></div></figure>'
    )


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
