"""What the scripts here share with `robot-rl bench`, and what only they share: options, summaries, processor time.

Things that are compared are measured by `in_turn`, and their medians and quartile spreads are a `make_result`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from robot_rl.cli.bench import numbers, say, show
from robot_rl.cli.options import describe, read
from robot_rl.errors import UserError
from robot_rl.files import write_json
from robot_rl.performance.result import facts, in_turn, make_result, median_ratio, seconds, spread
from robot_rl.runs.outputs import BENCH, check_outputs

__all__ = ["facts", "in_turn", "make_result", "median_ratio", "numbers", "say", "seconds", "show", "spread"]


def run_bench(
    arguments: Sequence[str],
    options: type,
    measure: Callable[[Any, dict[str, Any]], dict[str, Any]],
    show: Callable[[Mapping[str, Any]], None] = show,
    *,
    every: bool = False,
) -> None:
    """Read the options, measure, print the table, write the file of `out=`; --help prints the script's docstring.

    Args:
        arguments: Words of the command line.
        options: Dataclass of the options, with "out", of the script's module.
        measure: Takes the options and the other changes by dotted name, and returns a result.
        show: Prints a result.
        every: Every other key is a setting to change, not only those with a dot.

    Raises:
        UserError: A word that cannot be used, or something that cannot be measured.
    """
    if {"--help", "-h"} & set(arguments):
        print(f"{sys.modules[options.__module__].__doc__}\n{describe(options)}")
        return
    given, changes = read(options, arguments, every=every)
    check_outputs(arguments, {"out": BENCH})
    result = measure(given, changes)
    show(result)
    write(given.out, result)


def measure_parts(name: str, parts: str, out: str, known: Mapping[str, Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Measure parts by their names, "a,b"; a part that is not measured keeps its figures in the file `out`.

    Raises:
        UserError: An unknown part.
    """
    names = parts.split(",")
    for part in names:
        if part not in known:
            raise UserError("parts", part, f"must be of {', '.join(known)}")
    earlier = json.loads(Path(out).read_text())["parts"] if out and Path(out).exists() else {}
    return facts(name) | {"parts": earlier | {part: known[part]() for part in names}}


def write(out: str, result: dict[str, Any]) -> None:
    """Write a result to the file of `out=` and print its name, where one is named."""
    if out:
        write_json(Path(out), result)
        print(out)


def middle(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the least and the most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over rows that have the same ones."""
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the time that passes, and the processor time of all threads [s]."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def least_cpu_s(run: Callable[[], object], repeats: int) -> float:
    """Return the least processor time of this thread over some runs [s], without what else runs."""
    found = []
    for _ in range(repeats):
        start = time.thread_time()
        run()
        found.append(time.thread_time() - start)
    return round(min(found), 4)
