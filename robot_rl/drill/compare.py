"""Comparison of two runs: checkpoints bit for bit, metrics except for times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.metrics.rows import read_row

TIMES = ("perf/", "time_s")
"""Prefixes of metrics that differ between any two runs."""


def differing_tensors(one: Path, other: Path) -> list[str]:
    """Return the tensors in which two checkpoint directories differ, as "file: name"."""
    names = sorted({path.name for checkpoint in (one, other) for path in checkpoint.glob("*.safetensors")})
    found = []
    for name in names:
        mine, theirs = (_tensors(checkpoint / name) for checkpoint in (one, other))
        found += [f"{name}: {key}" for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)]
    return found


def differing_rows(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], after: int) -> list[str]:
    """Return in which metrics two runs differ after an iteration, times left out, as "iteration i: names"."""
    mine, theirs = (
        {
            row["iteration"]: {name: value for name, value in row.items() if not name.startswith(TIMES)}
            for row in rows
            if row["iteration"] > after
        }
        for rows in (one, other)
    )
    found = []
    for iteration in sorted({*mine, *theirs}):
        a, b = mine.get(iteration), theirs.get(iteration)
        if a is None or b is None:
            found.append(f"iteration {iteration}: not in both")
        elif a != b:
            names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
            found.append(f"iteration {iteration}: {', '.join(sorted(names))}")
    return found


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics as they are in the file, without invalid lines."""
    return [row for row in read_lines(run_dir) if row is not None]


def read_lines(run_dir: Path) -> list[dict[str, Any] | None]:
    """Return the row of each line of a run's metrics, None for an invalid one; nothing if there is no file."""
    path = run_dir / "metrics.jsonl"
    return [read_row(line) for line in path.read_bytes().splitlines()] if path.is_file() else []


def _tensors(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the tensors of a file as (type, shape, bytes); unlike values, NaNs of the same bits are equal."""
    from safetensors import deserialize

    if not path.is_file():
        return {}
    parts = deserialize(path.read_bytes())
    return {name: (part["dtype"], tuple(part["shape"]), bytes(part["data"])) for name, part in parts}
