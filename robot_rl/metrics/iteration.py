"""What a row of metrics says about where an iteration's time went, and rows of several processes made one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

PARTS = ("simulate", "infer", "learn", "other")
"""Parts of an iteration: the environment's steps, the policy's, the update, and what is left."""
ADVICE = {
    "simulate": "more cores or a GPU (device=), or cheaper physics (sim.iterations, sim.decimation)",
    "infer": "more worlds a call (num_envs=) or a smaller policy (actor.hidden=)",
    "learn": "smaller networks (actor.hidden=, critic.hidden=) or fewer passes (ppo.epochs=)",
    "other": "fewer checkpoints (save_interval=), and a run directory on a fast disk (root=)",
}
"""What would make a training quicker that is limited by a part."""


def time_parts(row: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of an iteration by part, from its row of metrics; parts that it lacks took none."""
    return {part: max(0.0, float(row.get(f"perf/{part}_s") or 0.0)) for part in PARTS}


def overlap_share(parts: Mapping[str, float]) -> float:
    """Return what share of an iteration would be left if simulation and learning ran side by side all the time.

    max(simulate + infer, learn) / (simulate + infer + learn + other): collecting a rollout is one side, learning from
    the one before is the other, the shorter is hidden behind the longer, and so is the rest. 1: nothing to be gained;
    0.5: an iteration could take half of its time, no less. It is a bound, not a promise.

    Args:
        parts: seconds by part.
    """
    total = sum(parts.values())
    longer = max(parts["simulate"] + parts["infer"], parts["learn"])
    return longer / total if total > 0 else 1.0


def limit(parts: Mapping[str, float]) -> str:
    """Return the part that takes the most time: what limits the speed."""
    return max(PARTS, key=lambda part: parts[part])


def describe_time(parts: Mapping[str, float]) -> str:
    """Return a line about where the time goes, what limits, and what an overlap would leave; empty without times."""
    total = sum(parts.values())
    if not total > 0 or not math.isfinite(total):
        return ""
    shares = ", ".join(f"{part} {parts[part] / total:.0%}" for part in PARTS)
    left = f"a perfect overlap of simulation and learning would leave {overlap_share(parts):.0%}"
    return f"{shares}; limited by {limit(parts)}; {left}"


def merge_rows(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return one row for the rows of all processes that train together.

    Counts are added; means over episodes are weighed by the episodes behind them, and means over their time by it;
    everything else is the mean over the processes that have it.

    Args:
        rows: what each process measured in the same iteration.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _merge(name, rows) for name in names}


def _merge(name: str, rows: Sequence[Mapping[str, float]]) -> float:
    having = [row for row in rows if name in row]
    values = [row[name] for row in having]
    if name == "episodes" or name.partition("/")[0] == "quarantined":
        return sum(values)
    weights = [_weight(name, row) for row in having]
    if sum(weights) > 0:
        return sum(value * weight for value, weight in zip(values, weights, strict=True) if weight > 0) / sum(weights)
    return sum(values) / len(values)


def _weight(name: str, row: Mapping[str, float]) -> float:
    kind = name.partition("/")[0]
    if kind in ("episode", "termination"):
        return row.get("episodes", 1.0)
    return row.get("episodes", 1.0) * row.get("episode/length_s", 1.0) if kind == "reward" else 1.0
