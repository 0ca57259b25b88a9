"""How soon each learner solves a task, in turn on one machine: environment steps, processor time, time of the training.

    python benchmarks/learners.py task=go2_flat learners=ppo,flashsac,world_model seeds=1,2,3 out=learners.json

A policy counts as solving the task when 100 fresh worlds over 10 s, with noise, randomization and pushes on, have the
task's own metric within its bound (`Task.solved`), or one that is given, and at most 2 % failures. It is looked at
every so many seconds of training; a learner's time is that of its first such policy, without the evaluations, for which
the training waits. A later policy may miss again, which ``until=end`` looks for. A setting with a dot changes all
trainings, one after a + those of its learner (ppo+symmetry=none+num_envs=256). ``--help`` lists the options.
"""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from harness import facts, run_bench, say
from words import run_script

from robot_rl.cli.options import MAX_ENVS, MAX_SEED, option, parse_value
from robot_rl.cli.table import print_table
from robot_rl.errors import Interrupted, UserError
from robot_rl.evaluation import evaluate_run
from robot_rl.files import read_json, write_json
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.policy import make_policy
from robot_rl.learn.threads import use_threads
from robot_rl.runs.inputs import resolve_inputs
from robot_rl.runs.settings import change, default_tree, resolve

FAILURES = 0.02
"""Share of worlds that may fail, if no other is given."""
SEED = 10_000
"""Added to a run's seed for the worlds of its evaluations."""
Point = dict[str, Any]
"""A policy that was looked at: "iteration", "time_s", "cpu_s", "env_steps", the metric and "failure_rate"."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    task: str = option("go2_flat", "the task")
    learners: str = option("ppo,flashsac,world_model", "learners in turn, each with settings of its own after a +")
    seeds: str = option("1,2,3", "a training of each learner with each seed")
    metric: str = option("", "what solves the task, such as return, with bound=; without it the task's own")
    bound: float = option(math.nan, "value of metric= that solves the task: the least return, the largest error")
    failures: float = option(FAILURES, "share of worlds that may fail", least=0.0, most=1.0)
    seconds: float = option(10.0, "longest episode of a look [s]", least=0.1, most=1e6)
    every: float = option(5.0, "training time between two looks at the policy [s]", least=0.0, most=1e6)
    until: str = option("first", "first: a training ends where it solves the task; end: it continues")
    limit: float = option(0.0, "most training time [s]; 0: the iterations of a training decide", least=0.0, most=1e6)
    episodes: int = option(100, "fresh worlds of a look", least=1, most=MAX_ENVS)
    device: str = option("auto", "auto, cpu, cuda or cuda:<index>")
    out: str = option("", "file for the figures as JSON; trainings that it has are not repeated")


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """When a task counts as solved.

    Attributes:
        metric: of an evaluation, such as "lin_vel_error".
        bound: largest value of it that will do; of a metric of which more is better, the smallest.
        is_least: less is better.
        every_s: training time between two looks [s].
        only_first: a training ends with the first policy that solves the task.
        episodes: worlds of a look.
        limit_s: training time after which a training ends in any case [s]; 0: its iterations decide.
        failures: share of worlds that may fail.
        seconds: longest episode of a look [s].
    """

    metric: str
    bound: float
    is_least: bool = True
    every_s: float = 5.0
    only_first: bool = True
    episodes: int = 100
    limit_s: float = 0.0
    failures: float = FAILURES
    seconds: float = 10.0

    def is_met(self, point: Point) -> bool:
        """Whether a policy solves the task."""
        value, failures = point[self.metric], point["failure_rate"]
        if value is None or failures is None or failures > self.failures:
            return False
        return value <= self.bound if self.is_least else value >= self.bound


@dataclass(slots=True)
class Watch:
    """Looks at the policy from time to time, on clocks that are stopped meanwhile.

    Attributes:
        points: what was found, in order.
    """

    cfg: Any
    goal: Goal
    say: Callable[[str], None]
    runner: Any = None
    points: list[Point] = field(default_factory=list)
    begun: float = 0.0
    begun_cpu: float = 0.0
    next_s: float = 0.0

    def start(self) -> None:
        """Begin with the training."""
        self.begun, self.begun_cpu, self.next_s = time.perf_counter(), time.process_time(), self.goal.every_s

    def __call__(self, row: dict[str, float]) -> bool:
        """Process an iteration; return true where the training may end."""
        entered, cpu = time.perf_counter(), time.process_time()
        passed = entered - self.begun
        is_last = int(row["iteration"]) == self.cfg.learner.max_iterations
        is_over = 0.0 < self.goal.limit_s <= passed
        if passed < self.next_s and not is_last and not is_over:
            return False
        point = {"iteration": int(row["iteration"]), "env_steps": int(row["env_steps"])}
        point |= {"time_s": round(passed, 2), "cpu_s": round(cpu - self.begun_cpu, 2), **self._look()}
        self.points.append(point)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in point.items() if value is not None)
        self.say(f"{self.cfg.learner.name}, seed {self.cfg.seed}: {shown}")
        self.next_s = passed + self.goal.every_s
        self.begun += time.perf_counter() - entered
        self.begun_cpu += time.process_time() - cpu
        return is_over or (self.goal.only_first and self.goal.is_met(point))

    def _look(self) -> dict[str, float | None]:
        """Evaluate the policy as it is."""
        cfg = self.cfg
        with torch.random.fork_rng(devices=[]):
            found = evaluate_run(
                lambda: cfg.make_env(num_envs=self.goal.episodes, seed=SEED + cfg.seed),
                policy=make_policy(self.runner.run_dir, self.runner.save(), cfg.device),
                bundle=None,
                seconds=self.goal.seconds,
            )["torch"]
        # None: all failed in the first second.
        return {
            name: None if found[name] is None else found[name]["mean"] for name in (self.goal.metric, "failure_rate")
        }


def train(cfg: Any, goal: Goal, say: Callable[[str], None]) -> list[Point]:
    """Train a run (`robot_rl.runs.settings.TrainCfg`) once, and return the policies that were looked at."""
    use_threads(cfg.learner_threads, cfg.device)
    watch = Watch(cfg, goal, say)
    with contextlib.closing(cfg.make_env()) as env, tempfile.TemporaryDirectory(prefix="robot-rl-") as scratch:
        watch.runner = make_trainer(env, cfg.learner, run_dir=Path(scratch), seed=cfg.seed, observer=watch)
        watch.start()
        try:
            watch.runner.train()
        except Interrupted as error:  # What it saved is gone with its folder.
            raise Interrupted(None, error.iteration, error.signal, saved=False) from None
    return watch.points


def make_runs(options: Options, dotted: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return learner, as the user names it, and settings of each training: a seed after the other, learners in turn.

    Raises:
        UserError: An option cannot be used.
    """
    if options.until not in ("first", "end"):
        raise UserError(f"until={options.until}: must be first or end")
    seeds = options.seeds.split(",")
    if not all(seed.isascii() and seed.isdecimal() and int(seed) <= MAX_SEED for seed in seeds):
        raise UserError(f"seeds={options.seeds}: must be whole numbers from 0 to {MAX_SEED}, such as 1,2,3")
    names = [name for name in re.split(r",(?![^\[]*\])", options.learners) if name]  # No comma of a list.
    if not names:
        raise UserError("learners: names none; give at least one, such as ppo,world_model")
    runs = []
    for k, seed in enumerate(seeds):
        for name in names[k % len(names) :] + names[: k % len(names)]:
            learner, *changes = name.split("+")
            own = {"seed": int(seed), "save_interval": 1_000_000, "save_interval_s": 0.0, **dotted}
            own |= dict(_split_change(text) for text in changes)
            tree = default_tree(options.task, options.device, learner)
            runs.append((name, resolve_inputs(resolve(change(tree, own)))))
    return runs


