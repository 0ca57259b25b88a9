"""The page of a quarantined world: one self-contained HTML file without a script."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from robot_rl.view.chart import short
from robot_rl.view.inspect.chart import Chart, draw, milliseconds
from robot_rl.view.inspect.record import Record
from robot_rl.view.inspect.replay import Growth, Replay
from robot_rl.view.shell import facts, far, image, page, section, table

DASHED = "Dashed: the target. Highlighted: mentioned by the reasons."
OWN_STYLE = """
.why { padding: 0.9rem 1.1rem; list-style: none; border-left: 3px solid var(--t2); background: var(--panel); }
.why li { font-size: 1.05rem; overflow-wrap: anywhere; }
.strip { display: grid; grid-template-columns: repeat(4, 1fr); gap: 0.6rem; }
@media (max-width: 44rem) { .strip { grid-template-columns: repeat(2, 1fr); } }
.strip figcaption { font-size: 0.8rem; color: var(--soft); }
.strip img { display: block; width: 100%; border-radius: 6px; }
.strip .last img { outline: 2px solid var(--t2); outline-offset: 1px; }
.chart.suspect { border-color: var(--t2); }
.chart .far { font-size: 0.8rem; margin-left: auto; }
.plot .lost { fill: none; stroke: var(--t2); stroke-width: 2; }
.charts + .charts { margin-top: 0.75rem; }
td, th { white-space: nowrap; }
"""


def render_page(record: Record, result: Replay, growths: list[Growth], frames: list[tuple[int, np.ndarray]]) -> str:
    """Return the page."""
    title = f"{record.about['task']}: world {record.about['world']}"
    why = "".join(f"<li>{escape(line[0].upper() + line[1:])}</li>" for line in record.about["why"])
    strip, positions, velocities = _strip(record, frames), _joints(record, result, "position"), _joints(record, result)
    sections = (
        ("The last moments", "As recorded; a state that is not finite is drawn as the last finite one.", strip),
        ("Replay", "The recorded controls, stepped again by plain MuJoCo.", _replay(record, result)),
        ("What grew", "The last control steps of the quantities that grew the fastest.", _growth(growths)),
        ("Base", "Position and speed of the base.", _charts(_base_charts(record))),
        ("Joint positions", DASHED, _charts(positions)),
        ("Joint velocities", "One point per control step, at its end.", _charts(velocities)),
        ("Actions", "Output of the policy; each holds for one control step.", _charts(_actions(record))),
    )
    body = (
        f'<header><h1>{escape(title)}</h1><p class="run mono">{escape(record.path.name)}</p>{_facts(record)}</header>\n'
        f'<ul class="why">{why}</ul>\n'
        + "".join(section(name, text, body and f"<div>{body}</div>") for name, text, body in sections)
        + f"<footer><p>Made from <code>{escape(str(record.path))}</code>.</p></footer>\n"
    )
    return page(title, body, style=OWN_STYLE)


def _facts(record: Record) -> str:
    about: dict[str, Any] = record.about
    rows = {
        "Robot": about["robot"],
        "Engine": about["engine"],
        "World": about["world"],
        "Seed": about["seed"],
        "Into the episode": f"{about['time_s']:.2f} s",
        "Control step": f"{about['counter']} of the run",
        "Physics step": f"{1000 * about['timestep']:.3g} ms × {about['decimation']}",
        "Actuator": about["actuator"],
        "MuJoCo": about["mujoco"],
        "Written": about["created"],
    }
    return facts((name, str(value)) for name, value in rows.items())


def _strip(record: Record, frames: list[tuple[int, np.ndarray]]) -> str:
    from PIL import Image

    cells = ""
    for k, frame in frames:
        last = k == len(record.step) - 1
        text, name = ("the end", ' class="last"') if last else (milliseconds(record.times[k]), "")
        cells += f"<figure{name}>{image(Image.fromarray(frame), text)}<figcaption>{text}</figcaption></figure>"
    return f'<div class="strip">{cells}</div>' if cells else ""


def _replay(record: Record, result: Replay) -> str:
    notes = "".join(f'<p class="under">{escape(note)}</p>' for note in result.notes)
    broken = far(f"broken from substep {result.bad_substep} on", True)
    rows = [
        (milliseconds(record.times[t + 1]), short(dq), short(dv), broken if t == result.bad_step else "")
        for t, (dq, dv) in enumerate(result.differences)
    ]
    head = ("State at", "Largest difference in position", "in velocity", "")
    return f"<p>{escape(result.verdict)}</p>{notes}{table(head, rows)}"


def _growth(growths: list[Growth]) -> str:
    cells = ((escape(g.name), *(far(short(value), not np.isfinite(value)) for value in g.values)) for g in growths)
    return table((), cells)


def _charts(charts: list[Chart]) -> str:
    return f'<div class="charts small">{"".join(draw(chart) for chart in charts)}</div>' if charts else ""


def _base_charts(record: Record) -> list[Chart]:
    charts = []
    if record.about.get("floating"):
        speed = np.linalg.norm(record.qvel[:, :3].astype(np.float64), axis=1)
        turn = np.linalg.norm(record.qvel[:, 3:6].astype(np.float64), axis=1)
        charts = [
            Chart(title="Base height", unit="m", times=record.times, values=record.qpos[:, 2]),
            Chart(title="Base speed", unit="m/s", times=record.times, values=speed, bounds=(0.0, 0.0)),
            Chart(title="Base turn rate", unit="rad/s", times=record.times, values=turn, bounds=(0.0, 0.0)),
        ]
    reward = Chart(title="Reward", unit="per step", times=record.times[1:], values=record.reward)
    return [*charts, reward] if len(record.reward) > 1 else charts


def _joints(record: Record, result: Replay, what: str = "velocity") -> list[Chart]:
    about, charts = record.about, []
    targets = dict(zip(about["action_names"], range(record.ctrl.shape[2]), strict=False))
    names, values, unit = (
        (about["qpos_names"], record.qpos, "rad, m")
        if what == "position"
        else (about["dof_names"], record.qvel, "rad/s, m/s")
    )
    for name in about["joint_names"]:
        if name not in names:
            continue
        chart = Chart(title=name, unit=unit, times=record.times, values=values[:, names.index(name)])
        chart.suspect = name in record.suspects(result.bad_name)
        asked = "velocity" if name in about.get("speed_targets", ()) else "position"
        if what == asked and name in targets and about["actuator"] in ("PositionPd", "DcMotor"):
            chart.target = record.ctrl[:, 0, targets[name]]
        charts.append(chart)
    return charts


def _actions(record: Record) -> list[Chart]:
    charts = []
    for k, name in enumerate(record.about["action_names"]):
        chart = Chart(title=name, unit="", times=record.times[:-1], values=record.action[:, k])
        chart.suspect = any(f"action of {name} " in line for line in record.about["why"])
        charts.append(chart)
    return charts if len(record.action) > 1 else []
