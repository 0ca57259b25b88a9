"""The progress of a training: a bar in a terminal, a line every few seconds in a log."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robot_rl.metrics.description import Descriptions, shown_unit
from robot_rl.metrics.iteration import PARTS, describe_overlap, describe_time, time_parts

LINE_EVERY_S = 10.0
# Keys of a metrics row, with the name and format that they are shown by; those that a task lacks are omitted.
SHOWN = (
    ("perf/steps_per_s", "{:,.0f} steps/s"),
    ("episode/return", "return {:.2f}"),
    ("episode/length_s", "length {:.1f} s"),
)


class Progress:
    """Shows the rows of metrics as they come; an observer for the runner, and a context manager.

    In a terminal it is a bar (iterations, time left) over a line: steps/s, return, episode length, the task's first
    metric. At the end a line reports the time of each part and the limit of the speed, and one, after the last
    iteration, whether the task's goal is reached.

    Args:
        last: Iterations in all.
        notices: Returns the environment's new lines for the user.
        metrics: What the task's metrics are.
        solved: The metric, as a key of rows, and the value that the task is solved by; None without one.
    """

    def __init__(
        self,
        last: int,
        notices: Callable[[], list[str]] = list,
        metrics: Descriptions | None = None,
        solved: Sequence[Any] | None = None,
    ) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._first, self._last, self._notices, self._metrics = 0, last, notices, metrics or {}
        self._solved = solved
        self._row: Mapping[str, float] = {}
        self._bar: Any = None
        self._live: Any = None
        self._seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._overlaps: deque[Mapping[str, float]] = deque(maxlen=1000)
        self._printed = self._first_end = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._live is not None:
            self._live.stop()
        line = describe_overlap(list(self._overlaps)) or describe_time(self._seconds)
        if line:
            self._console.print(f"time: {line}", soft_wrap=True, highlight=False)
        if kind is None and (line := goal(self._row, self._last, self._metrics, self._solved)):
            self._console.print(line, soft_wrap=True, highlight=False)

    def __call__(self, row: Mapping[str, float]) -> None:
        """Show one iteration's metrics."""
        self._row, done = row, int(row["iteration"])
        if "perf/simulate_apart_s" in row:
            self._overlaps.append(row)
        for part, seconds in time_parts(row).items():
            self._seconds[part] += seconds
        if self._first == 0:
            self._first, self._first_end = done, time.monotonic()
            if self._console.is_terminal:
                self._show_bar()
        for line in self._notices():
            counts = [f"{row[key]:.0f} {key[12:]}" for key in row if key.startswith("quarantined/")]
            self._console.print(
                f"iteration {done} ({', '.join(counts)}): {line}", soft_wrap=True, highlight=False, markup=False
            )
        if self._bar is not None:
            self._draw(done, row)
            return
        now = time.monotonic()
        if now - self._printed >= LINE_EVERY_S or done in (self._first, self._last):
            self._printed = now
            # The first iteration's end is the begin: kernels were compiled before, and are not compiled again.
            each = (
                (now - self._first_end) / (done - self._first) if done > self._first else sum(time_parts(row).values())
            )
            left = int(each * (self._last - done))
            line = f"iteration {done}/{self._last}  {facts(row, self._metrics)}  left {left // 60}:{left % 60:02d}"
            self._console.print(line, soft_wrap=True, highlight=False)

    def _show_bar(self) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("iteration"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Bar(*columns, console=self._console, expand=True)
        self._bar.add_task("train", total=self._last, completed=self._first)
        self._live = Live(self._bar, console=self._console, refresh_per_second=4)
        self._live.start()

    def _draw(self, done: int, row: Mapping[str, float]) -> None:
        from rich.console import Group
        from rich.text import Text

        self._bar.update(self._bar.task_ids[0], completed=done)
        self._live.update(Group(self._bar, Text(facts(row, self._metrics), no_wrap=True, overflow="ellipsis")))


def facts(row: Mapping[str, float], metrics: Mapping[str, Any] | None = None) -> str:
    """Return the main figures of a row in one line, with the first of the task's own `metrics`."""
    shown = list(SHOWN)
    for name, about in list((metrics or {}).items())[:1]:
        form = f"{name.replace('_', ' ')} {{:.2f}} {shown_unit(about['unit'])}".rstrip()
        shown.append((f"tracking/{name}", form))
    if row.get("episodes") and "termination/time_limit" in row:
        row = {**row, "failures": row["episodes"] * (1.0 - row["termination/time_limit"])}
        shown.append(("failures", "failures {:.0f}"))
    return "  ".join(form.format(row[key]) for key, form in shown if row.get(key) is not None)


def goal(row: Mapping[str, float], last: int, metrics: Mapping[str, Any], solved: Sequence[Any] | None) -> str:
    """Return a line that says whether the last iteration's row reaches the goal; empty before it or without a goal.

    Args:
        row: The newest row.
        last: Iterations in all.
        metrics: What the task's metrics are.
        solved: As `Progress` takes it.
    """
    key, bound = solved or ("", 0.0)
    value, name = row.get(key), key.removeprefix("tracking/")
    if value is None or name not in metrics or int(row["iteration"]) < last:
        return ""
    is_small, unit = metrics[name]["better"] == "smaller", shown_unit(metrics[name]["unit"])
    is_reached = value <= bound if is_small else value >= bound
    found = f"{value:.3g} {unit}".rstrip()
    asked = f"{name.replace('_', ' ')} of {bound:g} {unit}".rstrip() + (" or less" if is_small else " or more")
    return f"goal: {asked}: {'reached' if is_reached else 'not reached'}, {found} in the last iteration"
