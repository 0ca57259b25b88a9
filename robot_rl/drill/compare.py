"""Whether two runs are the same run: their newest checkpoints bit for bit, their metrics but for the time they took."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TIMES = ("perf/", "time_s")
"""What the names of metrics begin with that no two runs have in common."""


def differing_tensors(one: Path, other: Path) -> list[str]:
    """Return the names of the tensors in which two checkpoints differ, with their file's.

    Args:
        one: a checkpoint's directory.
        other: the other's.
    """
    names = sorted({path.name for checkpoint in (one, other) for path in checkpoint.glob("*.safetensors")})
    found = []
    for name in names:
        mine, theirs = (_tensors(checkpoint / name) for checkpoint in (one, other))
        found += [f"{name}: {key}" for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)]
    return found


def differing_rows(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]], after: int) -> list[str]:
    """Return in which rows of metrics two runs differ, times left out.

    Args:
        one: a run's rows.
        other: the other's.
        after: the iteration after which they are compared.
    """
    mine, theirs = (
        {row["iteration"]: _timeless(row) for row in rows if row["iteration"] > after} for rows in (one, other)
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
    """Return the rows of a run's metrics as they lie in the file, none left out but lines that are no rows."""
    return [row for row in read_lines(run_dir) if row is not None]


def read_lines(run_dir: Path) -> list[dict[str, Any] | None]:
    """Return a row for each line of a run's metrics, None where it is none; nothing where there is no file."""
    path = run_dir / "metrics.jsonl"
    return [read_row(line) for line in path.read_bytes().splitlines()] if path.is_file() else []


def read_row(line: bytes) -> dict[str, Any] | None:
    """Return a line of metrics as a row; None where it is none."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("iteration"), int) else None


def _timeless(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(TIMES)}


def _tensors(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the tensors of a file as (type, shape, bytes), which are equal for two NaNs of the same bits, too."""
    from safetensors import deserialize

    if not path.is_file():
        return {}
    parts = deserialize(path.read_bytes())
    return {name: (part["dtype"], tuple(part["shape"]), bytes(part["data"])) for name, part in parts}
