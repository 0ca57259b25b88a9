"""Measure delay and jitter from a log or a report of ``robot-rl-infer``.

A log contains more than a report: with every state the robot's time and ours. The offset of the two clocks is unknown,
so of a state's transport only the excess over the shortest within the last seconds is known; the constant part must be
measured on the wire and given by hand. The delay that a policy experiences is the transport and the time to its
command.
"""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from robot_rl_envs.actuation.latency import FORMAT, VERSION, from_report

from robot_rl.errors import UserError
from robot_rl.sim2sim.binary import load_runtime
from robot_rl.view.chart import FAINT, GRID, INK, ORANGE, Axis, Canvas, microseconds

WINDOW_S = 1.0
"""The delay is the median within so long a time, and jitter the difference of a step to it."""
CLOCKS_S = 10.0
"""Within so long a time the two clocks stay together."""
BINS = 64
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
WIDTH, ROW, HEAD, FOOT, PANEL = 1100, 62, 64, 30, 220
LEFT, RIGHT = 300, 250

STAGES = {
    "state_to_command": "state in -> command out",
    "wake": "state in -> policy awake",
    "observe": "observation",
    "inference": "inference",
    "state_jitter": "the state's way, beyond the shortest",
    "state_interval": "between states",
    "command_interval": "between commands",
    "step_late": "control step late",
    "writer_late": "writer awake late",
    "writer_send": "writer awake -> command out",
    "command_age": "age of the state a command answers",
}
"""What is measured, by its name in files, and in words."""


def measure(source: Path, extra_s: float = 0.0) -> dict[str, Any]:
    """Return delay, jitter and stages of a log (.mcap) or a report (.json), ready to be written as JSON.

    Args:
        source: The file.
        extra_s: Constant time on the wire that the file cannot contain, added to the delay [s].

    Returns:
        {"format", "version", "source", "robot", "extra_s", "steps", "delay_s", "jitter_s", "stages"}; a histogram is
        {"edges", "counts"}; a stage is as in a report, {"unit", "count", "min", "mean", "max", "p50", "p90", "p99",
        "p99.9", "buckets"}.

    Raises:
        UserError: The file is neither, or contains no step of a policy.
    """
    if not 0.0 <= extra_s <= 0.5:
        raise UserError("extra_s", f"{extra_s:g}", "must be in [0, 0.5] s")
    if source.exists() and not source.is_file():
        raise UserError(f"{source}: is a directory, pipe or device; name a log or a report")
    if source.suffix == ".mcap":
        return _of_log(source, extra_s)
    return _of_report(source, extra_s)


def _of_report(source: Path, extra_s: float) -> dict[str, Any]:
    try:
        report = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{source}: {(error.strerror or 'cannot be read').lower()}; name a log or a report") from None
    except (ValueError, RecursionError):
        raise UserError(f"{source}: is neither a log *.mcap nor JSON") from None
    if isinstance(report, dict) and report.get("format") == FORMAT and report.get("stages"):
        return report
    if not isinstance(report, dict) or not isinstance(report.get("latencies"), dict):
        raise UserError(f"{source}: has no 'latencies'; wants a report of robot-rl-infer --report")
    try:
        made = from_report(report, str(source), extra_s)
    except ValueError as error:
        raise UserError(str(error)) from None
    stages = {name: stage for name, stage in report["latencies"].items() if name in STAGES and stage.get("count")}
    steps = stages["state_to_command"]["count"]
    about = {"source": str(source), "robot": report.get("robot", ""), "extra_s": extra_s, "steps": steps}
    return {**made, **about, "stages": stages}


def _of_log(source: Path, extra_s: float) -> dict[str, Any]:
    runtime = load_runtime()
    try:
        columns, about = runtime.log_times(source), runtime.log_about(source)
    except (runtime.UserError, runtime.ContractError) as error:
        raise UserError(str(error)) from None
    times = {name: np.frombuffer(data, dtype=np.int64) for name, data in columns.items()}
    answered = _answered(times)
    if answered is None:
        raise UserError(f"{source}: holds no command that answers a policy's step; nothing to measure")
    robot_s, receive, send = answered
    way = _way(times["state.robot_time_ns"], times["state.receive_time_ns"])
    state_way = way[np.searchsorted(times["state.receive_time_ns"], receive).clip(max=len(way) - 1)]
    delay, jitter = split(robot_s, state_way + (send - receive) * 1e-9)
    return {
        "format": FORMAT,
        "version": VERSION,
        "source": str(source),
        "robot": about["run"]["robot"],
        "extra_s": extra_s,
        "steps": len(send),
        "delay_s": histogram(delay + extra_s),
        "jitter_s": histogram(jitter),
        "stages": _stages(times, way, receive, send),
    }


