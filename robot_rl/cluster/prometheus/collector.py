"""Read the runs below a root at each scrape, from their files only, and return them as Prometheus's metrics.

A value that a run does not have is omitted; a value that is not a number in metrics.jsonl stays NaN or infinite, as
the format has them.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cluster.prometheus.families import FAMILIES, STATES
from robot_rl.cluster.prometheus.gpus import Gpu, read_gpus
from robot_rl.cluster.watch import PATIENCE_ROWS, PATIENCE_S
from robot_rl.errors import UserError
from robot_rl.files import open_plain
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import DAMAGED, RUNNING, STOPPED, RunRow, read_run, read_runs

QUARANTINED = re.compile(rb'"quarantined": ([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)[,}]')
SEEN = 256
"""Number of the last bytes read of a file, by which it is known to be the same."""


@dataclass(kw_only=True, slots=True)
class RunSource:
    """Which runs are exported.

    Attributes:
        root: The directory of all runs.
        run: One run: its id, latest or <task>/latest, found again at each scrape; "" for all.
        task: Only runs of this task; "" for all.
        most: Most runs: first those that are trained, then those that changed last.
    """

    root: Path
    run: str = ""
    task: str = ""
    most: int = 20

    def read(self, now: float) -> tuple[list[RunRow], Counter[str]]:
        """Return the exported runs, and how many there are in each state, at a time [s since 1970].

        Raises:
            UserError: The root or the run does not exist.
        """
        if self.run:
            run_dir = RunDir.find(self.run, self.root)
            try:
                row = read_run(run_dir)
            except UserError:
                row = RunRow(path=run_dir.path, state=DAMAGED)
            rows = [row]
        else:
            rows = read_runs(self.root, self.task)
        for row in rows:
            if row.state == STOPPED and _is_fresh(row, now):
                row.state = RUNNING
        ordered = sorted(rows, key=lambda row: (row.state == RUNNING, row.changed_s), reverse=True)
        return ordered[: self.most], Counter(row.state for row in rows)


def _is_fresh(row: RunRow, now: float) -> bool:
    """Whether a run's last row is so new that another machine must be training it."""
    return now - row.changed_s < max(PATIENCE_S, PATIENCE_ROWS * (row.iteration_s or 0.0))


