"""A measured delay as randomization: the histograms of a file, as quantiles that a kernel draws from.

The file is written by ``robot-rl latency``: JSON with ``format`` "robot_rl.latency", ``version`` 1 and two histograms,
``delay_s`` (how long from a robot's state to the command that answers it, second by second) and ``jitter_s`` (how far
a single step is off), each ``{"edges": [...], "counts": [...]}`` with one edge more than counts, in seconds. The report
of ``robot-rl-infer --report`` is also read: its delay is then one figure, and all of its spread is jitter.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

FORMAT = "robot_rl.latency"
VERSION = 1
QUANTILES = 33
"""Values that a distribution is reduced to: its quantiles at 0, 1/32, ..., 1."""
MAX_DELAY_S = 1.0


def read_latency(path: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the quantiles of delay and jitter in a file of ``robot-rl latency`` [s].

    Raises:
        ValueError: no such file, or other content; the line names the error.
    """
    where = f"randomize.latency_from={path!r}"
    try:
        data = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{where}: {(error.strerror or 'cannot be read').lower()}; robot-rl latency makes one"
        ) from None
    except (ValueError, RecursionError):
        raise ValueError(f"{where}: is not JSON; wants a file that robot-rl latency wrote") from None
    if isinstance(data, dict) and "latencies" in data:
        data = from_report(data, where)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{where}: is not a file of robot-rl latency; make one with robot-rl latency <report or log>")
    if data.get("version") != VERSION:
        raise ValueError(f"{where}: version={data.get('version')!r}, this program reads {VERSION}")
    delay = _quantiles(f"{where}: delay_s", data.get("delay_s"), 0.0)
    return delay, _quantiles(f"{where}: jitter_s", data.get("jitter_s"), -MAX_DELAY_S)


def quantiles(edges: list[float], counts: list[int]) -> tuple[float, ...]:
    """Return the quantiles of a histogram at evenly spaced probabilities, linear within a bin.

    ``edges`` (n + 1,) are ascending, ``counts`` (n,) not all 0.
    """
    total, found = sum(counts), []
    for k in range(QUANTILES):
        left = total * k / (QUANTILES - 1)
        value = edges[0]
        for lo, hi, count in zip(edges, edges[1:], counts, strict=False):
            if count == 0:
                continue
            # The lowest quantile is the first bin's lower edge; each other one is in the bin that reaches it.
            if left <= count:
                value = lo + (hi - lo) * left / count
                break
            left, value = left - count, hi
        found.append(float(value))
    return tuple(found)


def from_report(report: dict[str, Any], where: str, extra_s: float = 0.0) -> dict[str, Any]:
    """Convert a report of ``robot-rl-infer --report`` to the form of ``robot-rl latency``.

    The delay is the state's transport (as far as it varies) and then the time to the command; a report does not contain
    their correlation, so they are taken as independent. ``where`` begins error lines, ``extra_s`` is a constant
    unmeasured time on the wire, added to the delay [s].
    """
    latencies = report["latencies"]
    parts = [_spread(where, latencies, "state_to_command")]
    if isinstance(latencies, dict) and "state_jitter" in latencies and latencies["state_jitter"].get("count"):
        parts.append(_spread(where, latencies, "state_jitter"))
    sums = sorted(map(sum, itertools.product(*parts)))
    median = sums[len(sums) // 2]
    low, high = sums[0] - median, sums[-1] - median
    width = max((high - low) / 64, 1e-6)
    edges = [low + width * k for k in range(65)]
    counts = [0] * 64
    for value in sums:
        counts[min(int((value - median - low) / width), 63)] += 1
    delay = {"edges": [max(0.0, median + extra_s - 5e-7), median + extra_s + 5e-7], "counts": [1]}
    return {"format": FORMAT, "version": VERSION, "delay_s": delay, "jitter_s": {"edges": edges, "counts": counts}}


def _spread(where: str, latencies: Any, name: str) -> list[float]:
    """Return 64 values [s] distributed as a histogram of a report."""
    try:
        buckets = [(float(lo), float(hi), int(count)) for lo, hi, count in latencies[name]["buckets"]]
        total = sum(count for _, _, count in buckets)
        if latencies[name]["unit"] != "us" or total < 1:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{where}: latencies.{name} must be a histogram in us with values in it") from None
    values, k, below = [], 0, 0
    for n in range(64):
        rank = (n + 0.5) / 64 * total
        while below + buckets[k][2] < rank:
            below += buckets[k][2]
            k += 1
        lo, hi, count = buckets[k]
        values.append((lo + (hi - lo) * (rank - below) / count) * 1e-6)
    return values


def check_quantiles(name: str, values: Any, least: float) -> None:
    """Refuse quantiles that are not a distribution; an empty tuple is valid."""
    right = f"must be empty, or 2 or more ascending numbers in [{least:g}, {MAX_DELAY_S:g}] s"
    fits = all(isinstance(value, int | float) and math.isfinite(value) for value in values) and len(values) != 1
    if fits and values:
        fits = least <= values[0] and values[-1] <= MAX_DELAY_S
        fits = fits and all(lo <= hi for lo, hi in itertools.pairwise(values))
    if not fits:
        raise ValueError(f"{name}={values!r}: {right}")


def _quantiles(where: str, histogram: Any, least: float) -> tuple[float, ...]:
    if not isinstance(histogram, dict) or not {"edges", "counts"} <= set(histogram):
        raise ValueError(f"{where}: must hold 'edges' and 'counts'")
    edges, counts = histogram["edges"], histogram["counts"]
    numbers = isinstance(edges, list) and isinstance(counts, list) and len(edges) == len(counts) + 1 >= 2
    numbers = numbers and all(isinstance(e, int | float) and math.isfinite(e) for e in edges)
    if not numbers or not all(lo < hi for lo, hi in itertools.pairwise(edges)):
        raise ValueError(f"{where}.edges: must be ascending finite numbers, one more than counts")
    if not least <= edges[0] or not edges[-1] <= MAX_DELAY_S:
        raise ValueError(f"{where}.edges: [{edges[0]:g}, {edges[-1]:g}] s is outside [{least:g}, {MAX_DELAY_S:g}] s")
    if not all(type(count) is int and count >= 0 for count in counts) or sum(counts) == 0:
        raise ValueError(f"{where}.counts: must be whole numbers of at least 0, not all 0")
    return quantiles([float(edge) for edge in edges], counts)
