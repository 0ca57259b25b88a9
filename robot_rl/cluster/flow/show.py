"""Show a flow while it runs: a table that is drawn again in a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from robot_rl.cluster.flow.local import Executor
from robot_rl.cluster.flow.state import DONE, FAILED, RUNNING, STOPPED, WAITING

PERIOD_S = 0.25
"""How often the table is drawn [s]."""
COLORS = {DONE: "green", FAILED: "red", RUNNING: "cyan", STOPPED: "yellow"}


class Progress:
    """The view of an executor: `update` is called several times a second."""

    def __init__(self, executor: Executor) -> None:
        from rich.console import Console

        self._executor, self._console = executor, Console()
        self._live: Any = None
        self._drawn = 0.0
        known = executor.state.steps.items()
        self._known = {name: STOPPED if row.state == RUNNING else row.state for name, row in known}

    def __enter__(self) -> Progress:
        """Begin."""
        from rich.live import Live

        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._executor.view = self.update
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Draw the table, or print the changes."""
        if self._live is None:
            self._print_changes()
        elif time.monotonic() - self._drawn > PERIOD_S:
            self._drawn = time.monotonic()
            self._live.update(self._table(), refresh=True)

    def _print_changes(self) -> None:
        executor = self._executor
        for name, row in executor.state.steps.items():
            word = "kept" if name in executor.kept else row.state
            if self._known.get(name, WAITING) == word:
                continue
            self._known[name] = word
            after = f" after {row.seconds:.1f} s" if word in (DONE, FAILED, STOPPED) else ""
            text = ": done before, not repeated" if word == "kept" else f": {word}{after}"
            print(f"{name}{text}", flush=True)  # noqa: T201

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        executor = self._executor
        order = executor.flow.order()
        table = Table(title=f"{executor.flow.name} {executor.flow.id}", expand=True)
        widths = {"step": max(len(step.name) for step in order), "computer": 10, "state": 8, "seconds": 7}
        for head, width in widths.items():
            table.add_column(head, justify="right" if head == "seconds" else "left", no_wrap=True, min_width=width)
        table.add_column("last line", no_wrap=True, overflow="ellipsis", ratio=1)
        for step in order:
            row, seconds = executor.state.steps[step.name], executor.seconds(step.name)
            state = Text("kept" if step.name in executor.kept else row.state, style=COLORS.get(row.state, ""))
            said = row.line if step.gates or row.state in (FAILED, STOPPED) else ""
            line = Text(executor.last_line(step.name) or said)
            table.add_row(step.name, step.resources.computer.value, state, f"{seconds:.1f}" if seconds else "", line)
        return table
