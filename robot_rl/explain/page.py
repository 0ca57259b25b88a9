"""The page of an explanation: the named cause, scores, and the curves of log and simulation with their parting."""

from __future__ import annotations

import itertools
from html import escape
from pathlib import Path

import numpy as np

from robot_rl.explain.explain import Explanation
from robot_rl.explain.result import AS_IT_IS, NOTHING
from robot_rl.view.chart import Chart, Series, block, figure, numbers
from robot_rl.view.shell import facts, far, page, section, table

BEFORE_S, AFTER_S = 0.5, 1.5
"""Time before and after the parting that is drawn [s]."""


def render_page(found: Explanation) -> str:
    """Return the page."""
    time, charts = _charts(found)
    index = itertools.count()
    drawn = [figure(chart, next(index)) for chart in charts]
    curves = f'{drawn[0]}<div class="charts small">{"".join(drawn[1:])}</div>' if drawn else ""
    sections = [
        ("Cause", "The most important first, with advice.", _named(found)),
        ("Checks", "Without a simulation.", _checks(found)),
        ("Where they part", _parting_words(found), curves),
        ("Scores", "Of the log with each cause removed: the logarithm of the residuals' size.", _scores(found)),
        (
            "Motors, delay and mass",
            "Fitted together; differences in standard deviations of the priors.",
            _motors(found),
        ),
        ("Notes", "Of the log.", "".join(f"<p>{escape(note)}</p>" for note in found.notes)),
    ]
    about = [
        ("Log", Path(found.log.name).name),
        ("Robot", found.robot.name),
        ("Base", {"free": "on its feet", "fixed": "hangs or is bolted", "": "unknown"}[found.base]),
        ("Seconds", f"{found.log.seconds:.1f}"),
    ]
    title = escape(found.named[0].cause if found.named else NOTHING)
    body = f"<h1>{title}</h1>{facts(about)}" + "".join(section(*part) for part in sections)
    return page(f"{found.robot.name}: explained", body + block({"time": numbers(time)}, charts), draws=True)


def _parting_words(found: Explanation) -> str:
    at = None if found.parting is None else found.parting.first_s
    start = "They do not part." if at is None else f"At {at:.2f} s."
    return f"{start} Each stretch is predicted from its first measured state."


def _charts(found: Explanation) -> tuple[np.ndarray, list[Chart]]:
    """Return times [s] around the parting, and charts: the size of the residuals, and each joint's positions."""
    parting = found.parting
    if parting is None:
        return np.zeros(0), []
    middle = parting.first_s or 0.0
    rows = (parting.time >= middle - BEFORE_S) & (parting.time <= middle + AFTER_S)
    series = [
        Series(name=name, values=numbers(parting.distance[n, rows]), tone=n + 1)
        for n, name in enumerate(("log as it is", "without the cause"))
    ]
    words = "" if parting.first_s is None else f"they part at {parting.first_s:.2f} s"
    charts = [Chart(title="Distance of log and simulation", unit="sizes", series=series, log=True, note=words)]
    for n, joint in enumerate(found.robot.joint_names):
        pair = [
            Series(name="measured", values=numbers(parting.measured[rows, n])),
            Series(name="simulated", values=numbers(parting.simulated[rows, n]), tone=2),
        ]
        charts.append(Chart(title=joint, unit="rad", series=pair, small=True))
    return parting.time[rows], charts


def _named(found: Explanation) -> str:
    if not found.named:
        return f"<p>{escape(NOTHING)}</p>"
    rows = [[escape(text) for text in (row.cause, row.size, row.advice)] for row in found.named]
    more = f"<p>Not told apart: {escape('; '.join(found.alike))}</p>" if found.alike else ""
    return table(("cause", "size", "advice"), rows) + more


def _checks(found: Explanation) -> str:
    rows = [[escape(text) for text in (row.cause, row.size, row.advice)] for row in found.findings]
    return table(("found", "size", "advice"), rows)


def _scores(found: Explanation) -> str:
    rows = [[escape(row.cause.name if row.cause else AS_IT_IS), f"{row.score:.2f}"] for row in found.ranked]
    return table(("cause", "score"), rows)


def _motors(found: Explanation) -> str:
    if found.motors is None:
        return ""
    rows = []
    for part in found.motors.parts:
        joints = ", ".join(f"{joint} {value:.3g}" for joint, value in part.joints.items())
        size = far(f"{part.size:+.2f}", part.unusual)
        cells = [f"{part.nominal:.4g}", f"{part.value:.4g}", part.unit, size, f"{part.explains:.2f}", escape(joints)]
        rows.append([part.name, *cells])
    return table(("parameter", "model", "log", "unit", "difference", "explains", "joints that differ"), rows)