def _split_change(text: str) -> tuple[str, Any]:
    """Return name and value of a setting such as symmetry=none."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"learners=...+{text}: must be a setting, such as +symmetry=none")
    return key, parse_value(value, key)


def bench_learners(options: Options, dotted: dict[str, Any]) -> dict[str, Any]:
    """Train in turn until the task is solved; the file of `out=` is written after every training, and continued.

    Returns:
        {"name", "machine", "versions", "notes", "rows", "trainings"}: a row for each learner with medians over its
        seeds of what it took, None where the median seed never solved the task, and its ratios to the first learner's.

    Raises:
        UserError: An option cannot be used, or the file has trainings of another task.
    """
    runs = make_runs(options, dotted)
    task, wanted = runs[0][1].task, {(name, cfg.seed) for name, cfg in runs}
    looks = {"every_s": options.every, "episodes": options.episodes, "limit_s": options.limit}
    looks |= {"failures": options.failures, "seconds": options.seconds, "only_first": options.until == "first"}
    goal = find_goal(task, options.metric, options.bound, **looks)
    notes = {"task": task.name, "metric": goal.metric, "bound": goal.bound}
    notes |= {"failure_rate": goal.failures, "seconds": goal.seconds}
    path = Path(options.out) if options.out else None
    before = read_json(path) if path is not None and path.exists() else {}
    trainings = [one for one in before.get("trainings", []) if (one["learner"], one["seed"]) in wanted]
    if trainings and any(before["notes"].get(name, value) != value for name, value in notes.items()):
        raise UserError(f"out={options.out}: has trainings of another task or bound; name another file")
    notes |= {"episodes": goal.episodes, "every_s": goal.every_s}
    notes |= {"only_first": goal.only_first, "limit_s": goal.limit_s}
    done = {(one["learner"], one["seed"]) for one in trainings}
    result: dict[str, Any] = {}
    for name, cfg in runs:
        if (name, cfg.seed) not in done:
            points = train(cfg, goal, say)
            first = next((point for point in points if goal.is_met(point)), None)
            trainings.append({"learner": name, "seed": cfg.seed, "reached": first, "points": points})
        rows = summarize(list(dict.fromkeys(learner for learner, _ in runs)), trainings)
        result = facts("learners") | {"notes": notes, "rows": rows, "trainings": trainings}
        if path is not None:
            write_json(path, result)
    return result


def summarize(names: Sequence[str], trainings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each learner, the first one's ratios being 1."""
    rows = []
    for name in names:
        mine = [one for one in trainings if one["learner"] == name]
        row: dict[str, Any] = {"learner": name, "seeds": [one["seed"] for one in mine]}
        row["solved"] = sum(one["reached"] is not None for one in mine)
        for key in ("env_steps", "cpu_s", "time_s"):
            # A seed that never solves it counts as infinitely slow: left out, it would make the median look better.
            found = [math.inf if one["reached"] is None else one["reached"][key] for one in mine]
            middle = statistics.median(found) if found else math.inf
            row[key] = None if middle == math.inf else middle
            base = rows[0][key] if rows else row[key]
            row[f"{key} ratio"] = row[key] / base if row[key] and base else None
        rows.append(row)
    return rows


