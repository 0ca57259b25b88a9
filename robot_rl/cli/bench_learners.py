"""``robot-rl bench learners``: its options, what they mean, and the table."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.cli.options import MAX_ENVS, MAX_SEED, option, parse_value, read
from robot_rl.cli.table import print_table
from robot_rl.errors import UserError


@dataclass(kw_only=True, slots=True)
class LearnersOptions:
    """Options of robot-rl bench learners."""

    task: str = option("go2_flat", "the task")
    learners: str = option("ppo,flashsac,world_model", "learners in turn, each with settings of its own after a +")
    seeds: str = option("1,2,3", "a training of each learner with each seed")
    metric: str = option("", "what solves the task, such as return, with bound=; without it the task's own")
    bound: float = option(math.nan, "value of metric= that solves the task: the least return, the largest error")
    failures: float = option(0.02, "share of worlds that may fail")
    seconds: float = option(10.0, "longest episode of a look [s]")
    every: float = option(5.0, "training time between two looks at the policy [s]")
    until: str = option("first", "first: a training ends where it solves the task; end: it goes on")
    limit: float = option(0.0, "training time after which a training ends in any case [s]; 0: its iterations decide")
    episodes: int = option(100, "fresh worlds of a look", least=1, most=MAX_ENVS)
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    out: str = option("", "file for the figures as JSON; trainings that it has are not repeated")


def bench_learners(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Train each learner until it solves a task; return the result and where to write it."""
    from robot_rl.bench import learners
    from robot_rl.experiment.inputs import resolve_inputs
    from robot_rl.experiment.settings import change, default_tree, resolve
    from robot_rl.files import read_json, write_json
    from robot_rl.sources.registry import refuse_unsupported

    options, dotted = read(LearnersOptions, arguments)
    refuse_unsupported(options.task, "bench learners")
    if options.until not in ("first", "end"):
        raise UserError(f"until={options.until}: must be first or end")
    ranges = {"every": (0.0, 1e6), "limit": (0.0, 1e6), "failures": (0.0, 1.0), "seconds": (0.1, 1e6)}
    for name, (least, most) in ranges.items():
        if not least <= getattr(options, name) <= most:
            raise UserError(f"{name}={getattr(options, name):g}: must be in [{least:g}, {most:g}]")
    seeds = _seeds(options.seeds)
    names = [name for name in re.split(r",(?![^\[]*\])", options.learners) if name]  # No comma of a list.
    if not names:
        raise UserError("learners: names none; give at least one, such as ppo,world_model")
    runs = []
    for k, seed in enumerate(seeds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            learner, *changes = name.split("+")
            pairs = dict(_split_change(text) for text in changes)
            tree = default_tree(options.task, options.device, learner)
            own = {"seed": seed, "save_interval": 1_000_000, "save_interval_s": 0.0, **dotted, **pairs}
            runs.append((name, resolve_inputs(resolve(change(tree, own)))))
    given = {"every_s": options.every, "episodes": options.episodes, "limit_s": options.limit}
    given |= {
        "failures": options.failures,
        "seconds": options.seconds,
        "metric": options.metric,
        "bound": options.bound,
    }
    goal = learners.find_goal(runs[0][1].task, only_first=options.until == "first", **given)
    path = Path(options.out) if options.out else None
    before = read_json(path) if path is not None and path.exists() else {}
    kept = [one for one in before.get("trainings", []) if one["learner"] in names and one["seed"] in seeds]
    looks = {"metric": goal.metric, "bound": goal.bound, "failure_rate": goal.failures, "seconds": goal.seconds}
    same = {"task": runs[0][1].task.name, **looks}
    if kept and any(before["notes"].get(name, value) != value for name, value in same.items()):
        raise UserError(f"out={options.out}: has trainings of another task or bound; name another file")

    def save(result: dict[str, Any]) -> None:
        if path is not None:
            write_json(path, result)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    return learners.bench_learners(runs, goal, kept=kept, say=say, save=save), options.out


def _split_change(text: str) -> tuple[str, Any]:
    """Return name and value of a setting such as symmetry=none."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"learners=...+{text}: must be a setting, such as +symmetry=none")
    return key, parse_value(value, key)


def show_learners(result: Mapping[str, Any]) -> None:
    """Print a row for each learner."""
    notes = result["notes"]
    print(
        f"{notes['task']} until {notes['metric']} {notes['bound']:g} and {notes['failure_rate']:.0%} failures, medians"
    )
    heads = ("learner", "solved", "env steps", "CPU s", "s of training", "of the first: steps", "CPU s", "s")
    rows = []
    for row in result["rows"]:
        ratios = [row[f"{key} ratio"] for key in ("env_steps", "cpu_s", "time_s")]
        figures = ["never" if row[key] is None else f"{row[key]:,.0f}" for key in ("env_steps", "cpu_s", "time_s")]
        solved = f"{row['solved']} of {len(row['seeds'])}"
        rows.append((row["learner"], solved, *figures, *("" if x is None else f"{x:.2f}" for x in ratios)))
    print_table(heads, rows, right=range(1, len(heads)), least=120)


def _seeds(text: str) -> list[int]:
    """Return the seeds of an option's text."""
    found = text.split(",")
    if not all(part.isascii() and part.isdecimal() and int(part) <= MAX_SEED for part in found):
        raise UserError(f"seeds={text}: must be whole numbers from 0 to {MAX_SEED}, such as 1,2,3")
    return [int(part) for part in found]
