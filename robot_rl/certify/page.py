"""The page of a certificate: success over each property, pairs as maps, the worst corner, peaks, other simulators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from robot_rl.certify.certificate import end
from robot_rl.metrics.description import shown_unit
from robot_rl.view.chart import Chart, Series, block, figure, short
from robot_rl.view.shell import facts, far, page, section, table

STYLE = (
    ".map { margin-bottom: 1.5rem; } .map th { text-align: right; } "
    ".map td { text-align: center; padding: 0.35rem 0.6rem; }"
)


def render_page(content: Mapping[str, Any]) -> str:
    """Return the page of the content of certificate.json."""
    kinds = (False, True) if content["goal"] is not None else (False,)
    rows = content["parameters"].items()
    groups = [[_chart(name, row, content, of_metric=kind) for name, row in rows] for kind in kinds]
    charts = [chart for group in groups for chart in group]
    drawn = [_drawn(group, n * len(rows)) for n, group in enumerate(groups)]
    bound = f"Success is the share of episodes that do not fail; {content['success']:.0%} are required."
    sections = [
        ("What it bears", "Each property by itself, from the model's value outwards.", _margins(content)),
        ("Success", bound, drawn[0]),
        ("Metric", "The metric by which the task is solved, its mean over episodes.", "".join(drawn[1:])),
        ("Pairs", "Success with two properties at shares of their margins.", _pairs(content)),
        ("Worst corner", "The worst values in the task's own ranges that a search found.", _corner(content)),
        ("Peaks", "In the nominal worlds and in the worst corner.", _peaks(content["peaks"])),
        ("Other simulators", "The same policy, with the task's randomization.", _suite(content)),
        ("Identified robot", "Its properties by its logs.", _identified(content)),
    ]
    title = f"{content['task']}: certificate"
    body = f"<h1>{escape(title)}</h1>{facts(_facts(content))}"
    body += "".join(section(name, text, part) for name, text, part in sections)
    return page(title, body + block({}, charts), style=STYLE, draws=True)


def _drawn(charts: Sequence[Chart], first: int) -> str:
    """Return the figures of some charts, which have the places from `first` on in the page's block."""
    figures = "".join(figure(chart, n) for n, chart in enumerate(charts, first))
    return f'<div class="charts small">{figures}</div>' if figures else ""


def _facts(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    failed = sum(line.startswith("FAILED") for line in content["lines"])
    return [
        ("Run", f"{content['run']}, iteration {content['iteration']}"),
        ("Robot", str(content["robot"])),
        ("Episodes", f"{content['episodes']} of {content['seconds']:g} s in {content['engine']}"),
        ("Failed lines", str(failed)),
        ("Network", str(content["model"])[:16]),
    ]


def _chart(name: str, row: Mapping[str, Any], content: Mapping[str, Any], *, of_metric: bool = False) -> Chart:
    """Return the chart of success over a property, or that of the task's metric."""
    nominal, goal = content["nominal"], content["goal"]
    points = sorted(
        [(row["nominal"], nominal["metric" if of_metric else "success"])]
        + [(point[0], point[3 if of_metric else 2]) for point in row["points"]],
        key=lambda point: point[0],
    )
    kind = f"{goal['name']} [{shown_unit(goal['unit']) or '1'}]" if of_metric else "success"
    bound = goal["bound"] if of_metric else content["success"]
    return Chart(
        title=name.replace("_", " "),
        unit=kind,
        series=[Series(name=kind, values=[point[1] for point in points])],
        x=[point[0] for point in points],
        x_unit=shown_unit(row["unit"]),
        zero=True,
        top=None if of_metric else 1.0,
        dots=True,
        small=True,
        target=None if bound is None else (bound, "required"),
        suspect=row["holds"] is False,
        note=row["meaning"],
    )


def _margins(content: Mapping[str, Any]) -> str:
    rows = []
    for name, row in content["parameters"].items():
        trained = "" if row["trained"] is None else f"{short(row['trained'][0])} to {short(row['trained'][1])}"
        ends = [escape(end(row, side)) if side in row else "" for side in ("low", "high")]
        cells = [short(row["nominal"]), far(trained, row["holds"] is False), *ends]
        rows.append([escape(name.replace("_", " ")), *cells])
    return table(("property", "model", "trained", "bears (95 % interval; then fails)", ""), rows)


def _pairs(content: Mapping[str, Any]) -> str:
    maps = "".join(_map(pair) for pair in content["pairs"])
    return f"<div>{maps}</div>" if maps else ""


def _map(pair: Mapping[str, Any]) -> str:
    """Return a table of success over two properties, its cells colored by it."""
    (down, across), (rows, columns) = pair["names"], pair["values"]
    head = [f"{escape(down)} \\ {escape(across)}", *map(short, columns)]
    lines = [
        f'<tr><th scope="row">{short(value)}</th>{"".join(map(_cell, shares))}</tr>'
        for value, shares in zip(rows, pair["success"], strict=True)
    ]
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return f'<div class="scroll map"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(share: float) -> str:
    strength = round(100 * (1.0 - share))
    color = f"color-mix(in srgb, var(--t2) {strength}%, transparent)"
    return f'<td style="background:{color}">{share:.2f}</td>'


def _corner(content: Mapping[str, Any]) -> str:
    corner = content["corner"]
    if corner is None:
        return ""
    rows = [[escape(name.replace("_", " ")), short(value)] for name, value in corner["values"].items()]
    return table(("property", "value"), [*rows, ["success", far(f"{corner['success']:.3f}", not corner["holds"])]])


def _peaks(peaks: Mapping[str, Any]) -> str:
    rows = []
    for name, row in peaks.items():
        limit = "" if row["limit"] is None else short(row["limit"])
        value = far(short(row["value"]), row["holds"] is False)
        rows.append([escape(name.replace("_", " ")), value, limit, escape(row["unit"]), escape(row.get("joint", ""))])
    return table(("quantity", "largest", "limit", "unit", "joint"), rows)


def _suite(content: Mapping[str, Any]) -> str:
    rows: list[Sequence[str]] = []
    for kind in ("engines", "models"):
        for name, row in (content.get(kind) or {}).items():
            metric = math.nan if row["metric"] is None else row["metric"]
            speed = row["peaks"]["joint_speed"]
            fastest = far(f"{short(speed['value'])} {escape(speed['unit'])}", not speed["holds"])
            success = far(f"{row['success']:.3f}", not row["holds"])
            rows.append([escape(f"{kind[:-1]} {name}"), success, short(metric), fastest, escape(speed["joint"])])
    goal = content["goal"]
    return table(("simulator", "success", goal["name"] if goal else "metric", "joint speed", "joint"), rows)


def _identified(content: Mapping[str, Any]) -> str:
    found = content.get("identified")
    return "" if not found else "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in found["lines"]) + "</ul>"
