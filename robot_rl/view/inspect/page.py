"""The page of a quarantined world: one self-contained HTML file."""

from __future__ import annotations

import itertools
import math
from html import escape
from typing import Any

import numpy as np

from robot_rl.view.chart import Chart, Series, block, figure, numbers, short
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
.charts + .charts { margin-top: 0.75rem; }
td, th { white-space: nowrap; }
"""


def render_page(record: Record, result: Replay, growths: list[Growth], frames: list[tuple[int, np.ndarray]]) -> str:
    """Return the page."""
    title = f"{record.about['task']}: world {record.about['world']}"
    why = "".join(f"<li>{escape(line[0].upper() + line[1:])}</li>" for line in record.about["why"])
    strip = _strip(record, frames)
    charts = {
        ("Base", "Position and speed of the base."): _base_charts(record),
        ("Joint positions", DASHED): _joints(record, result, "position"),
        ("Joint velocities", "One point per control step, at its end."): _joints(record, result),
        ("Actions", "Output of the policy; each holds for one control step."): _actions(record),
    }
    sections = [
        ("The last moments", "As recorded; a state that is not finite is drawn as the last finite one.", strip),
        ("Replay", "The recorded controls, stepped again by plain MuJoCo.", _replay(record, result)),
        ("What grew", "The last control steps of the quantities that grew the fastest.", _growth(growths)),
    ]
    index = itertools.count()
    for (name, text), some in charts.items():
        figures = "".join(figure(chart, next(index)) for chart in some)
        sections.append((name, text, figures and f'<div class="charts small">{figures}</div>'))
    data = block({"time_ms": numbers(1000 * record.times)}, [chart for some in charts.values() for chart in some])
    body = (
        f'<header><h1>{escape(title)}</h1><p class="run mono">{escape(record.path.name)}</p>{_facts(record)}</header>\n'
        f'<ul class="why">{why}</ul>\n'
        + "".join(section(name, text, body and f"<div>{body}</div>") for name, text, body in sections)
        + f"<footer><p>Made from <code>{escape(str(record.path))}</code>.</p></footer>\n{data}"
    )
    return page(title, body, style=OWN_STYLE, draws=True)


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
        text, name = ("the end", ' class="last"') if last else (_milliseconds(record.times[k]), "")
        cells += f"<figure{name}>{image(Image.fromarray(frame), text)}<figcaption>{text}</figcaption></figure>"
    return f'<div class="strip">{cells}</div>' if cells else ""


def _replay(record: Record, result: Replay) -> str:
    notes = "".join(f'<p class="under">{escape(note)}</p>' for note in result.notes)
    broken = far(f"broken from substep {result.bad_substep} on", True)
    rows = [
        (_milliseconds(record.times[t + 1]), short(dq), short(dv), broken if t == result.bad_step else "")
        for t, (dq, dv) in enumerate(result.differences)
    ]
    head = ("State at", "Largest difference in position", "in velocity", "")
    return f"<p>{escape(result.verdict)}</p>{notes}{table(head, rows)}"


def _growth(growths: list[Growth]) -> str:
    cells = ((escape(g.name), *(far(short(value), not np.isfinite(value)) for value in g.values)) for g in growths)
    return table((), cells)


def _chart(
    record: Record,
    title: str,
    unit: str,
    values: np.ndarray,
    *,
    first: int = 0,
    target: np.ndarray | None = None,
    suspect: bool = False,
    zero: bool = False,
) -> Chart:
    """Return the chart of a quantity, from state `first` on; a last value far off the others is in the note only."""
    shown = np.full(len(record.times), math.nan)
    shown[first : first + len(values)] = values
    lost, note = np.flatnonzero(~np.isfinite(values)), ""
    if lost.size:
        begin = _milliseconds(float(record.times[first + lost[0]]))
        note = f"not finite: {lost.size} of {len(values)} values, the first at {begin}"
    elif _flies_off(values):
        note, shown[first + len(values) - 1] = f"ends at {short(float(values[-1]))}", math.nan
    series = [Series(name=title, values=numbers(shown), tone=2 if suspect else 0)]
    if target is not None:
        series.append(Series(name="target", values=[*numbers(target), None], tone=6, dashed=True))
    options: dict[str, Any] = {"zero": zero, "suspect": suspect, "note": note}
    return Chart(title=title, unit=unit, series=series, small=True, dots=True, **options)


def _base_charts(record: Record) -> list[Chart]:
    charts = []
    if record.about.get("floating"):
        speed = np.linalg.norm(record.qvel[:, :3].astype(np.float64), axis=1)
        turn = np.linalg.norm(record.qvel[:, 3:6].astype(np.float64), axis=1)
        charts = [
            _chart(record, "Base height", "m", record.qpos[:, 2]),
            _chart(record, "Base speed", "m/s", speed, zero=True),
            _chart(record, "Base turn rate", "rad/s", turn, zero=True),
        ]
    return [*charts, _chart(record, "Reward", "per step", record.reward, first=1)] if len(record.reward) > 1 else charts


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
        suspect = name in record.suspects(result.bad_name)
        asked = "velocity" if name in about.get("speed_targets", ()) else "position"
        has_target = what == asked and name in targets and about["actuator"] in ("PositionPd", "DcMotor")
        target = record.ctrl[:, 0, targets[name]] if has_target else None
        charts.append(_chart(record, name, unit, values[:, names.index(name)], target=target, suspect=suspect))
    return charts


def _actions(record: Record) -> list[Chart]:
    charts = []
    for k, name in enumerate(record.about["action_names"]):
        suspect = any(f"action of {name} " in line for line in record.about["why"])
        charts.append(_chart(record, name, "", record.action[:, k], suspect=suspect))
    return charts if len(record.action) > 1 else []


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms".replace("-", "−")


def _flies_off(values: np.ndarray) -> bool:
    """Return whether the last value is so far from the others that they would be drawn as a flat line."""
    before = values[:-1][np.isfinite(values[:-1])]
    if not before.size or not math.isfinite(values[-1]):
        return False
    low, high = float(before.min()), float(before.max())
    spread = max(high - low, 0.1 * max(abs(low), abs(high)), 1e-3)
    return bool(values[-1] > high + 3 * spread or values[-1] < low - 3 * spread)