def find_goal(task: Any, metric: str = "", bound: float = math.nan, **given: Any) -> Goal:
    """Return the goal of a task.

    Args:
        task: The task.
        metric: A metric of an evaluation, with its `bound`; empty for the task's own.
        bound: The value that solves the task.
        given: Of the goal's other fields.

    Raises:
        UserError: The task does not say when it is solved, and no metric is given; or it has none of that name.
    """
    solved = getattr(task, "solved", None)
    if not metric and not math.isnan(bound):
        raise UserError(f"bound={bound:g}: of what? Add metric=, such as metric=return")
    if metric:
        known = [*task.metrics, "return"]
        if metric not in known:
            raise UserError(f"metric={metric}: task={task.name} has no such metric; must be one of {', '.join(known)}")
        if math.isnan(bound):
            raise UserError(f"metric={metric}: needs the value that solves the task, such as bound=1000")
        solved = (metric, bound)
    if not solved:
        raise UserError(f"task={task.name}: does not say when it is solved (`Task.solved`); give metric= and bound=")
    name = str(solved[0]).rpartition("/")[2]
    better = "larger" if name == "return" else getattr(getattr(task.metrics.get(name), "info", None), "better", "")
    return Goal(metric=name, bound=float(solved[1]), is_least=better != "larger", **given)


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


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_learners, show_learners)


if __name__ == "__main__":
    run_script(main)
