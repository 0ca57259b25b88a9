"""The page of an identification: parameters with intervals, and held-out curves, measured, nominal and fitted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.identify.identify import Identification
from robot_rl.identify.result import Estimate, Identified, error_lines
from robot_rl.view.chart import Chart, Series, block, figure, numbers
from robot_rl.view.shell import facts, far, page, section, table

MOST_ROWS = 1500
"""Rows of the held-out log that are drawn."""


def render_page(found: Identification) -> str:
    """Return the page."""
    result = found.result
    time, charts = _charts(found)
    index = itertools.count()
    drawn = "".join(figure(chart, next(index)) for chart in charts)
    held = next(log for log in result.logs if log["part"] == "held")
    window = f"Each stretch of {result.window_s:g} s is predicted from its first measured state."
    sections = [
        (
            "Errors",
            "Median over stretches of the RMS error, before and after the fit.",
            _lines([*error_lines(result.errors), *([result.net.line()] if result.net else [])]),
        ),
        ("Held-out log", f"{Path(held['name']).name}. {window}", f'<div class="charts small">{drawn}</div>'),
        (
            "Parameters",
            "Values with 95 % intervals; one that the logs do not show keeps its prior.",
            _parameters(result),
        ),
        ("Ranges", "Factors on the model's values for a task's events; the delay in seconds.", _ranges(result)),
        ("Notes", "Of the logs and the fit.", _lines(_notes(result))),
    ]
    body = f"<h1>{escape(result.robot)} by its logs</h1>{facts(_facts(result))}"
    body += "".join(section(name, text, content) for name, text, content in sections)
    return page(f"{result.robot}: identified", body + block({"time_ms": numbers(1000.0 * time)}, charts), draws=True)


def _facts(result: Identified) -> list[tuple[str, str]]:
    fitted = [log for log in result.logs if log["part"] == "fit"]
    return [
        ("Robot", result.robot),
        ("Fitted", f"{sum(log['seconds'] for log in fitted):.1f} s of {len(fitted)} logs"),
        ("Timestep", f"{1e3 * result.timestep:.3g} ms"),
        ("Delay", "not fitted" if result.delay is None else f"{1e3 * result.delay.value:.2f} ms"),
        ("Iterations", str(result.figures["iterations"])),
    ]


def _charts(found: Identification) -> tuple[NDArray[np.float64], list[Chart]]:
    """Return the rows' times [s], and two charts of each fitted joint; an empty row parts two stretches."""
    problem, joints = found.held, found.model.robot.joint_names
    predicted = {"fitted": found.fit.theta, "nominal": found.model.parameters.nominal}
    drawn = dict(zip(predicted, problem.predict([*predicted.values()]), strict=True))
    if found.network is not None:
        drawn["network"] = found.network.held.predict([found.network.theta])[0]
    times, curves = [], []
    ends = [*problem.first[1:], len(problem.measured)]
    for window, first, end in zip(problem.windows, problem.first, ends, strict=True):
        if sum(map(len, times)) > MOST_ROWS:
            break
        rows = slice(int(first), int(end))
        at = window.log.time[window.rows]
        times.append(np.append(at, at[-1]) - problem.windows[0].log.time[0])
        stacked = np.stack([values[rows] for values in (problem.measured, *drawn.values())])
        curves.append(np.concatenate([stacked, np.full((len(stacked), 1, stacked.shape[2]), np.nan)], 1))
    values = np.concatenate(curves, 1)
    charts = []
    for n, joint in enumerate(joints):
        if joint not in found.result.joints:
            continue
        names = ("measured", *drawn)
        series = [Series(name=name, values=numbers(values[k, :, n]), tone=k) for k, name in enumerate(names)]
        charts.append(Chart(title=joint, unit="rad", series=series, small=True))
        off = [numbers(1e3 * (curve - values[0, :, n])) for curve in values[1:, :, n]]
        errors = [Series(name=name, values=off[k], tone=k + 1) for k, name in enumerate(drawn)]
        charts.append(Chart(title=f"{joint}: predicted - measured", unit="mrad", series=errors, zero=True, small=True))
    return np.concatenate(times), charts


def _parameters(result: Identified) -> str:
    rows = [(joint, name, row) for joint, names in result.joints.items() for name, row in names.items()]
    if result.delay is not None:
        rows.append(("", "delay", result.delay))
    rows += [("", name, row) for name, row in result.body.items()]
    cells = [[escape(joint), name.replace("_", " "), *_cells(row)] for joint, name, row in rows]
    return table(("joint", "parameter", "nominal", "value", "95 % interval", "unit", ""), cells)


def _cells(row: Estimate) -> list[str]:
    outside = row.seen and not row.lo <= row.nominal <= row.hi
    interval = f"{row.lo:.4g} to {row.hi:.4g}"
    return [f"{row.nominal:.4g}", far(f"{row.value:.4g}", outside), interval, row.unit, "" if row.seen else "not seen"]


def _ranges(result: Identified) -> str:
    rows = [(name, f"{ends['lo']:.3g}", f"{ends['hi']:.3g}") for name, ends in result.ranges().items()]
    return table(("event", "from", "to"), rows)


def _notes(result: Identified) -> list[str]:
    return [f"{log['name']}: {note}" for log in result.logs for note in log["notes"]] + result.notes


def _lines(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""
