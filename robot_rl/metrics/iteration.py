"""Evaluate how an iteration's time was spent, and merge the rows of several processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

PARTS = ("simulate", "infer", "learn", "other")
"""Parts of an iteration: the environment's steps, the policy's, the update, and the rest."""
ADVICE = {
    "simulate": "more cores or a GPU (device=), or cheaper physics (sim.iterations, sim.decimation)",
    "infer": "more worlds a call (num_envs=) or a smaller policy (actor.hidden=)",
    "learn": "smaller networks (actor.hidden=, critic.hidden=) or fewer passes (ppo.epochs=)",
    "other": "fewer checkpoints (save_interval=), and a run directory on a fast disk (root=)",
}
"""Ways to speed up a training that is limited by a part."""
COUNTS = ("episodes", "simulators", "simulators/lost")
"""Metrics that are added when rows are merged, next to those of quarantined worlds."""


def time_parts(row: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of an iteration by part, from its row of metrics; 0 for missing parts."""
    return {part: max(0.0, float(row.get(f"perf/{part}_s") or 0.0)) for part in PARTS}


def overlap_share(parts: Mapping[str, float]) -> float:
    """Return the share of an iteration that would remain if simulation and learning always ran in parallel.

    max(simulate + infer, learn) / (simulate + infer + learn + other): collecting a rollout is one side, learning from
    the one before is the other, and the shorter is hidden behind the longer, as is the rest. It is a bound: at 1 there
    is nothing to gain, at 0.5 an iteration could take half of its time.
    """
    total = sum(parts.values())
    longer = max(parts["simulate"] + parts["infer"], parts["learn"])
    return longer / total if total > 0 else 1.0


def limit(parts: Mapping[str, float]) -> str:
    """Return the part that takes the most time."""
    return max(PARTS, key=lambda part: parts[part])


def overlap_efficiency(simulate: float, learn: float, rest: float, elapsed: float) -> float:
    """Return (T_sync - T_async) / (T_sync - max(T_sim, T_learn)): 1 if only the longer of the two takes time.

    Args:
        simulate: T_sim, how long a rollout is simulated while nothing else runs [s].
        learn: T_learn, how long one is learned from while nothing else runs [s].
        rest: Time of neither, a part of T_sync [s].
        elapsed: T_async, time of an iteration in which both run at once [s].
    """
    together = simulate + learn + rest
    gain = together - max(simulate, learn)
    return (together - elapsed) / gain if gain > 0 else 0.0


def describe_time(parts: Mapping[str, float]) -> str:
    """Return a line: shares of time, the limiting part, the share that an overlap would leave; empty without times."""
    total = sum(parts.values())
    if not total > 0 or not math.isfinite(total):
        return ""
    shares = ", ".join(f"{part} {parts[part] / total:.0%}" for part in PARTS)
    left = f"a perfect overlap of simulation and learning would leave {overlap_share(parts):.0%}"
    return f"{shares}; limited by {limit(parts)}; {left}"


def describe_overlap(rows: Sequence[Mapping[str, float]]) -> str:
    """Return a line on how well the iterations of an overlapped training hid one side; empty without any.

    The efficiency is omitted if it is defined in less than half of the iterations.
    """
    if not rows:
        return ""
    simulate, learn = (statistics.median(row[f"perf/{name}_apart_s"] for row in rows) for name in ("simulate", "learn"))
    line = f"simulate {simulate:.2g} s and learn {learn:.2g} s apart"
    found = [row["perf/overlap_efficiency"] for row in rows if "perf/overlap_efficiency" in row]
    if 2 * len(found) < len(rows):
        return line
    return f"{line}; overlap efficiency {statistics.median(found):.2f} (1: one is free)"


def merge_rows(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return one row for the rows of the same iteration of all processes.

    Counts are added; means over episodes are weighted by the number of episodes, and means over their time by that
    time; everything else is the mean over the processes that have it.
    """
    if len(rows) == 1:  # A weighted mean of one value may differ from it in the last bit.
        return dict(rows[0])
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _merge(name, rows) for name in names}


def _merge(name: str, rows: Sequence[Mapping[str, float]]) -> float:
    having = [row for row in rows if name in row]
    values = [row[name] for row in having]
    if name in COUNTS or name.partition("/")[0] == "quarantined":
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
