"""All runs below a root: the progress of each, its last figures and its settings.

A row is made of run.yaml and of the last line of metrics.jsonl. Parsing a run.yaml takes milliseconds, so the values
that the table needs are kept in an index in the user's cache directory, by the file's time and size; an index that is
missing, damaged or read-only costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, nearest
from robot_rl.files import open_plain, read_plain, read_yaml, write_atomic
from robot_rl.metrics.description import read_solved
from robot_rl.metrics.rows import BUSY, bounded, read_row
from robot_rl.runs.agreement import is_same
from robot_rl.runs.labels import Labels, read_labels
from robot_rl.runs.run_dir import MAX_CONFIG, RunDir, task_folder
from robot_rl.settings.tree import leaves

TAIL = 65_536
"""Bytes at the end of metrics.jsonl in which the last row is."""
VERSION = 2
PLACE = ("root", "run_id")
"""Settings that specify the place of a run."""
SORTS = ("created", "changed", "goal", "iteration", "state")
"""Columns by which runs are sorted, besides metrics and settings."""
RUNNING, DONE, STOPPED, EMPTY, DAMAGED = "running", "done", "stopped", "empty", "damaged"


@dataclass(kw_only=True, slots=True)
class RunRow:
    """A run in the table.

    Attributes:
        path: Its directory.
        state: "running" (a process trains it), "done" (all iterations), "stopped", "empty" (no iteration yet), or
            "damaged" (run.yaml cannot be read, or metrics.jsonl has content without a row).
        settings: The values of its settings by dotted name.
        record: Other entries of run.yaml: "created", "solved", "git", "versions", "machine", "launcher".
        last: The last row of its metrics, without groups.
        changed_s: When its metrics, or else run.yaml, were last written [s since 1970].
        labels: What users added to it.
    """

    path: Path
    state: str = EMPTY
    settings: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    changed_s: float = 0.0
    labels: Labels = field(default_factory=Labels)

    @property
    def run_id(self) -> str:
        """The run's id; with replacement characters if the folder's name is not UTF-8."""
        return os.fsencode(self.path.name).decode(errors="replace")

    @property
    def task(self) -> str:
        """The task's name, else the folder's."""
        return str(self.settings.get("task", os.fsencode(self.path.parent.name).decode(errors="replace")))

    @property
    def iterations(self) -> tuple[int, int]:
        """Iterations that are done, and in all."""
        last = self.settings.get("max_iterations")
        return int(self.last.get("iteration", 0)), last if isinstance(last, int) else 0

    @property
    def iteration_samples(self) -> float | None:
        """Samples of an iteration, over all worlds; None if none is done."""
        steps, done = self.last.get("env_steps"), self.iterations[0]
        return steps / done if isinstance(steps, int | float) and done else None

    @property
    def iteration_s(self) -> float | None:
        """Seconds that an iteration takes at the speed of the last one; None if it is unknown."""
        samples, speed = self.iteration_samples, self.last.get("perf/steps_per_s")
        return samples / speed if samples and isinstance(speed, int | float) and speed > 0 else None

    @property
    def solved(self) -> tuple[str, float] | None:
        """The metric, as a key of rows, and the value that the task is solved by; None without one."""
        return read_solved(self.record.get("solved"))

    @property
    def goal(self) -> tuple[str, float | None]:
        """The metric that the task is solved by, else the return, and its newest value; None if there is none."""
        key = self.solved[0] if self.solved and self.solved[0] in self.last else "episode/return"
        value = self.last.get(key)
        return key, float(value) if isinstance(value, int | float) else None


def read_runs(
    root: str | Path,
    task: str = "",
    *,
    say: Callable[[str], None] = lambda _: None,
    index: Path | None = None,
) -> list[RunRow]:
    """Return a row for each run below a root, the newest first.

    Args:
        root: The directory of all runs.
        task: Only of this task.
        say: Called with a line where many files have to be read.
        index: File of the index; by default one of the root's in the user's cache directory.

    Raises:
        UserError: `root` is not a directory.
    """
    base = Path(root)
    if not base.is_dir():
        raise UserError("root", root, "is not a directory", "robot-rl train makes it")
    index = index_file(base) if index is None else index
    folders = f"{task_folder(task)}/*" if task else "*/*"
    files = [path for path in base.glob(f"{folders}/run.yaml") if path.exists()]
    known = read_index(index)
    rows, kept, new = [], dict(known), 0
    names = [str(path.parent.resolve()) for path in files]
    for path, name in zip(files, names, strict=True):
        stamp = stamp_of(path)
        entry = known.get(name)
        if entry is None or entry.get("stamp") != stamp:
            if new == 200:
                say(f"reading {len(files) - len(rows)} more run.yaml; the next time takes a moment")
            entry, new = {"stamp": stamp, **read_settings(path)}, new + 1
            kept[name] = entry
        rows.append(make_row(path.parent, entry))
    if new:
        write_index(index, kept if task else {name: kept[name] for name in names})
    return sorted(rows, key=lambda row: (str(row.record.get("created", "")), row.run_id), reverse=True)


def read_run(run_dir: RunDir) -> RunRow:
    """Return the row of one run; raise UserError if its run.yaml is missing or damaged."""
    run_dir.read_config()
    return make_row(run_dir.path, {"stamp": stamp_of(run_dir.config_file), **read_settings(run_dir.config_file)})


def index_file(root: Path) -> Path:
    """Return the file of a root's index, in XDG_CACHE_HOME or ~/.cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return cache / "robot-rl" / "runs" / f"{name}.json"


