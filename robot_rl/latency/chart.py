"""Plot latencies: a row a stage on a logarithmic axis; below, delay and jitter as training uses them."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from robot_rl.latency.measure import STAGES
from robot_rl.report.plot import FAINT, GRID, INK, ORANGE, Axis, Canvas, microseconds

WIDTH, ROW, HEAD, FOOT, PANEL = 1100, 62, 64, 30, 220
LEFT, RIGHT = 300, 250


def draw_latency(data: Mapping[str, Any]) -> Any:
    """Return the result of :func:`robot_rl.latency.measure.measure` as a `PIL.Image.Image`."""
    stages = {name: data["stages"][name] for name in STAGES if name in data["stages"]}
    top = HEAD + ROW * len(stages) + FOOT
    canvas = Canvas(WIDTH, top + PANEL)
    canvas.text((20, 16), f"{data.get('robot') or 'a robot'}: latencies of {data['steps']} control steps", 20, INK)
    about = "each row's height is the share of its tallest bucket; the marks are p50, p99 and p99.9"
    canvas.text((20, 42), about, 12, FAINT)
    axis = _decades(stages.values())
    for k, (name, stage) in enumerate(stages.items()):
        _draw_stage(canvas, HEAD + ROW * k, STAGES[name], stage, axis)
    for power in range(int(axis.low), int(axis.high) + 1):
        x = axis(power)
        canvas.line((x, HEAD, x, top - FOOT), GRID)
        canvas.text((x, top - FOOT + 4), microseconds(10.0**power), 12, FAINT, "ma")
    half = WIDTH // 2
    extra = f", {1e3 * data['extra_s']:g} ms of it on the wire" if data.get("extra_s") else ""
    _draw_histogram(canvas, (40, half - 20), top, f"delay, second by second [ms]{extra}", data["delay_s"])
    _draw_histogram(canvas, (half + 20, WIDTH - 40), top, "jitter of a single step [ms]", data["jitter_s"])
    return canvas.image()


def _decades(stages: Any) -> Axis:
    """Return the axis of all buckets, over the decimal logarithm of microseconds, from a power of ten to another."""
    bounds = [edge for stage in stages for lo, hi, _ in stage["buckets"] for edge in (max(lo, 0.1), hi)]
    low, high = math.floor(math.log10(min(bounds))), math.ceil(math.log10(max(bounds)))
    return Axis(low=low, high=max(high, low + 1), start=LEFT, end=WIDTH - RIGHT)


def _draw_stage(canvas: Canvas, top: float, title: str, stage: Mapping[str, Any], axis: Axis) -> None:
    def x(us: float) -> float:
        return axis(min(max(math.log10(max(us, 1e-9)), axis.low), axis.high))

    base, room = top + ROW - 8, ROW - 16
    places = [(x(lo), max(x(hi), x(lo) + 0.5)) for lo, hi, _ in stage["buckets"]]
    # A bucket's height is its density on the axis, so that wide and narrow buckets compare.
    heights = [n / (right - left) for (_, _, n), (left, right) in zip(stage["buckets"], places, strict=True)]
    canvas.bars(places, heights, base, room)
    canvas.line((LEFT, base, WIDTH - RIGHT, base), FAINT)
    for name in ("p50", "p99", "p99.9"):
        canvas.line((x(stage[name]), base - room, x(stage[name]), base + 3), ORANGE)
    canvas.text((LEFT - 14, base - room / 2), title, 14, INK, "rm")
    figures = " / ".join(microseconds(stage[name]) for name in ("p50", "p99", "p99.9"))
    canvas.text((WIDTH - RIGHT + 14, base - room / 2 - 8), figures, 14, INK, "lm")
    most = f"most {microseconds(stage['max'])}, n {stage['count']}"
    canvas.text((WIDTH - RIGHT + 14, base - room / 2 + 10), most, 11, FAINT, "lm")


def _draw_histogram(
    canvas: Canvas, across: tuple[float, float], top: float, title: str, data: Mapping[str, Any]
) -> None:
    edges, base = [1e3 * edge for edge in data["edges"]], top + PANEL - 34
    axis = Axis(low=edges[0], high=edges[-1], start=across[0], end=across[1])
    canvas.text((across[0], top + 6), title, 14, INK)
    places = [(axis(low), axis(high)) for low, high in itertools.pairwise(edges)]
    canvas.bars(places, data["counts"], base, PANEL - 76)
    canvas.line((across[0], base, across[1], base), FAINT)
    for k in range(5):
        value = edges[0] + k / 4 * (edges[-1] - edges[0])
        canvas.line((axis(value), base, axis(value), base + 4), FAINT)
        canvas.text((axis(value), base + 7), f"{value:.3g}", 12, FAINT, "ma")
