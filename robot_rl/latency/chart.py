"""Latencies as a picture: a row a stage on a logarithmic axis; below, delay and jitter as training sees them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.latency.measure import STAGES

INK, FAINT, GRID, BAR, MARK = "#222222", "#777777", "#dddddd", "#0b62c4", "#d1660a"
WIDTH, ROW, HEAD, FOOT, PANEL = 1100, 62, 64, 30, 220
LEFT, RIGHT = 300, 250
SCALE = 2  # drawn twice as large and shrunk, for smooth edges


def draw_latency(data: Mapping[str, Any]) -> Any:
    """Draw what :func:`robot_rl.latency.measure.measure` gives.

    Returns:
        A `PIL.Image.Image`.
    """
    from PIL import Image, ImageDraw, ImageFont

    stages = {name: data["stages"][name] for name in STAGES if name in data["stages"]}
    height = HEAD + ROW * len(stages) + FOOT + PANEL
    image = Image.new("RGB", (SCALE * WIDTH, SCALE * height), "white")
    pen = Pen(ImageDraw.Draw(image), ImageFont)
    pen.text((20, 16), f"{data.get('robot') or 'a robot'}: latencies of {data['steps']} control steps", 20, INK)
    pen.text(
        (20, 42), "each row's height is the share of its tallest bucket; the marks are p50, p99 and p99.9", 12, FAINT
    )
    low, high = _decades(stages.values())
    for k, (name, stage) in enumerate(stages.items()):
        _draw_stage(pen, HEAD + ROW * k, STAGES[name], stage, (low, high))
    _draw_axis(pen, HEAD, HEAD + ROW * len(stages), (low, high))
    top = HEAD + ROW * len(stages) + FOOT
    half = WIDTH // 2
    extra = f", {1e3 * data['extra_s']:g} ms of it on the wire" if data.get("extra_s") else ""
    _draw_histogram(pen, (40, top, half - 20, top + PANEL), f"delay, second by second [ms]{extra}", data["delay_s"])
    _draw_histogram(pen, (half + 20, top, WIDTH - 40, top + PANEL), "jitter of a single step [ms]", data["jitter_s"])
    return image.resize((WIDTH, height), Image.Resampling.LANCZOS)


class Pen:
    """Draws on a picture that is twice its size, in the pixels of the picture."""

    def __init__(self, draw: Any, fonts: Any):
        self._draw, self._fonts = draw, fonts

    def text(self, at: tuple[float, float], text: str, size: int, fill: str, anchor: str = "la") -> None:
        """Write a text [px]."""
        font = self._fonts.load_default(size=SCALE * size)
        self._draw.text((SCALE * at[0], SCALE * at[1]), text, fill=fill, font=font, anchor=anchor)

    def line(self, points: Sequence[float], fill: str, width: int = 1) -> None:
        """Draw a line through points x0, y0, x1, y1, ..."""
        self._draw.line([SCALE * value for value in points], fill=fill, width=SCALE * width)

    def box(self, box: Sequence[float], fill: str) -> None:
        """Fill a box x0, y0, x1, y1."""
        x0, y0, x1, y1 = (SCALE * value for value in box)
        self._draw.rectangle((x0, y0, max(x0, x1), max(y0, y1)), fill=fill)


def _decades(stages: Any) -> tuple[float, float]:
    """Powers of ten around all buckets, as exponents of microseconds."""
    bounds = [edge for stage in stages for lo, hi, _ in stage["buckets"] for edge in (max(lo, 0.1), hi)]
    return math.floor(math.log10(min(bounds))), math.ceil(math.log10(max(bounds)))


def _place(us: float, decades: tuple[float, float]) -> float:
    low, high = decades
    share = (math.log10(max(us, 10**low)) - low) / max(1.0, high - low)
    return LEFT + min(share, 1.0) * (WIDTH - RIGHT - LEFT)


def _draw_axis(pen: Pen, top: float, bottom: float, decades: tuple[float, float]) -> None:
    for power in range(int(decades[0]), int(decades[1]) + 1):
        x = _place(10.0**power, decades)
        pen.line((x, top, x, bottom), GRID)
        pen.text((x, bottom + 4), in_words(10.0**power), 12, FAINT, "ma")


def _draw_stage(pen: Pen, top: float, title: str, stage: Mapping[str, Any], decades: tuple[float, float]) -> None:
    base, room = top + ROW - 8, ROW - 16
    # A bucket's height is its density on the axis, so that wide and narrow buckets compare.
    widths = [max(_place(hi, decades) - _place(lo, decades), 0.5) for lo, hi, _ in stage["buckets"]]
    heights = [count / width for (_, _, count), width in zip(stage["buckets"], widths, strict=True)]
    for (lo, _, _), width, tall in zip(stage["buckets"], widths, heights, strict=True):
        x = _place(lo, decades)
        pen.box((x, base - max(room * tall / max(heights), 1.0), x + width, base), BAR)
    pen.line((LEFT, base, WIDTH - RIGHT, base), FAINT)
    for name in ("p50", "p99", "p99.9"):
        x = _place(stage[name], decades)
        pen.line((x, base - room, x, base + 3), MARK)
    pen.text((LEFT - 14, base - room / 2), title, 14, INK, "rm")
    figures = f"{in_words(stage['p50'])} / {in_words(stage['p99'])} / {in_words(stage['p99.9'])}"
    pen.text((WIDTH - RIGHT + 14, base - room / 2 - 8), figures, 14, INK, "lm")
    pen.text(
        (WIDTH - RIGHT + 14, base - room / 2 + 10),
        f"most {in_words(stage['max'])}, n {stage['count']}",
        11,
        FAINT,
        "lm",
    )


def _draw_histogram(pen: Pen, box: tuple[float, float, float, float], title: str, data: Mapping[str, Any]) -> None:
    x0, y0, x1, y1 = box
    edges, counts = [1e3 * edge for edge in data["edges"]], data["counts"]
    pen.text((x0, y0 + 6), title, 14, INK)
    base, room = y1 - 34, y1 - y0 - 76
    low, span = edges[0], edges[-1] - edges[0]
    for lo, hi, count in zip(edges, edges[1:], counts, strict=False):
        left, right = (x0 + (edge - low) / span * (x1 - x0) for edge in (lo, hi))
        if count:
            pen.box((left, base - max(room * count / max(counts), 1.0), right, base), BAR)
    pen.line((x0, base, x1, base), FAINT)
    for k in range(5):
        x = x0 + k / 4 * (x1 - x0)
        pen.line((x, base, x, base + 4), FAINT)
        pen.text((x, base + 7), f"{low + k / 4 * span:.3g}", 12, FAINT, "ma")


def in_words(us: float) -> str:
    """A time in microseconds with a unit that suits it."""
    if us >= 1e6:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"