def stamp_of(path: Path) -> list[int]:
    """Return the stamp of an unchanged file: its time [ns] and its size; raise OSError if it is missing."""
    stat = path.stat()
    return [stat.st_mtime_ns, stat.st_size]


def read_index(path: Path) -> dict[str, Any]:
    """Return path of a run -> its entry, "stamp", "settings" and "record"; empty without an index."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        found = json.loads(path.read_bytes())
        if found["version"] == VERSION:
            bases = found["bases"]
            return {name: _filled(entry, bases[entry["base"]]) for name, entry in found["runs"].items()}
    return {}


def _filled(entry: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    if entry["settings"] is None:
        return {"stamp": entry["stamp"], "settings": None, "record": {}}
    parts = {}
    for part in ("settings", "record"):
        parts[part] = base[part] | entry[part]
        for key in entry["gone"][part]:
            del parts[part][key]
    return {"stamp": entry["stamp"], **parts}


def write_index(path: Path, runs: Mapping[str, Any]) -> None:
    """Write an index; those of one task are kept as differences from one of them. Nothing happens if it cannot."""
    bases: dict[str, Any] = {"": {"settings": {}, "record": {}}}
    rows: dict[str, Any] = {}
    for name, entry in runs.items():
        task = "" if entry["settings"] is None else str(entry["settings"].get("task"))
        base = bases.setdefault(task, {part: entry[part] for part in ("settings", "record")})
        row: dict[str, Any] = {"stamp": entry["stamp"], "base": task, "settings": None, "gone": {}}
        for part in ("settings", "record") if task else ():
            mine, common = entry[part], base[part]
            row[part] = {key: value for key, value in mine.items() if key not in common or common[key] != value}
            row["gone"][part] = [key for key in common if key not in mine]
        rows[name] = row
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"version": VERSION, "bases": bases, "runs": rows}))


def read_settings(path: Path) -> dict[str, Any]:
    """Return the entries of a run.yaml that the table needs; without settings if it is damaged."""
    try:
        record = read_yaml(read_plain(path, MAX_CONFIG).decode())
    except (OSError, ValueError, UserError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
        return {"settings": None, "record": {}}
    rest = {
        key: record[key] for key in ("created", "solved", "git", "versions", "machine", "launcher") if key in record
    }
    found = json.dumps({"settings": dict(leaves(bounded(record["config"]))), "record": bounded(rest)}, default=str)
    return json.loads(found)


def make_row(folder: Path, entry: Mapping[str, Any]) -> RunRow:
    """Return the row of a run, of its entry in the index and the last row of its metrics; damaged if this fails.

    One run must not hide all others.
    """
    try:
        return _make_row(folder, entry)
    except (ArithmeticError, LookupError, TypeError, ValueError, OSError):
        return RunRow(path=folder, state=DAMAGED)


def _make_row(folder: Path, entry: Mapping[str, Any]) -> RunRow:
    row = RunRow(path=folder, record=entry.get("record") or {}, changed_s=entry["stamp"][0] / 1e9)
    row.labels = read_labels(folder)
    if not isinstance(entry.get("settings"), dict):
        row.state = DAMAGED
        return row
    row.settings = dict(entry["settings"])
    metrics = folder / "metrics.jsonl"
    with contextlib.suppress(OSError, UserError):
        row.changed_s = max(row.changed_s, metrics.stat().st_mtime)
        row.last = last_row(metrics)
        row.state = DAMAGED if not row.last and metrics.stat().st_size else EMPTY
    done, of = row.iterations
    if is_running(metrics):
        row.state = RUNNING
    elif done:
        row.state = DONE if done >= of else STOPPED
    return row


def last_row(path: Path) -> dict[str, Any]:
    """Return the last whole row of a metrics.jsonl; empty if there is none.

    Raises:
        UserError: It is not a plain file.
        OSError: It is missing or cannot be read.
    """
    with open(open_plain(path), "rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        for most in (TAIL // 8, TAIL):  # Mostly the last row is in the smaller part.
            stream.seek(max(0, size - most))
            lines = stream.read().split(b"\n")
            for line in reversed(lines[:-1]):  # The last one is still being written, or empty.
                if (row := read_row(line)) is not None:
                    return row
    return {}


def is_running(metrics: Path) -> bool:
    """Whether a process of this machine has a run's metrics open for writing."""
    with contextlib.suppress(OSError, UserError), open(open_plain(metrics), "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in BUSY
    return False


def differences(one: RunRow, other: RunRow) -> dict[str, list[tuple[str, Any, Any]]]:
    """Return the differences between two runs, by part, each as (name, first, second).

    The parts are "command" (words of each command line), "settings" (of the run), "launcher", "versions", "machine" and
    "git".

    A setting that a run does not have is None there. Where a run is, and its id, are not compared.
    """
    parts = {"command": (_said(one), _said(other)), "settings": (one.settings, other.settings)}
    parts |= {
        name: tuple(dict(leaves(row.record.get(name) or {})) for row in (one, other))
        for name in ("launcher", "versions", "machine", "git")
    }
    found = {}
    for part, (mine, theirs) in parts.items():
        names = [
            name for name in dict.fromkeys((*mine, *theirs)) if part not in ("command", "settings") or name not in PLACE
        ]
        rows = [(name, mine.get(name), theirs.get(name)) for name in names]
        found[part] = [row for row in rows if not is_same(row[1], row[2])]
    return found


def _said(row: RunRow) -> dict[str, str]:
    """Return the words of the command line that began a run, by name; empty where run.yaml cannot be read."""
    words: list[Any] = []
    with contextlib.suppress(UserError, OSError):
        words = list(RunDir(row.path).read_config().get("command") or [])[1:]
    return {str(word).partition("=")[0]: str(word).partition("=")[2] for word in words if "=" in str(word)}


def matches(row: RunRow, wanted: Mapping[str, Any]) -> bool:
    """Whether a run has these values of its settings, by dotted name; 2 is 2.0 here."""
    return all(name in row.settings and _equals(row.settings[name], value) for name, value in wanted.items())


def _equals(one: Any, other: Any) -> bool:
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return one == other if are_numbers else is_same(one, other)


def require_columns(rows: Sequence[RunRow], names: Iterable[str], option: str) -> None:
    """Raise UserError for a column that none of some runs has; `option` named it."""
    for name in names if rows else ():
        if all(value_of(row, name) is None for row in rows):
            near = nearest(name, dict.fromkeys((*SORTS, *(key for row in rows for key in (*row.last, *row.settings)))))
            right = f"did you mean '{near}'?" if near else f"give {', '.join(SORTS)}, a metric or a setting"
            raise UserError(option, name, "no run here has it", right)


def sort_runs(rows: Iterable[RunRow], by: str) -> list[RunRow]:
    """Return runs by a column, the largest first, those without it last: one of SORTS, a metric, or a setting."""
    rows = list(rows)
    values = {id(row): value_of(row, by) for row in rows}
    there = [row for row in rows if values[id(row)] is not None]
    are_numbers = all(isinstance(values[id(row)], int | float) for row in there)
    there.sort(key=lambda row: values[id(row)] if are_numbers else str(values[id(row)]), reverse=True)
    return there + [row for row in rows if values[id(row)] is None]


def value_of(row: RunRow, name: str) -> Any:
    """Return a run's value of a column, a metric's newest value, or a setting; None if it has none."""
    own = {
        "created": row.record.get("created"),
        "changed": row.changed_s,
        "goal": row.goal[1],
        "iteration": row.iterations[0],
        "state": row.state,
        "name": row.labels.name or None,
        "tags": " ".join(row.labels.tags) or None,
    }
    if name in own:
        return own[name]
    return row.last[name] if name in row.last else row.settings.get(name)
