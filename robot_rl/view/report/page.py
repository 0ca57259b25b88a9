"""The report of a run: one self-contained page from the files of the run directory.

All texts of a run are escaped by `html.escape`.
"""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError
from robot_rl.files import write_atomic
from robot_rl.view.chart import block, figure
from robot_rl.view.report.data import RunData, find_mapping, find_value, read_run
from robot_rl.view.report.sections import Section, make_sections
from robot_rl.view.report.verdict import Figure, duration, evaluation_table, make_verdict, mean_and_std, number
from robot_rl.view.shell import facts, far, image, page, section, table

VIDEO_LIMIT = 8 * 1024 * 1024
"""Larger videos [bytes] are shown as frames: base64 adds a third, and a page should open at once."""

FACTS = {
    "robot": "Robot",
    "learner": "Learner",
    "engine": "Engine",
    "device": "Device",
    "num_envs": "Worlds",
    "seed": "Seed",
}
PACKAGES = ("robot-rl", "torch", "mujoco", "mujoco-warp", "warp-lang", "python")


def write_report(run_dir: Path | str) -> Path:
    """Write report.html of a run directory from its metrics.jsonl, run.yaml, eval.json and video.mp4, atomically.

    Any of these files may be missing or damaged; the page lists the omitted parts.

    Raises:
        UserError: `run_dir` is not a directory.
        OSError: the page cannot be written, for instance on a full disk.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise UserError(f"run directory '{run_dir}' does not exist: give the directory of a run, runs/<task>/<run id>")
    path = run_dir / "report.html"
    write_atomic(path, render_page(read_run(run_dir.resolve())))
    return path


def render_page(data: RunData) -> str:
    """Return the page, which refers to nothing outside itself except a video.mp4 that is too large to embed."""
    task, run_id = str(find_value(data.config, "task") or data.path.parent.name), data.path.name
    if isinstance(data.config.get("task"), dict):
        task = str(data.config["task"].get("name") or task)
    axes, sections, k = make_sections(data)
    data_block = block(axes, [chart for one in sections for chart in one.charts])
    parts = [
        _header(data, task),
        _verdict(make_verdict(data)),
        _results(data),
        _bar(axes) if sections else "",
        _sections(sections),
        _config(data),
        _footer(data, k),
        data_block if sections else "",
    ]
    return page(f"{task} {run_id}", "".join(parts), draws=bool(sections))


def _header(data: RunData, task: str) -> str:
    known = ((label, find_value(data.config, key)) for key, label in FACTS.items())
    found = [(label, str(value)) for label, value in known if value is not None]
    if commit := find_value(data.config, "commit"):
        found.append(("Commit", str(commit)[:10] + (", changed since" if find_value(data.config, "dirty") else "")))
    if data.rows:
        done = f"{data.columns['iteration'][-1]:.0f}"
        planned = find_value(data.config, "max_iterations")
        found.append(("Iterations", f"{done} of {planned}" if isinstance(planned, int) else done))
        found.append(("Training time", duration(float(data.columns["time_s"][-1]))))
    versions = find_mapping(data.config, "versions")
    found += [(name, str(versions[name])) for name in PACKAGES if name in versions]
    notes = "".join(f"<li>{escape(note)}</li>" for note in data.notes)
    return (
        f'<header>\n<h1>{escape(task)}</h1>\n<p class="run mono">{escape(data.path.name)}</p>\n'
        f"{facts(found)}\n" + (f'<ul class="notes">{notes}</ul>\n' if notes else "") + "</header>\n"
    )


def _verdict(figures: list[Figure]) -> str:
    cells = "".join(
        f'<div><p class="label">{escape(f.label)}</p><p class="value">{escape(f.value)}'
        + (f'<span class="unit">{escape(f.unit)}</span>' if f.unit else "")
        + f'</p><p class="source">{escape(f.source)}</p></div>'
        for f in figures
    )
    return f'<div class="verdict">{cells}</div>\n'


def _results(data: RunData) -> str:
    text = "The policy without exploration noise, in new worlds with random commands."
    body = f'<div class="pair"><div>{_evaluation(data)}</div><div>{_video(data)}</div></div>'
    return section("Evaluation", text, body, "evaluation")


def _evaluation(data: RunData) -> str:
    if data.evaluation is None:
        return _absent("Not evaluated yet.", f"robot-rl eval run={data.path.name}")
    policies, rows, rest = evaluation_table(data.evaluation)
    if not rows:
        return _absent("eval.json contains no metrics.", f"robot-rl eval run={data.path.name}")
    compare = any(row.distance is not None for row in rows)
    body = []
    for row in rows:
        unit = f' <span class="unit">{escape(row.unit)}</span>' if row.unit else ""
        meaning = f'<span class="meaning">{escape(row.meaning)}</span>' if row.meaning else ""
        cells = [f"{escape(row.label)}{unit}{meaning}", *map(_mean_std, row.cells)]
        if compare:
            is_far = row.distance is not None and row.distance > 2
            cells.append(far("–" if row.distance is None else f"{row.distance:.2f}", is_far))
        body.append(cells)
    under = "Mean ± standard deviation over episodes."
    if compare:
        under += " Δ/SE: difference of the two means in standard errors; up to 2 the policies agree."
    extra = ", ".join(f"{key.replace('_', ' ')} {_plain(value)}" for key, value in rest.items())
    under += f" {extra[0].upper()}{extra[1:]}." if extra else ""
    head = ["Metric", *map(escape, policies), *(["Δ/SE"] if compare else [])]
    return f'{table(head, body)}<p class="under">{escape(under)}</p>'


def _mean_std(cell: tuple[float, float] | None) -> str:
    if cell is None:
        return "–"
    mean, std = mean_and_std(*cell)
    return f'{mean} <span class="pm">± {std}</span>'


def _video(data: RunData) -> str:
    command = f"robot-rl video run={data.path.name}"
    if data.video is None:
        return _absent("No video yet.", command)
    if data.video.stat().st_size <= VIDEO_LIMIT:
        film = base64.b64encode(data.video.read_bytes()).decode()
        source = f"data:video/mp4;base64,{film}"
        return f'<video src="{source}" controls loop muted playsinline aria-label="Video of the policy"></video>'
    try:
        frames = video_frames(data.video)
    except (OSError, ValueError, ImportError):
        return _absent("video.mp4 cannot be read.", command)
    images = "".join(image(frame, f"Frame at {time:.1f} s", 82) for time, frame in frames)
    link = '<a href="video.mp4">video.mp4</a> is too large to embed.'
    return f'<div class="frames">{images}</div><p class="under">{link}</p>'


def video_frames(path: Path, count: int = 6) -> list[tuple[float, Any]]:
    """Return (time [s], `PIL.Image.Image`) of `count` evenly spaced frames of a video.

    Raises:
        ValueError: the file is not a video or contains no frame.
    """
    import av

    found = []
    with av.open(str(path)) as container:
        if not container.streams.video:
            raise ValueError(f"{path.name} contains no video stream")
        total = sum(1 for _ in container.decode(video=0))
    wanted = {round((i + 0.5) * total / count) for i in range(count)}
    with av.open(str(path)) as container:
        for index, frame in enumerate(container.decode(video=0)):
            if index in wanted:
                picture = frame.to_image()
                picture.thumbnail((640, 640))
                found.append((float(frame.time or 0.0), picture))
    if not found:
        raise ValueError(f"{path.name} contains no frame")
    return found


def _bar(axes: dict[str, Any]) -> str:
    labels = {"iteration": "Iterations", "env_steps": "Steps", "time_s": "Time"}
    buttons = "".join(
        f'<button type="button" data-axis="{key}" aria-pressed="{"true" if i == 0 else "false"}">{labels[key]}</button>'
        for i, key in enumerate(axes)
    )
    return (
        '<div class="bar"><span class="where" id="where"></span>'
        f'<span class="choice" role="group" aria-label="Horizontal axis">{buttons}</span>'
        '<button type="button" data-smooth="1" aria-pressed="true">Smooth</button>'
        '<button type="button" data-scheme="1" title="Light or dark">Theme</button></div>\n'
        "<noscript><p>The curves are drawn by a script inside this page; it is switched off here.</p></noscript>\n"
    )


def _sections(sections: list[Section]) -> str:
    out, index = "", 0
    for one in sections:
        large = "".join(figure(c, index + i) for i, c in enumerate(one.charts) if not c.small)
        small = "".join(figure(c, index + i) for i, c in enumerate(one.charts) if c.small)
        index += len(one.charts)
        body = f'<div class="charts">{large}</div>' if large else ""
        body += f'<div class="charts small">{small}</div>' if small else ""
        out += section(one.title, one.text, f"<div>{body}</div>", one.key)
    return out


def _config(data: RunData) -> str:
    if not data.config_text:
        return ""
    lines = data.config_text.count("\n") + 1
    text = f'<pre tabindex="0">{escape(data.config_text)}</pre>'
    body = f"<details><summary>Show {lines} lines</summary>{text}</details>"
    return section("Settings", "run.yaml, fully resolved.", body, "settings")


def _footer(data: RunData, k: int) -> str:
    points = f" Every point of a curve is the mean of {k} iterations." if k > 1 else ""
    return f"<footer><p>Made from the files of <code>{escape(str(data.path))}</code>.{points}</p></footer>\n"


def _absent(what: str, command: str) -> str:
    return f'<p class="absent">{escape(what)} Make it with <code>{escape(command)}</code></p>'


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
