"""The key figures at the top of the report, and the table of the evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from robot_rl.metrics.description import explain, judged, shown_unit
from robot_rl.view.report.data import RunData, last_mean, read_descriptions, trailing_mean

NO_EPISODE = "no episode has ended yet"


@dataclass(kw_only=True, slots=True)
class Figure:
    """One key figure: its label, the value as text, its unit and its source."""

    label: str
    value: str = "–"
    unit: str = ""
    source: str = ""


@dataclass(kw_only=True, slots=True)
class EvalRow:
    """One row of the evaluation table; `cells` contains (mean, std) or None for every policy, in the table's order."""

    label: str
    unit: str
    cells: list[tuple[float, float] | None]
    distance: float | None = None
    meaning: str = ""


def make_verdict(data: RunData) -> list[Figure]:
    """Return five key figures of a run; a missing one is a dash with the reason."""
    solved = data.solved
    name = solved[0] if solved else next(iter(judged(data.metrics)), "")
    is_known = f"tracking/{name}" in data.columns or _metric(data.evaluation, name) is not None
    return [
        _final_return(data),
        _own_metric(data, name) if is_known else _episode_length(data),
        _failures(data),
        _time_to_best(data) if solved is None else _time_to_bound(data, *solved),
        _speed(data),
    ]


def evaluation_table(evaluation: dict[str, Any]) -> tuple[list[str], list[EvalRow], dict[str, Any]]:
    """Return eval.json as a table.

    Args:
        evaluation: {"torch": {metric: {"mean", "std"}}, "onnx": {...}, "metrics": {metric: {"unit", "meaning", ...}},
            "episodes": n, ...}.

    Returns:
        The policies' names, one row per metric in the order of "metrics", and the remaining scalar entries.
        `EvalRow.distance` is |mean_0 - mean_1| in standard errors of the difference, for two policies.
    """
    policies = [name for name, block in evaluation.items() if _is_block(block)]
    policies.sort(key=lambda name: ("torch", "onnx").index(name) if name in ("torch", "onnx") else 9)
    episodes = (evaluation.get("team") or {}).get("worlds") or evaluation.get("episodes")
    metrics = list(dict.fromkeys(m for name in policies for m, v in evaluation[name].items() if _pair(v)))
    known = read_descriptions(evaluation.get("metrics"))
    metrics.sort(key=lambda m: list(known).index(m) if m in known else len(known))
    rows = []
    for metric in metrics:
        about = known.get(metric, {"unit": "", "meaning": ""})
        row = EvalRow(label=_label(metric), unit=shown_unit(about["unit"]), cells=[], meaning=explain(about))
        row.cells = [_pair(evaluation[name].get(metric)) for name in policies]
        row.distance = _distance(row.cells, episodes)
        rows.append(row)
    rest = {k: v for k, v in evaluation.items() if not isinstance(v, dict | list)}
    for name in policies:
        extra = {k: v for k, v in evaluation[name].items() if not isinstance(v, dict | list)}
        rest.update({f"{name} {k}": v for k, v in extra.items()})
    return policies, rows, rest


def number(value: float, decimals: int | None = None) -> str:
    """Return a number with three significant digits or some decimals, a thin space between thousands, a true minus.

    A value that is not finite becomes a dash.
    """
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1000:
        text = f"{value:,.0f}".replace(",", "\u202f")
    elif decimals is not None:
        text = f"{value:.{decimals}f}"
    elif size >= 1e-3 or size == 0:
        text = f"{value:.{min(3, max(0, 2 - math.floor(math.log10(size)))) if size else 0}f}"
    else:
        text = f"{value:.1e}"
    return text.replace("-", "−")


def mean_and_std(mean: float, std: float) -> tuple[str, str]:
    """Return mean and standard deviation as text, both with the decimals of two digits of the deviation."""
    if not math.isfinite(std) or std <= 0 or max(abs(mean), std) >= 1000:
        return number(mean), number(std)
    decimals = min(6, max(0, 1 - math.floor(math.log10(std))))
    return number(mean, decimals), number(std, decimals)


def duration(seconds: float) -> str:
    """Return a duration as text: 42 s, 3:05 min, 1:20:00 h."""
    if not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 10 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d} h"


def _final_return(data: RunData) -> Figure:
    figure = Figure(label="Return", source=NO_EPISODE)
    if (pair := _metric(data.evaluation, "return")) is not None:
        figure.value, std = mean_and_std(*pair)
        figure.source = f"evaluation, ± {std} over episodes"
    elif (values := data.columns.get("episode/return")) is not None:
        best = int(np.nanargmax(values))
        found = f"best {number(float(values[best]))} at iteration {data.columns['iteration'][best]:.0f}"
        figure.value, figure.source = number(last_mean(values)), f"training, mean of the last {_span(data)}; {found}"
    return figure


