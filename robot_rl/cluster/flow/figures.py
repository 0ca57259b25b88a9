"""The result of a flow: the table of its steps, flow.json with every figure, and a summary as Markdown and HTML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from robot_rl.cluster.flow.dag import Flow, Step, gate_owner
from robot_rl.cluster.flow.gates import Verdict, judge_file
from robot_rl.cluster.flow.state import DONE, FAILED, FlowState
from robot_rl.errors import UserError
from robot_rl.files import write_atomic, write_json
from robot_rl.view.shell import page, table

NOT_REACHED = "not reached"
HEAD = ("step", "computer", "state", "seconds", "figure")
GATE_HEAD = ("gate", "what", "figure", "bound", "")
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The head and the rows of a table."""


def verdicts(flow: Flow, state: FlowState) -> dict[str, list[Verdict]]:
    """Return step of gates -> the verdicts on its figures, for the steps that were reached."""
    by_step = {}
    for step in flow.steps:
        if step.gates and _word(step, state) in (DONE, FAILED):
            try:
                by_step[step.name] = judge_file(Path(flow.words(step)[3]), step.gates)
            except (UserError, FileNotFoundError):
                continue
    return by_step


def table_rows(flow: Flow, state: FlowState) -> list[tuple[str, ...]]:
    """Return a row for each step, in `HEAD`'s columns; the figures of a step of gates against their bounds."""
    figures = verdicts(flow, state)
    rows = []
    for step in flow.order():
        row = state.steps[step.name]
        cell = "\n".join(_figure(one) for one in figures.get(step.name, ()))
        rows.append((step.name, step.resources.computer.value, _word(step, state), _seconds(row.seconds), cell))
    return rows


def _word(step: Step, state: FlowState) -> str:
    """Return a step's state; a step done by an earlier process that this one has not reached is NOT_REACHED."""
    word = state.steps[step.name].state
    return NOT_REACHED if word == DONE and step.name not in state.reached else word


def _seconds(value: float) -> str:
    return f"{value:.1f}" if value else "-"


def _figure(one: Verdict) -> str:
    value = one.why if one.value is None else f"{one.value:.4g}"
    return f"{one.gate.name} {value} {one.gate.op} {one.gate.bound:.6g}{'' if one.holds else '  FAILED'}"


def to_json(flow: Flow, state: FlowState) -> dict[str, Any]:
    """Return the content of flow.json."""
    from robot_rl.machine import machine_facts, package_versions

    figures = verdicts(flow, state)
    return {
        "flow": flow.name,
        "id": flow.id,
        "state": state.state,
        "created": state.created,
        "requested": state.about,
        "notes": list(flow.notes),
        "steps": [_step_json(flow, step, state) for step in flow.order()],
        "gates": [
            {
                "name": f"{gate_owner(flow[name])}.{one.gate.name}",
                "text": one.gate.text,
                "file": flow.words(flow[name])[3],
                "path": one.gate.path,
                "value": one.value,
                "op": one.gate.op,
                "bound": one.gate.bound,
                "holds": one.holds,
            }
            for name, judged in figures.items()
            for one in judged
        ],
        "files": {name: path for name, path in flow.links.items() if os.path.exists(path)},
        "machine": machine_facts(),
        "versions": package_versions(),
    }


def _step_json(flow: Flow, step: Step, state: FlowState) -> dict[str, Any]:
    row = state.steps[step.name]
    about = {"name": step.name, "computer": step.resources.computer.value, "command": flow.words(step)}
    about |= {"after": list(step.needs()), "outputs": {name: each.path for name, each in step.outputs.items()}}
    return about | {"state": _word(step, state), "seconds": round(row.seconds, 3), "runs": row.runs, "code": row.code}


def write_results(flow: Flow, state: FlowState) -> list[Path]:
    """Write flow.json, summary.md and summary.html to the flow's folder; return their paths."""
    content = to_json(flow, state)
    title = f"{flow.name} {flow.id}: {state.state}"
    tables = [(HEAD[:4], [row[:4] for row in table_rows(flow, state)]), (GATE_HEAD, _gate_rows(content))]
    links = {name: os.path.relpath(path, state.folder) for name, path in content["files"].items()}
    paths = [state.folder / name for name in ("flow.json", "summary.md", "summary.html")]
    write_json(paths[0], content)
    write_atomic(paths[1], _markdown(title, flow.notes, tables, links))
    write_atomic(paths[2], _html(title, flow.notes, tables, links))
    return paths


def _gate_rows(content: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            row["name"],
            row["text"],
            "-" if row["value"] is None else f"{row['value']:.4g}",
            f"{row['op']} {row['bound']:.6g}",
            "passed" if row["holds"] else "FAILED",
        )
        for row in content["gates"]
    ]


def _markdown(title: str, notes: Sequence[str], tables: Sequence[Table], links: Mapping[str, str]) -> str:
    lines = [f"# {title}", "", *(f"- {note}" for note in notes), *([""] if notes else [])]
    for head, rows in tables:
        for row in (head, ["---"] * len(head), *rows):
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
        lines.append("")
    lines += [f"- [{name}]({path})" for name, path in links.items()]
    return "\n".join(lines) + "\n"


def _html(title: str, notes: Sequence[str], tables: Sequence[Table], links: Mapping[str, str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    items += "".join(f'<li><a href="{escape(path)}">{escape(name)}</a></li>' for name, path in links.items())
    body = "".join(table(list(map(escape, head)), [list(map(escape, row)) for row in rows]) for head, rows in tables)
    return page(title, f"<h1>{escape(title)}</h1>\n<ul>{items}</ul>\n{body}")
