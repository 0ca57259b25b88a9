"""Show the runs below a root as a table, or the differences of two; prune finished ones.

usage: robot-rl runs [<setting>=<value> ...] [key=value ...]
       robot-rl runs diff RUN RUN [root=runs]
       robot-rl runs prune [RUN ...] [task=<name>] [keep=1] [root=runs] [yes=true]

{Options}

  robot-rl runs                                     the newest ones, with their progress and results
  robot-rl runs task=go2_flat learner=ppo           those with these settings
  robot-rl runs sort=goal columns=ppo.learning_rate,perf/steps_per_s
  robot-rl runs by=ppo.entropy_coef task=go2_flat   over seeds: how many, interquartile mean, 95 % interval
  robot-rl runs diff 20261125-134500-1-33ce latest  command, settings, launcher, versions, machine, commit
  robot-rl runs prune                               the sizes of all that finished runs do not need; yes=true removes it

A column is a setting or a metric of the last iteration, by its name in metrics.jsonl. "goal" is the metric that the
task is solved by, else the return.

prune removes the checkpoints of finished runs but the newest (keep= of them), the exported one, the one with the best
evaluation, and those that another run below root= needs as its teacher or reference; of those that stay, the replay
memory, so that a run that is trained further begins with an empty one; and temporary folders of killed processes. A run
that a process trains is not touched.

settings of prune:
{PruneOptions}
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import option, read, read_all
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError

if TYPE_CHECKING:
    from robot_rl.runs.run_index import RunRow


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl runs."""

    root: str = option("runs", "the directory of all runs")
    task: str = option("", "only runs of this task")
    tag: str = option("", "only runs with this tag, which robot-rl board gives")
    state: str = option("", "only runs that are running, done, stopped, empty or damaged")
    sort: str = option("created", "created, changed, goal, iteration, a metric or a setting; the largest first")
    columns: str = option("", "further columns, such as seed,ppo.gamma,tracking/lin_vel_error")
    by: str = option("", "settings to group by, such as learner,ppo.gamma: the goal of each group over its runs")
    most: int = option(20, "how many are shown; 0: all", least=0, most=1_000_000)


@dataclass(kw_only=True, slots=True)
class DiffOptions:
    """Options of robot-rl runs diff."""

    root: str = option("runs", "the directory of all runs")


@dataclass(kw_only=True, slots=True)
class PruneOptions:
    """Options of robot-rl runs prune."""

    root: str = option("runs", "the directory of all runs")
    task: str = option("", "only runs of this task")
    keep: int = option(1, "how many of the newest checkpoints of each run stay", least=1, most=1_000_000)
    yes: bool = option(False, "remove; else the sizes are only shown")


SUBCOMMANDS = {"diff": DiffOptions, "prune": PruneOptions}


def run(arguments: Sequence[str]) -> int:
    """Print the table, or the differences; or prune."""
    from robot_rl.runs.run_index import (
        DAMAGED,
        DONE,
        EMPTY,
        RUNNING,
        STOPPED,
        matches,
        read_runs,
        require_columns,
        sort_runs,
        value_of,
    )

    if arguments[:1] == ["diff"]:
        return _diff(arguments[1:])
    if arguments[:1] == ["prune"]:
        return _prune(arguments[1:])
    options, wanted = read(Options, arguments, every=True)
    states = (RUNNING, DONE, STOPPED, EMPTY, DAMAGED)
    if options.state and options.state not in states:
        raise UserError("state", options.state, f"must be one of {', '.join(states)}")
    if left_out := [word for word in arguments if word.startswith("~")]:
        raise UserError(f"'{left_out[0]}': write <setting>=<value>")
    found = read_runs(options.root, options.task, say=lambda line: print(line, flush=True))
    rows = [row for row in found if matches(row, wanted) and options.state in ("", row.state)]
    rows = [row for row in rows if not options.tag or options.tag in row.labels.tags]
    _check_names(found, wanted)
    if not rows:
        if options.task and not found:
            _refuse_unknown_task(options)
        print(f"{len(found)} runs in {options.root}, none of these")
        return 0
    columns, by = _names(options.columns), _names(options.by)
    columns = [*(name for name in ("name", "tags") if any(value_of(row, name) for row in rows)), *columns]
    for option_, names in (("columns", columns), ("by", by), ("sort", [options.sort])):
        require_columns(found, names, option_)
    if by:
        _show_groups(rows, by)
        return 0
    rows = sort_runs(rows, options.sort)
    _show(rows[: options.most or None], columns)
    if options.most and len(rows) > options.most:
        print(f"{len(rows) - options.most} more: most=0 shows all")
    return 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _check_names(rows: Sequence["RunRow"], wanted: Mapping[str, Any]) -> None:
    """Refuse a setting that no run has."""
    from robot_rl.errors import suggest

    known = dict.fromkeys(name for row in rows for name in row.settings)
    for name in wanted if known else ():
        if name not in known:
            raise UserError(f"{name}: no run here has that setting; {suggest(name, known)}")