def _own_metric(data: RunData, name: str) -> Figure:
    pair = _metric(data.evaluation, name)
    figure = Figure(label=_label(name), unit=shown_unit(data.metrics[name]["unit"]))
    if pair is not None:
        figure.value, std = mean_and_std(*pair)
        figure.source = f"evaluation, ± {std} over episodes"
    else:
        figure.value = number(last_mean(data.columns[f"tracking/{name}"]))
        figure.source = f"training, last {_span(data)}"
    return figure


def _episode_length(data: RunData) -> Figure:
    values, label = data.columns.get("episode/length_s"), "Episode length"
    if values is None:
        return Figure(label=label, source=NO_EPISODE)
    return Figure(label=label, value=number(last_mean(values)), unit="s", source=f"mean of the last {_span(data)}")


def _failures(data: RunData) -> Figure:
    pair = _metric(data.evaluation, "failure_rate")
    if pair is not None:
        return Figure(label="Failures", value=number(100 * pair[0]), unit="%", source="of the evaluation's episodes")
    counts = data.endings()
    if not counts:
        return Figure(label="Early endings", source="no termination was logged")
    passed, unit = data.simulated()
    early = sum(list(counts.values())[1:], np.zeros(data.rows))
    rate, total = early[-10:].sum() / passed[-10:].sum(), number(float(early.sum()), 0)
    return Figure(label="Early endings", value=number(rate), unit=unit, source=f"last {_span(data)}; {total} in all")


def _time_to_bound(data: RunData, name: str, bound: float) -> Figure:
    about = data.metrics[name]
    label = f"Time to {bound:g} {shown_unit(about['unit'])}".rstrip()
    figure = Figure(label=label, source=f"no {_label(name).lower()} was logged")
    if (values := data.columns.get(f"tracking/{name}")) is not None:
        mean = trailing_mean(values)
        good = mean <= bound if about["better"] == "smaller" else mean >= bound
        what = f"{_label(name).lower()}, mean of 5 iterations"
        figure.value, figure.source = "not yet", f"{what}, while training"
        if good.any():
            figure.value, figure.unit, iteration = _time_at(data, good)
            figure.source = f"iteration {iteration}; {what}"
    return figure


def _time_to_best(data: RunData) -> Figure:
    figure = Figure(label="Time to 90 % of best", source=NO_EPISODE)
    if (values := data.columns.get("episode/return")) is not None:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        figure.value, figure.unit, iteration = _time_at(data, values >= low + 0.9 * (high - low))
        figure.source = f"of the return's rise; iteration {iteration}"
    return figure


def _time_at(data: RunData, reached: np.ndarray) -> tuple[str, str, str]:
    """Return the time, its unit and the iteration of the first row that is true."""
    row = int(reached.argmax())
    value, _, unit = duration(float(data.columns["time_s"][row])).partition(" ")
    return value, unit, f"{data.columns['iteration'][row]:.0f}"


def _speed(data: RunData) -> Figure:
    values = data.columns.get("perf/steps_per_s")
    if values is None:
        return Figure(label="Throughput", source="not logged")
    steps, seconds = data.columns["env_steps"], data.columns["time_s"]
    parts = ["median"]
    if np.isfinite(steps).any() and np.isfinite(seconds).any():
        total = float(np.nanmax(steps))
        short = f"{number(total / 1e6)} M" if total >= 1e6 else number(total)
        parts.append(f"{short} steps in {duration(float(np.nanmax(seconds)))}")
    return Figure(
        label="Throughput", value=number(float(np.nanmedian(values))), unit="steps/s", source="; ".join(parts)
    )


def _label(metric: str) -> str:
    return metric.replace("_", " ").replace("/", ": ").capitalize()


def _span(data: RunData) -> str:
    rows = min(10, data.rows)
    return "iteration" if rows == 1 else f"{rows} iterations"


def _metric(evaluation: dict[str, Any] | None, name: str) -> tuple[float, float] | None:
    for policy in ("torch", "onnx"):
        block = (evaluation or {}).get(policy)
        if isinstance(block, dict) and (pair := _pair(block.get(name))):
            return pair
    return None


def _pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, dict):
        return None
    mean, std = value.get("mean"), value.get("std", math.nan)
    if isinstance(mean, bool) or not isinstance(mean, int | float) or not isinstance(std, int | float):
        return None
    return float(mean), float(std)


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and any(_pair(v) for v in block.values())


def _distance(cells: list[tuple[float, float] | None], episodes: Any) -> float | None:
    if len(cells) != 2 or not isinstance(episodes, int) or episodes < 1:
        return None
    first, second = cells
    if first is None or second is None:
        return None
    gap, error = abs(first[0] - second[0]), math.sqrt((first[1] ** 2 + second[1] ** 2) / episodes)
    if error == 0:
        return 0.0 if gap == 0 else math.inf
    return gap / error
