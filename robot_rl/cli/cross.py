"""Merge evaluations into a table and a plot, a policy a row and an engine a column.

usage: robot-rl cross FILE_OR_RUN [FILE_OR_RUN ...] [key=value ...]

{Options}

Evaluate each engine in its own process, in the environment that has it:
  robot-rl eval run=<id> engine=mujoco
  robot-rl eval run=<id> engine=mujoco_warp
  robot-rl eval run=<id> engine=isaac             # where Isaac Lab is
  robot-rl cross <id> out=cross.json
A run stands for all its evaluations, eval.json and eval_<engine>.json. A policy is marked if it is worse than in
its training engine by more than {_BOUNDS}.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robot_rl.cli.options import option, read_all, split_bare
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError
from robot_rl.runs.outputs import CROSS, IMAGE, check_optional, check_output, save_image
from robot_rl.sim2sim.cross.table import (
    METRIC_LOSS,
    SURVIVAL_LOSS,
    Table,
    draw_table,
    in_percent,
    merge,
    metric_title,
    read_cell,
    to_json,
)


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl cross."""

    out: str = option("", "the file (*.json); the plot (*.png) is written next to it; none by default")
    home: str = option("", "the training engine of policies of which the files do not specify it: those of bundles")
    root: str = option("runs", "the directory of all runs")


_BOUNDS = f"{METRIC_LOSS:.0%} of the metric or {100 * SURVIVAL_LOSS:.0f} points of survival"


def run(arguments: Sequence[str]) -> int:
    """Print the table; write the file and the plot."""
    import json

    from robot_rl.files import write_atomic

    names, settings = split_bare(arguments)
    options = read_all(Options, settings)
    out = check_optional("out", options.out, CROSS, makes_folder=False)
    plot = check_output("out", str(out.with_suffix(".png")), IMAGE) if out else None
    table = merge([read_cell(path, options.home) for path in files(names, options.root)])
    show(table)
    if out and plot:
        write_atomic(out, json.dumps(to_json(table), indent=1) + "\n")
        save_image(draw_table(table), plot)
        print(f"{out}\n{plot}")
    return 0


def files(names: Sequence[str], root: str) -> list[Path]:
    """Return the files that words name: a file itself, for a run all its evaluations."""
    from robot_rl.runs.run_dir import RunDir

    paths: list[Path] = []
    for name in names:
        path = Path(name)
        if path.suffix == ".json":
            paths.append(path)
            continue
        run_dir = RunDir.find(name, root)
        evaluations = sorted(run_dir.path.glob("eval*.json"))
        if not evaluations:
            raise UserError(f"{run_dir.run_id}: has not been evaluated; robot-rl eval run={run_dir.run_id}")
        paths += evaluations
    return paths


def show(table: Table) -> None:
    """Print the table."""
    rows = []
    for policy in table.policies:
        home = table.home(policy)
        cells = [_cell(table, policy, engine) for engine in table.engines]
        rows.append((policy if home is None else f"{policy}\n{home.trained_on}", *cells))
    print_table(("policy, training engine", *table.engines), rows, right=range(1, len(table.engines) + 1))
    first = next(iter(table.cells.values()))
    what = f"{metric_title(first)}, {first.better} is better (how much worse than in the training engine)"
    print(f"{what}, share of episodes that failed; ! beyond the bounds")


def _cell(table: Table, policy: str, engine: str) -> str:
    cell = table.cells.get((policy, engine))
    if cell is None:
        return "-"
    value = "-" if cell.mean is None else f"{cell.mean:.3g} ± {2 * cell.standard_error:.2g}"
    losses = table.losses(cell)
    if losses is None:
        return f"{value}\n{cell.failure_rate:.1%} failed"
    change = "" if losses["metric"] is None else f" ({in_percent(losses['metric'])})"
    return f"{value}{change}\n{cell.failure_rate:.1%} failed{'' if losses['within'] else ' !'}"
