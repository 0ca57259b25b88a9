"""How many steps go2_flat needs where the policy that acts is so many versions behind, corrected and not.

    python benchmarks/staleness.py out=benchmarks/staleness.json
    python benchmarks/staleness.py kinds=0,1,1:none,4 seeds=1,2 iterations=240 jobs=1 out=staleness.json

A lag of 0 is synchronous training. Of another lag k each rollout is collected by the policy of k updates before (fewer
in the first k iterations), which depends on nothing else: the same seed gives the same bits. "decoupled" is the shipped
correction, "none" the plain ratio to the policy that acted, "vtrace" the correction with V-trace's advantages.

A training has reached the goal with its first policy that, in 100 fresh worlds over 10 s, noise, randomization and
pushes on, has a mean linear error of at most 0.25 m/s, and ends there; the iteration is interpolated. Policies are
evaluated every 5 iterations from where the error of the training's own, explored steps over the last 10 iterations is
at most 0.5 m/s. Each finished training is kept in the file at once; started again the script goes on with what is
missing. The curves of the explored error are drawn next to the file.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from harness import make_result
from plot import Plot, svg
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.evaluation import evaluate_run
from robot_rl.files import write_atomic
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.policy import make_policy
from robot_rl.learn.rollouts.overlapped import OverlappedRollouts, PrefetchedRollout
from robot_rl.learn.simulators.weights import pack, unpack
from robot_rl.learn.trainer import Trainer
from robot_rl.settings import apply_overrides

GOAL, WINDOW = 0.25, 10
MARKS = (0.4, 0.35)
"""Errors of explored steps [m/s] for which the iterations are counted, too."""
EVERY, FROM, EPISODES = 5, 0.5, 100
OBJECTIVES = {"decoupled": {}, "none": {"ppo.correction.objective": "none"}}
OBJECTIVES |= {"vtrace": {"ppo.correction.advantages": "vtrace"}}
METRIC = "tracking/lin_vel_error"
EVALUATED = f"evaluated {GOAL} m/s"
KEPT = (METRIC, "staleness/mean", "staleness/effective", "staleness/divergence", "staleness/gated", "loss/clip_share")
COLORS = ("#1f77b4", "#aec7e8", "#ff7f0e", "#ffbb78", "#2ca02c", "#98df8a", "#d62728", "#9467bd", "#111111")
KNOWN = {"kinds": "0,1,1:none,4,4:none,16,16:none", "seeds": "1,2,3", "iterations": "240", "jobs": "1", "out": ""}


class LaggedAhead(PrefetchedRollout):
    """A policy that acts so many versions behind."""

    def __init__(self, collector: Any, actor: Any, lag: int) -> None:
        super().__init__(collector, actor)
        self._past: deque[tuple[int, torch.Tensor]] = deque(maxlen=lag)

    def become(self, actor: Any, version: int) -> None:
        """Take over the policy of so many versions before."""
        self._past.append((version, pack(actor)))
        oldest, weights = self._past[0]
        unpack(weights, self.actor)
        self.version.fill_(oldest)


@dataclass
class Watch:
    """Keeps the rows of a training and evaluates its policies.

    Attributes:
        iterations: The training ends after so many.
        rows: What is kept of each iteration.
        points: Evaluations, in order.
    """

    seed: int
    iterations: int
    runner: Any = None
    rows: list[dict[str, float]] = field(default_factory=list)
    points: list[dict[str, float | None]] = field(default_factory=list)

    def __call__(self, row: dict[str, float]) -> bool:
        """Take an iteration's row; return whether the training may end."""
        self.rows.append({name: round(row[name], 5) for name in KEPT if name in row})
        if len(self.rows) % EVERY or smooth([row[METRIC] for row in self.rows])[-1] > FROM:
            return len(self.rows) >= self.iterations
        with torch.random.fork_rng(devices=[]):
            found = evaluate_run(
                lambda: make_env(
                    get_task("go2_flat"), num_envs=EPISODES, device="cpu", seed=10_000 + self.seed, num_threads=1
                ),
                policy=make_policy(self.runner.run_dir, self.runner.save(), "cpu"),
                bundle=None,
            )["torch"]
        error, failures = ((found[name] or {}).get("mean") for name in ("lin_vel_error", "failure_rate"))
        self.points.append({"iteration": len(self.rows), "lin_vel_error": error, "failure_rate": failures})
        return goal_after(self.points) is not None or len(self.rows) >= self.iterations


def train(work: tuple[int, str, int, int]) -> dict[str, Any]:
    """Train once: (lag, objective, seed, iterations); return the rows of the curve and when the goal was reached."""
    lag, objective, seed, iterations = work
    torch.set_num_threads(1)
    task = get_task("go2_flat")
    settings = {**task.learner, **task.learner_cpu, "save_interval": 10**6}
    cfg = apply_overrides(PPOLearnerCfg(), settings | OBJECTIVES[objective])
    env = make_env(task, num_envs=task.num_envs[0], device="cpu", seed=seed, num_threads=1)
    watch, problem = Watch(seed, iterations), ""
    with tempfile.TemporaryDirectory() as scratch:
        options: dict[str, Any] = {"run_dir": Path(scratch), "seed": seed, "observer": watch}
        if lag:
            cfg = replace(cfg, overlap=True, staleness=replace(cfg.staleness, max=lag))
        runner = Trainer(env, cfg, **options)
        if isinstance(rollouts := runner.rollouts, OverlappedRollouts):
            rollouts.ahead = LaggedAhead(runner.collector, runner.algorithm.actor, lag)
        watch.runner = runner
        try:
            runner.train()
        except (FloatingPointError, UserError) as error:
            problem = str(error)
    env.close()
    return {"problem": problem, "points": watch.points, "rows": watch.rows}


