"""Tables of a policy in several precisions, as text for the command line and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from robot_rl.learn.precision.conversion import table


def layer_table(network: Any) -> dict[str, Any]:
    """Return the table of a network's layers, as text."""
    rows = table(network, "cpu")
    cells = [
        [
            row["layer"],
            " x ".join(map(str, row["shape"])),
            row["precision"],
            row["rollout"],
            "-" if row["step"] is None else f"{row['step']:.4g}",
            row["computed"],
        ]
        for row in rows
    ]
    return {
        "title": "precision of each layer",
        "head": ["layer", "weight", "precision", "in rollouts", "step of inputs", "computed by"],
        "rows": cells,
    }


def flow_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of flows, as text."""
    names = {
        "log_ratio": "E|log ratio|",
        "kl_onnx": "KL(train || ONNX)",
        "kl_binary": "KL(train || binary)",
        "action_onnx": "actions differ by",
    }
    shown = {key: name for key, name in names.items() if any(key in row for row in rows)}
    has_tracking = any("tracking" in row for row in rows)
    heads = ["flow", *shown.values(), "return", *([_metric(rows), "worse by"] if has_tracking else [])]
    cells = []
    for row in rows:
        line = [row["name"], *(f"{row[key]:.1e}" if key in row else "-" for key in shown), _pair(row["return"])]
        if has_tracking:
            line += [_pair(row.get("tracking")), _signed(row.get("gap"))]
        cells.append(line)
    title = (
        "the same weights in other flows: how far rollouts are from the update (E|log ratio|), the robot's policy from "
        "the one that learns (KL, actions), and what the robot's returns"
    )
    return {"title": title, "head": heads, "rows": cells}


def sensitivity_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of what each layer costs, as text, the most expensive first."""
    each = sorted(rows[:-1], key=lambda row: row["cost"], reverse=True)
    has_gap = any("gap" in row for row in rows)
    heads = ["layer", "return", "costs", "actions differ by", *([_metric(rows), "worse by"] if has_gap else [])]
    cells = []
    for row in (*each, rows[-1]):
        line = [row["layer"], _pair(row["return"]), f"{row['cost']:+.3g}", f"{row['action']:.1e}"]
        cells.append(line + ([_pair(row.get("tracking")), _signed(row.get("gap"))] if has_gap else []))
    title = f"one layer in {rows[0]['mode']}, the others in fp32; precision.keep=[{each[0]['layer']}] keeps the first"
    return {"title": title, "head": heads, "rows": cells}


def _metric(rows: Sequence[Mapping[str, Any]]) -> str:
    return next(row["metric"] for row in rows if "metric" in row)


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _pair(value: Mapping[str, float] | None) -> str:
    return "-" if value is None else f"{value['mean']:.4g} ± {value['std']:.2g}"