def _refuse_unknown_task(options: Options) -> None:
    """Refuse a task that no run has."""
    from pathlib import Path

    from robot_rl.errors import suggest

    folders = sorted({path.parent.parent.name for path in Path(options.root).glob("*/*/run.yaml")})
    if folders:
        raise UserError("task", options.task, f"no run in {options.root} is of it", suggest(options.task, folders))


def _show(rows: Sequence["RunRow"], columns: Sequence[str]) -> None:
    from robot_rl.runs.run_index import value_of

    head = ("run", "task", "learner", "seed", "state", "iterations", "goal", "metric", "changed", *columns)
    table = []
    for row in rows:
        (done, of), (name, value) = row.iterations, row.goal
        cells = (row.run_id, row.task, str(row.settings.get("learner", "")), str(row.settings.get("seed", "")))
        goal = ("-", "") if value is None else (f"{value:.4g}", name.rpartition("/")[2])
        more = (_text(value_of(row, column)) for column in columns)
        table.append((*cells, row.state, f"{done} of {of}", *goal, ago(time.time() - row.changed_s), *more))
    _print(head, table, right=(3, 5, 6))


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print a table in which no cell is cut: ids and commits are there to be copied."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print_table(head, rows, right=right, least=sum(widths) + 3 * len(widths) + 1)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def ago(seconds: float) -> str:
    """Return how long ago something was, in the largest whole unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def _show_groups(rows: Sequence["RunRow"], names: Sequence[str]) -> None:
    """Print the goal of the runs with the same values of some settings."""
    from robot_rl.metrics.intervals import interquartile_mean, interval
    from robot_rl.runs.run_index import value_of

    groups: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in rows:
        name, value = row.goal
        if value is not None:
            key = (row.task, *(_text(value_of(row, setting)) for setting in names))
            groups.setdefault(key, {}).setdefault(name, []).append(value)
    table = []
    for key, found in groups.items():
        for name, values in found.items():
            low, high = interval(values)
            spread = f"{low:.4g} to {high:.4g}" if len(values) > 1 else "-"
            best = (f"{min(values):.4g}", f"{max(values):.4g}")
            middle = f"{interquartile_mean(values):.4g}"
            table.append((*key, name.rpartition("/")[2], str(len(values)), middle, spread, *best))
    head = ("task", *names, "goal", "runs", "interquartile mean", "95 % interval", "smallest", "largest")
    _print(head, table, right=range(len(names) + 2, len(head)))


NAMES = {"git": "git of robot-rl"}
"""What the parts of a run that are compared are called, if it is not their key."""


def _diff(arguments: Sequence[str]) -> int:
    """Print the differences between two runs."""
    from robot_rl.cli.options import split_bare
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.run_index import differences, read_run

    names, words = split_bare(arguments)
    options = read_all(DiffOptions, words)
    if len(names) != 2:
        raise UserError(f"runs diff: name two runs; given: {', '.join(names) or 'none'}")
    rows = [read_run(RunDir.find(name, options.root)) for name in names]
    found = differences(*rows)
    for part, lines in found.items():
        if lines:
            print(f"{NAMES.get(part, part)}:")
            _print(("", *(row.run_id for row in rows)), [(name, _text(a), _text(b)) for name, a, b in lines])
    same = [NAMES.get(part, part) for part, lines in found.items() if not lines]
    print(f"the same: {', '.join(same)}" if same else "all of them differ in something")
    return 0


def _prune(arguments: Sequence[str]) -> int:
    """Show all that finished runs do not need, and remove it if requested; return 1 if a run could not be pruned."""
    from robot_rl.cli.options import split_bare
    from robot_rl.runs.prune import find_surplus, remove
    from robot_rl.runs.run_dir import RunDir
    from robot_rl.runs.run_index import DONE, read_runs

    names, words = split_bare(arguments)
    options = read_all(PruneOptions, words)
    every = read_runs(options.root)
    chosen = {RunDir.find(name, options.root).path.resolve() for name in names}
    rows = [row for row in every if options.task in ("", row.task) and (not names or row.path.resolve() in chosen)]
    for row in rows:
        if names and row.state != DONE:
            print(f"{row.run_id}: is {row.state}; only finished runs are pruned")
    found = find_surplus(rows, every, options.keep)
    if not found:
        print("nothing to remove")
        return 0
    table = []
    for one in found:
        stay = ", ".join(f"{int(path.name)} ({why})" for path, why in sorted(one.kept.items()))
        memory = str(len(one.memories)) if one.memories else ""
        table.append((f"{one.run_dir.task}/{one.run_dir.run_id}", str(len(one.old)), memory, _mb(one.size), stay))
    total = _mb(sum(one.size for one in found))
    _print(("run", "checkpoints", "replay", "MB", "these stay"), [*table, ("all", "", "", total, "")], right=(1, 2, 3))
    if not options.yes:
        print("nothing was removed; yes=true removes it")
        return 0
    failed = 0
    for one in found:
        try:
            remove(one)
        except (UserError, OSError) as error:
            print(f"{one.run_dir.run_id}: not pruned: {error}")
            failed += 1
    print(f"removed from {len(found) - failed} run{'s' * (len(found) - failed != 1)}")
    return int(failed > 0)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"
