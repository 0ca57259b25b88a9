"""The common form of a benchmark's result: who, value, unit, spread; ours first, rivals after."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from robot_rl.machine import machine_facts, package_versions


def make_result(
    name: str, rows: dict[str, list[float]], *, unit: str, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return medians and spreads of repeated measurements.

    Args:
        name: Name of the benchmark.
        rows: Who -> one value a repeat, ours first; repeats at the same index were measured one after the other.
        unit: Unit of the values.
        notes: Settings to record with the figures.

    Returns:
        {"name", "machine", "versions", "rows", "ratio", "notes"}; a row is {"who", "value" (median), "unit", "spread"
        (quartile distance), "repeats"}; "ratio" is the median over repeats of ours / first rival, None without a rival.
    """
    table = []
    for who, values in rows.items():
        quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
        table.append(
            {
                "who": who,
                "value": statistics.median(values),
                "unit": unit,
                "spread": quartiles[2] - quartiles[0],
                "repeats": len(values),
            }
        )
    series = list(rows.values())
    ratio = statistics.median(a / b for a, b in zip(series[0], series[1], strict=True)) if len(series) > 1 else None
    return {
        "name": name,
        "machine": machine_facts(),
        "versions": package_versions(),
        "rows": table,
        "ratio": ratio,
        "notes": notes or {},
    }


def seconds(run: Callable[[], object], device: str) -> float:
    """Return how long ``run`` takes, with what it queued on a GPU [s]."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def least_cpu_s(run: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of this thread over some runs [s], without what else runs."""
    found = []
    for _ in range(repeats):
        start = time.thread_time()
        run()
        found.append(time.thread_time() - start)
    return round(min(found), 4)
