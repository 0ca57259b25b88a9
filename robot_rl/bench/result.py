"""The common form of a benchmark's result: who, value, unit, spread; ours first, rivals after."""

from __future__ import annotations

import platform
import statistics
from importlib import metadata
from typing import Any

PACKAGES = ("torch", "mujoco", "mujoco-warp", "warp-lang", "rsl-rl-lib", "numpy")


def machine() -> dict[str, Any]:
    """Describe the processor, its cores and, where there is one, the GPU."""
    import os

    import torch

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {"cpu": model, "cores": os.cpu_count(), "gpu": gpu, "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Versions of the packages that decide the figures."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def make_result(
    name: str, rows: dict[str, list[float]], *, unit: str, notes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Turn repeated measurements into medians and spreads.

    Args:
        name: what was measured.
        rows: who -> one value a repeat, ours first; repeats at the same index were measured one after the other.
        unit: unit of the values.
        notes: settings worth keeping with the figures.

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
        "machine": machine(),
        "versions": versions(),
        "rows": table,
        "ratio": ratio,
        "notes": notes or {},
    }