class QuarantinedSamples:
    """The quarantined samples of whole files of metrics: each call reads only the lines that were appended."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, bytes, float]] = {}

    def count(self, path: Path) -> float | None:
        """Return the sum over the rows of a metrics.jsonl; None if there is none.

        A resumed run cuts the file and writes rows again: the bytes read last must still be there.
        """
        with contextlib.suppress(OSError, UserError), open(open_plain(path), "rb") as stream:
            at, end, total = self._known.get(path, (0, b"", 0.0))
            stream.seek(at - len(end))
            if stream.read(len(end)) != end:
                at, end, total = 0, b"", 0.0
            stream.seek(at)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                at, end = at + len(line), (end + line)[-SEEN:]
                if match := QUARANTINED.search(line):
                    total += float(match[1])
            self._known[path] = (at, end, total)
            return total
        return None


class RunsCollector:
    """A collector for a registry of prometheus_client: reads the files at each scrape.

    Args:
        source: The runs.
        gpus: Returns this machine's GPUs.
        clock: Returns the time [s since 1970].
    """

    def __init__(
        self,
        source: RunSource,
        gpus: Callable[[], list[Gpu]] = read_gpus,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._gpus, self._clock = source, gpus, clock
        self._samples = QuarantinedSamples()
        self._lock = threading.Lock()

    def describe(self) -> list[Any]:
        """Return nothing, so that the registry reads no files before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Return the current metrics, without the families that lack a value."""
        with self._lock:  # A server answers each request in a thread.
            values = list(self._values())
        made: dict[str, Any] = {}
        for name, labels, value in values:
            if name not in made:
                made[name] = _family(name)
            made[name].add_metric([str(label) for label in labels], value)
        yield from (made[name] for name in FAMILIES if name in made)

    def _values(self) -> Iterator[tuple[str, Iterable[Any], Any]]:
        """Return (name, values of labels, value) of everything."""
        try:
            rows, counts = self._source.read(self._clock())
        except (UserError, OSError):
            yield "robot_rl_up", (), 0
            rows, counts = [], None
        if counts is not None:
            yield "robot_rl_up", (), 1
            yield from (("robot_rl_runs", (state,), counts[state]) for state in STATES)
        seen = set()
        for row in rows:
            labels = (row.task, row.run_id, row.settings.get("seed", ""))
            if labels in seen:  # A copy of a run, of which the newer one counts.
                continue
            seen.add(labels)
            try:
                values = [*self._run_values(row, labels), *_goal_values(row, labels)]
                state = row.state
            except (ArithmeticError, LookupError, TypeError, ValueError, OSError, UserError):
                values, state = [], DAMAGED
            yield "robot_rl_state", labels, {name: name == state for name in STATES}
            yield from values
        for gpu in self._gpus():
            labels = (gpu.index, gpu.uuid, gpu.name)
            for name, value in (
                ("robot_rl_gpu_utilization_ratio", gpu.utilization),
                ("robot_rl_gpu_memory_used_bytes", gpu.memory_used),
                ("robot_rl_gpu_memory_total_bytes", gpu.memory_total),
            ):
                if value is not None:
                    yield name, labels, value

    def _run_values(self, row: RunRow, labels: tuple[Any, ...]) -> list[tuple[str, Iterable[Any], Any]]:
        """Return (name, values of labels, value) of a run's metrics; those that it does not have are omitted."""
        last, now, metrics = row.last, self._clock(), row.path / "metrics.jsonl"
        saved, written = newest_checkpoint(row.path)
        samples, bad = row.iteration_samples, _number(last.get("quarantined"))
        has_rows = bool(last)
        values = {
            "robot_rl_iteration": _number(last.get("iteration")) if has_rows else None,
            "robot_rl_max_iterations": _number(row.settings.get("max_iterations")),
            "robot_rl_env_steps": _number(last.get("env_steps")),
            "robot_rl_steps_per_second": _number(last.get("perf/steps_per_s")),
            "robot_rl_episode_return": _number(last.get("episode/return")),
            "robot_rl_episode_length_seconds": _number(last.get("episode/length_s")),
            "robot_rl_quarantined": self._samples.count(metrics) if bad is not None else None,
            "robot_rl_quarantined_share": bad / samples if bad is not None and samples else None,
            "robot_rl_checkpoint_iteration": saved,
            "robot_rl_checkpoint_age_seconds": None if written is None else max(0.0, now - written),
            "robot_rl_last_row_age_seconds": max(0.0, now - metrics.stat().st_mtime) if has_rows else None,
            "robot_rl_ranks": _ranks(row),
        }
        return [(name, labels, value) for name, value in values.items() if value is not None]


def _family(name: str) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, StateSetMetricFamily

    family = FAMILIES[name]
    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "stateset": StateSetMetricFamily}
    return kinds[family.kind](name, family.help, labels=family.labels)


def _goal_values(row: RunRow, labels: tuple[Any, ...]) -> Iterator[tuple[str, Iterable[Any], float]]:
    """Return the metric that a run's task is solved by, and its target; nothing without one."""
    if row.solved:
        name, target = row.solved
        value = _number(row.last.get(name))
        if value is not None:
            yield "robot_rl_goal", (*labels, name), value
        yield "robot_rl_goal_target", (*labels, name), target


def newest_checkpoint(run_dir: Path) -> tuple[int | None, float | None]:
    """Return the iteration of a run's newest checkpoint and when it was written [s since 1970]; None without one."""
    folders = [path for path in (run_dir / "checkpoints").glob("[0-9]*") if path.name.isdecimal()]
    for path in sorted(folders, key=lambda path: int(path.name), reverse=True):
        with contextlib.suppress(OSError):  # Removed meanwhile.
            return int(path.name), (path / "meta.json").stat().st_mtime
    return None, None


def _ranks(row: RunRow) -> float | None:
    """Return the processes of a run: of its launcher, else those that have a part in its newest checkpoint."""
    launcher = row.record.get("launcher")
    if isinstance(launcher, Mapping):
        nodes, ranks = _number(launcher.get("nodes", 1)), _number(launcher.get("ranks", 1))
        return nodes * ranks if nodes and ranks else None
    saved, _ = newest_checkpoint(row.path)
    if saved is None:
        return None
    return float(len(list((row.path / "checkpoints" / f"{saved:06d}").glob("env*.safetensors")))) or None


def _number(value: Any) -> float | None:
    """Return a number, finite or not; None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