def read_kind(text: str) -> tuple[int, str]:
    """Return lag and objective of "lag" or "lag:objective"."""
    lag, _, objective = text.partition(":")
    if (objective or "decoupled") not in OBJECTIVES or not lag.isdigit():
        raise UserError(f"kinds={text}: must be <lag> or <lag>:<{'|'.join(OBJECTIVES)}>")
    return int(lag), objective or "decoupled"


def name_of(lag: int, objective: str) -> str:
    """Return the name of a kind of training."""
    return f"lag {lag}, {objective}" if lag else "synchronous"


def summary(found: dict[str, dict[str, Any]], options: dict[str, str]) -> dict[str, Any]:
    """Return the result: iterations to each error by kind and seed, their ratios to synchronous ones, the curves."""
    iterations: dict[str, dict[str, dict[str, float | None]]] = {}
    for kind, curves in found.items():
        for seed, one in curves.items():
            errors = smooth([row[METRIC] for row in one["rows"]])
            iterations.setdefault(EVALUATED, {}).setdefault(kind, {})[seed] = goal_after(one["points"])
            for goal in MARKS:
                when = next((k + 1 for k, error in enumerate(errors) if k + 1 >= WINDOW and error <= goal), None)
                iterations.setdefault(f"explored {goal:.2f} m/s", {}).setdefault(kind, {})[seed] = when
    ratios = {}
    for goal, kinds in iterations.items():
        base = kinds.get("synchronous", {})
        for kind, reached in kinds.items():
            both = [(when, base.get(seed)) for seed, when in reached.items()]
            pairs = [when / other for when, other in both if when and other]
            ratios.setdefault(goal, {})[kind] = [round(ratio, 3) for ratio in pairs]
    last = {
        kind: {seed: round(smooth([row[METRIC] for row in one["rows"]])[-1], 4) for seed, one in curves.items()}
        for kind, curves in found.items()
    }
    notes = {"window": WINDOW, "options": options, "iterations": iterations, "over_synchronous": ratios, "last": last}
    return make_result("staleness", {}, unit="iterations", notes=notes) | {"curves": found}


def goal_after(points: list[dict[str, float | None]]) -> float | None:
    """Return the iterations after which the error of evaluated policies was first at most GOAL, interpolated."""
    before: tuple[float, float] | None = None
    for point in points:
        iteration, error = point["iteration"], point["lin_vel_error"]
        assert iteration is not None
        if error is not None and error <= GOAL:
            if before is None:
                return iteration
            share = (before[1] - GOAL) / (before[1] - error)
            return round(before[0] + share * (iteration - before[0]), 1)
        before = None if error is None else (iteration, error)
    return None


def smooth(values: list[float]) -> list[float]:
    """Return the means over the last values at each place."""
    return [statistics.fmean(values[max(0, k + 1 - WINDOW) : k + 1]) for k in range(len(values))]


def plot(found: dict[str, dict[str, Any]]) -> str:
    """Return the curves of the explored error over iterations as an SVG, a line a training."""
    most = max(len(one["rows"]) for curves in found.values() for one in curves.values())
    plot = Plot((720, 380), x=(0.0, most), y=(0.0, 1.1))
    title = "go2_flat: linear error of explored steps [m/s]"
    plot.axes(range(0, most + 1, 50), (0.0, 0.25, 0.5, 0.75, 1.0), "iterations", title)
    for k, (name, curves) in enumerate(sorted(found.items())):
        color, dash = COLORS[k % len(COLORS)], "5 3" if name.endswith("none") else ""
        for one in curves.values():
            errors = smooth([row[METRIC] for row in one["rows"]])
            steps = range(1, len(errors) + 1)
            plot.line(steps, [min(error, 1.1) for error in errors], color, width=1.5, dash=dash)
        plot.text(550, 40 + 15 * k, name, font_size=12, fill=color)
    return svg([plot])


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the file after each training."""
    options = read_words(arguments, KNOWN, whole=("iterations", "jobs"))
    seeds = [int(text) for text in options["seeds"].split(",")]
    kinds = [read_kind(text) for text in options["kinds"].split(",")]
    out = Path(options["out"]) if options["out"] else None
    found: dict[str, dict[str, Any]] = {}
    if out is not None and out.is_file():
        found = json.loads(out.read_text()).get("curves", {})
    work = [
        (lag, objective, seed, int(options["iterations"]))
        for lag, objective in kinds
        for seed in seeds
        if str(seed) not in found.get(name_of(lag, objective), {})
    ]
    with multiprocessing.get_context("spawn").Pool(int(options["jobs"])) as pool:
        for one, result in zip(work, pool.imap(train, work), strict=True):
            kind = name_of(one[0], one[1])
            found.setdefault(kind, {})[str(one[2])] = result
            print(f"{kind}, seed {one[2]}: {GOAL} m/s after {goal_after(result['points'])} iterations", flush=True)
            if out is not None:
                write_atomic(out, json.dumps(summary(found, options), indent=1) + "\n")
                write_atomic(out.with_suffix(".svg"), plot(found))
    print(json.dumps(summary(found, options)["notes"], indent=1))
    return 0


if __name__ == "__main__":
    run_script(main)
