"""The charts of the report, with titles, units and order; static/page.js draws them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot_rl.metrics.description import shown_unit
from robot_rl.metrics.iteration import PARTS, describe_time
from robot_rl.view.chart import Chart, Series, numbers
from robot_rl.view.report.data import X_KEYS, RunData, find_value, last_mean, mappings, thin
from robot_rl.view.report.verdict import number

OVERLAP_TITLE = "Left by a perfect overlap of simulation and learning"


@dataclass(kw_only=True, slots=True)
class Section:
    """A group of charts under one heading, with an explanation."""

    key: str
    title: str
    text: str
    charts: list[Chart] = field(default_factory=list)


def make_sections(data: RunData) -> tuple[dict[str, Any], list[Section], int]:
    """Return the charts of all columns that a run has.

    Returns:
        The horizontal axes {key: values}, the sections, and the number of iterations per point.
    """
    if data.rows == 0:
        return {}, [], 1
    columns, k = thin(data.columns)
    axes = {key: numbers(columns[key]) for key in X_KEYS if key in columns and np.isfinite(columns[key]).any()}
    sections = [
        _learning(columns, data),
        _rewards(columns, data.config),
        _terminations(data),
        _model(columns, data.config),
        _learner(columns, data.config),
        _throughput(columns),
    ]
    sections.append(_rest(columns, sections))
    return axes, [s for s in sections if s.charts], k


def _line(columns: dict[str, np.ndarray], key: str, title: str, unit: str, **kwargs: Any) -> Chart | None:
    if key not in columns:
        return None
    return Chart(title=title, unit=unit, series=[Series(name=key, values=numbers(columns[key]))], **kwargs)


def _learning(columns: dict[str, np.ndarray], data: RunData) -> Section:
    known, solved = data.metrics, data.solved
    charts = [
        _line(columns, "episode/return", "Return", "per episode"),
        _line(columns, "episode/length_s", "Episode length", "s", zero=True),
    ]
    for key in columns:
        if key.startswith("tracking/"):
            name = key.removeprefix("tracking/")
            about = known.get(name, {"unit": "", "meaning": ""})
            target = (solved[1], "solved") if solved and solved[0] == name else None
            options: dict[str, Any] = {"zero": True, "target": target, "note": about["meaning"]}
            charts.append(_line(columns, key, _words(key).capitalize(), shown_unit(about["unit"]), **options))
    text = "Of the training worlds, with exploration noise. The evaluation above is without it."
    return Section(key="learning", title="Learning", text=text, charts=[c for c in charts if c])


def _rewards(columns: dict[str, np.ndarray], config: dict[str, Any]) -> Section:
    names = [key for key in columns if key.startswith("reward/")]
    names.sort(key=lambda key: -abs(_last(columns[key])))
    charts = []
    for key in names:
        term = key.removeprefix("reward/")
        weight = _weight(config, term)
        note = f"weight {weight:g}".replace("-", "−") if weight else ""
        chart = _line(columns, key, term, "1/s", zero=True, small=True, note=note)
        if chart:
            chart.series[0].tone = 2 if _last(columns[key]) < 0 else 1
            charts.append(chart)
    text = "Reward of each term per second of episode, with its weight, in the order of size. Each has its own scale."
    return Section(key="rewards", title="Reward terms", text=text, charts=charts)


def _terminations(data: RunData) -> Section:
    text = "How often episodes ended, by cause. Fewer that end early are better; the time limit is not a failure."
    section, counts = Section(key="terminations", title="Terminations", text=text), data.endings()
    if counts:
        passed, unit = data.simulated()
        short, _ = thin({key: data.columns[key] for key in X_KEYS} | counts | {"passed": passed})
        total = sum(counts.values()) > 1.001 * data.columns["episodes"]
        # With two causes in the same step the counts add up to more than the episodes, and are not stacked.
        kind = "line" if np.any(total) else "stack"
        series = [
            Series(name=_words(key), values=numbers(short[key] / short["passed"]), tone=2 + (k - 1) % 4 if k else 6)
            for k, key in enumerate(counts)
        ]
        note = "in all " + ", ".join(
            f"{number(float(column.sum()), 0)} {_words(key)}" for key, column in counts.items()
        )
        chart = Chart(title="Endings", unit=unit, series=series, kind=kind, zero=True, note=note)
        section.charts = [chart]
    return section


def _model(columns: dict[str, np.ndarray], config: dict[str, Any]) -> Section:
    bound = find_value(config, "max_gap")
    target = (float(bound), "shortens the horizon") if isinstance(bound, int | float) else None
    known: dict[str, dict[str, Any]] = {
        "model/gap": {"title": "Model gap", "unit": "of the real reward", "zero": True, "target": target},
        "model/bias": {"title": "Model bias", "unit": "of the real reward", "note": "above 0 it promises too much"},
        "model/horizon": {"title": "Horizon", "unit": "steps", "zero": True},
        "model/left": {"title": "Imagined rows outside the known range", "unit": "share", "zero": True},
        "model/loss": {"title": "Model loss", "unit": "deviations of the changes", "zero": True},
    }
    text = "Imagined steps against real ones with the same actions: their sums of rewards over the horizon."
    section = Section(key="model", title="World model", text=text)
    if "model/gap" in columns:
        charts = [_line(columns, key, **about, small=True) for key, about in known.items()]
        section.charts = [chart for chart in charts if chart]
    return section


def _learner(columns: dict[str, np.ndarray], config: dict[str, Any]) -> Section:
    desired_kl = find_value(config, "desired_kl")
    target = (float(desired_kl), "target") if isinstance(desired_kl, int | float) and desired_kl > 0 else None
    known: dict[str, dict[str, Any]] = {
        "loss/value": {"title": "Value loss", "unit": "", "zero": True},
        "loss/surrogate": {"title": "Surrogate loss", "unit": ""},
        "loss/entropy": {"title": "Entropy", "unit": "nat"},
        "loss/kl": {"title": "KL divergence", "unit": "nat", "zero": True, "target": target},
        "loss/clip_share": {"title": "Clipped share", "unit": "of samples", "zero": True},
        "loss/imitation": {"title": "Imitation loss", "unit": "nat", "zero": True},
        "teacher/error": {"title": "Error to the teacher", "unit": "action", "zero": True},
        "reference/kl": {"title": "Divergence from the reference", "unit": "nat", "zero": True},
        "policy/learning_rate": {"title": "Learning rate", "unit": "", "log": True},
        "policy/std": {"title": "Action std", "unit": "raw action", "zero": True},
    }
    keys = [k for k in known if k in columns]
    keys += [k for k in columns if k.startswith(("loss/", "policy/")) and k not in known]
    charts = [_line(columns, k, **(known.get(k) or {"title": _words(k), "unit": ""}), small=True) for k in keys]
    text = "The optimizer's metrics. If the KL is far above its target or the std grows, the steps are too large."
    return Section(key="learner", title="Learner", text=text, charts=[c for c in charts if c])


def _throughput(columns: dict[str, np.ndarray]) -> Section:
    charts = [_line(columns, "perf/steps_per_s", "Throughput", "control steps/s", zero=True)]
    parts = [part for part in PARTS if f"perf/{part}_s" in columns]
    parts += [
        key[5:-2]
        for key in columns
        if key.startswith("perf/") and key.endswith("_s") and key[5:-2] not in (*PARTS, "steps_per")
    ]
    if parts:
        series = [
            Series(name=part, values=numbers(columns[f"perf/{part}_s"]), tone=6 if part == "other" else 1 + i % 5)
            for i, part in enumerate(parts)
        ]
        charts.append(Chart(title="Where the time goes", unit="s per iteration", series=series, kind="stack"))
    charts.append(_line(columns, "perf/overlap_share", OVERLAP_TITLE, "share of the iteration", zero=True, top=1.0))
    text = "Control steps of all worlds, and the parts of the wall time of one iteration."
    if line := describe_time(mean_parts(columns)):
        text += f" On average: {line}."
    return Section(key="throughput", title="Throughput", text=text, charts=[c for c in charts if c])


def mean_parts(columns: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the mean seconds of an iteration by part; a part that was never logged took none."""
    finite = {part: columns.get(f"perf/{part}_s", np.zeros(1)) for part in PARTS}
    return {
        part: last_mean(values, len(values)) if np.isfinite(values).any() else 0.0 for part, values in finite.items()
    }


def _rest(columns: dict[str, np.ndarray], sections: list[Section]) -> Section:
    drawn = {series.name for section in sections for chart in section.charts for series in chart.series}
    prefixes = ("reward/", "termination/", "loss/", "policy/", "tracking/")
    keys = [
        key
        for key in columns
        if key not in X_KEYS
        and key not in drawn
        and not key.startswith(prefixes)
        and not (key.startswith("perf/") and key.endswith("_s"))
    ]
    charts = [_line(columns, key, key, "", small=True) for key in keys]
    return Section(key="rest", title="Other", text="All other metrics of the run.", charts=[c for c in charts if c])


def _weight(config: dict[str, Any], term: str) -> float | None:
    groups = (mapping.get("rewards") for mapping in mappings(config))
    found = next((g[term] for g in groups if isinstance(g, dict) and isinstance(g.get(term), dict)), {})
    weight = found.get("weight")
    return float(weight) if isinstance(weight, int | float) else None


def _last(column: np.ndarray) -> float:
    finite = column[np.isfinite(column)]
    return float(finite[-10:].mean()) if finite.size else 0.0


def _words(key: str) -> str:
    return key.split("/", 1)[-1].replace("_", " ")