def _answered(times: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return of each command right after a step its state's time by the robot [s] and by us [ns], and its own [ns]."""
    if "policy.begin_ns" not in times or "command.from_policy" not in times:
        return None
    sent = times["command.from_policy"] == 1
    send = times["command.send_time_ns"][sent]
    received = send - times["command.state_age_ns"][sent]
    if not send.size:
        return None
    return times["command.state_robot_time_ns"][sent] * 1e-9, received, send


def _way(robot_ns: np.ndarray, receive_ns: np.ndarray) -> np.ndarray:
    """Return how much longer than the shortest each state took [s]; the shortest of the seconds before it."""
    apart = (receive_ns - robot_ns) * 1e-9
    seconds = (receive_ns - receive_ns[0]) * 1e-9
    block = (seconds / CLOCKS_S).astype(np.int64)
    least = np.full(block[-1] + 1, np.inf)
    np.minimum.at(least, block, apart)
    # The block before also counts, so that a block's first states have something to be compared with.
    least = np.minimum(least, np.concatenate(([np.inf], least[:-1])))
    return apart - least[block]


def split(seconds: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split delays into their slow part and the part that each step adds to it.

    Args:
        seconds: (n,) times, by any clock [s].
        total: (n,) delays [s].

    Returns:
        The median within each WINDOW_S, and each delay less its window's median.
    """
    window = np.floor((seconds - seconds.min()) / WINDOW_S).astype(np.int64)
    windows = np.unique(window)
    medians = np.array([np.median(total[window == k]) for k in windows])
    return medians, total - medians[np.searchsorted(windows, window)]


def histogram(values: np.ndarray) -> dict[str, list[Any]]:
    """Return counts in up to BINS bins of equal width, at least a microsecond wide; edges in the values' unit."""
    low, high = float(values.min()), float(values.max())
    bins = int(np.clip((high - low) / 1e-6, 1, BINS))
    counts, edges = np.histogram(values, bins=bins, range=(low, max(high, low + 1e-6)))
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _stages(times: Mapping[str, np.ndarray], way: np.ndarray, receive: np.ndarray, send: np.ndarray) -> dict[str, Any]:
    begin = times["policy.begin_ns"]
    observed = times["policy.observed_ns"]
    durations = {
        "state_to_command": send - receive,
        "wake": begin - times["policy.state_receive_time_ns"],
        "observe": observed - begin,
        "inference": times["policy.done_ns"] - observed,
        "state_jitter": way * 1e9,
        "state_interval": np.diff(times["state.receive_time_ns"]),
        "command_interval": np.diff(times["command.send_time_ns"]),
    }
    return {name: stage(values) for name, values in durations.items() if len(values)}


def stage(nanoseconds: np.ndarray) -> dict[str, Any]:
    """Return a stage in the form of a report: percentiles and buckets in us, 16 buckets an octave; 0.1 us at least."""
    us = np.maximum(np.asarray(nanoseconds, dtype=np.float64) * 1e-3, 0.1)
    at = np.floor(16.0 * np.log2(us)).astype(np.int64)
    places, counts = np.unique(at, return_counts=True)
    lows, highs = 2.0 ** (places / 16.0), 2.0 ** ((places + 1) / 16.0)
    buckets = [[float(lo), float(hi), int(n)] for lo, hi, n in zip(lows, highs, counts, strict=True)]
    figures = {name: float(np.quantile(us, share)) for name, share in SHARES.items()}
    ends = {"min": float(us.min()), "mean": float(us.mean()), "max": float(us.max())}
    return {"unit": "us", "count": len(us), **ends, **figures, "buckets": buckets}


def draw_latency(data: Mapping[str, Any]) -> Any:
    """Return the result of `measure` as a `PIL.Image.Image`."""
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
