"""Measure things in turn (A B A B), and the common form of a result: who, value, unit, spread; ours first."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from robot_rl.machine import machine_facts, package_versions

T = TypeVar("T")


def in_turn(
    names: Iterable[str], measure: Callable[[], Iterable[T]], repeats: int, *, warm_up: int = 1
) -> dict[str, list[T]]:
    """Return the values of all names over the rounds; values at the same index were measured one after the other.

    Args:
        names: What is measured.
        measure: Measures all of it once, in turn.
        repeats: Rounds that count.
        warm_up: Rounds before them.
    """
    rounds = [tuple(measure()) for _ in range(warm_up + repeats)][warm_up:]
    return dict(zip(names, map(list, zip(*rounds, strict=True)), strict=True))


def spread(values: Sequence[float]) -> float:
    """Return the quartile distance; 0 of a single value."""
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [0.0] * 3
    return quartiles[2] - quartiles[0]


def facts(name: str) -> dict[str, Any]:
    """Return the first entries of every result: {"name", "machine", "versions"}."""
    return {"name": name, "machine": machine_facts(), "versions": package_versions()}


def make_result(
    name: str, rows: dict[str, list[float]], *, unit: str, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return medians and spreads of repeated measurements.

    Args:
        name: Name of the benchmark.
        rows: Who -> one value a repeat, ours first, as of `in_turn`.
        unit: Unit of the values.
        notes: Settings to record with the figures.

    Returns:
        {"name", "machine", "versions", "rows", "ratio", "notes"}; a row is {"who", "value" (median), "unit", "spread"
        (quartile distance), "repeats"}; "ratio" is the median over repeats of ours / first rival, None without a rival.
    """
    table = [
        {
            "who": who,
            "value": statistics.median(values),
            "unit": unit,
            "spread": spread(values),
            "repeats": len(values),
        }
        for who, values in rows.items()
    ]
    series = list(rows.values())
    ratio = median_ratio(series[0], series[1]) if len(series) > 1 else None
    return facts(name) | {"rows": table, "ratio": ratio, "notes": notes or {}}


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over the rounds of one value by the other."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def seconds(run: Callable[[], object], device: str = "cpu") -> float:
    """Return how long ``run`` takes, with the work that it queued on a GPU [s]."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start
