"""How many steps go2_flat needs where the policy that acts is so many versions behind, corrected and not.

    python benchmarks/staleness.py out=benchmarks/staleness.json
    python benchmarks/staleness.py lags=0,1,4,16 seeds=1,2,3 iterations=200 jobs=2 out=benchmarks/staleness.json

A lag of 0 is synchronous training. Of another lag k each rollout is collected by the policy of k updates before (fewer
in the first k iterations), which depends on nothing else: the same seed gives the same bits. "decoupled" is the shipped
correction, "none" the plain ratio to the policy that acted. A training has reached the goal with the first iteration
for which the mean linear error of its own, explored steps over the last 10 iterations is at most 0.25 m/s, and ends
there. Each finished training is kept in the file at once; started again the script goes on with what is missing.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.bench.result import make_result
from robot_rl.config import apply_overrides
from robot_rl.errors import UserError
from robot_rl.files import write_atomic
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.overlap import Ahead, OverlappedRunner
from robot_rl.learn.runner import Runner
from robot_rl.learn.simulators.weights import pack, unpack

GOAL, WINDOW = 0.25, 10
MARKS = (0.4, 0.35, 0.3)
"""Further errors [m/s] for which the iterations are counted."""
METRIC = "tracking/lin_vel_error"
KEPT = (METRIC, "staleness/mean", "staleness/effective", "staleness/divergence", "staleness/gated", "loss/clip_share")
KNOWN = {"lags": "0,1,4,16", "seeds": "1,2,3", "iterations": "200", "jobs": "2", "out": ""}


class LaggedAhead(Ahead):
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


def train(work: tuple[int, str, int, int]) -> dict[str, Any]:
    """Train once: (lag, objective, seed, iterations); return the rows of the curve and when the goal was reached."""
    lag, objective, seed, iterations = work
    torch.set_num_threads(1)
    task = get_task("go2_flat")
    settings = {**task.learner, **task.learner_cpu, "max_iterations": iterations, "ppo.correction.objective": objective}
    cfg = apply_overrides(PPOLearnerCfg(), settings)
    env = make_env(task, num_envs=task.num_envs[0], device="cpu", seed=seed, num_threads=1)
    recent: deque[float] = deque(maxlen=WINDOW)
    rows, reached = [], math.inf

    def observe(row: dict[str, float]) -> bool:
        nonlocal reached
        recent.append(row[METRIC])
        rows.append({"env_steps": row["env_steps"]} | {name: round(row[name], 5) for name in KEPT if name in row})
        if len(recent) == WINDOW and statistics.fmean(recent) <= GOAL:
            reached = row["env_steps"]
        return reached < math.inf

    if lag:
        cfg = replace(cfg, overlap=True, staleness=replace(cfg.staleness, max=lag))
        runner: Runner = OverlappedRunner(env, cfg, seed=seed, observer=observe)
        runner._ahead = LaggedAhead(runner.collector, runner.algorithm.actor, lag)  # type: ignore[attr-defined]
    else:
        runner = Runner(env, cfg, seed=seed, observer=observe)
    try:
        runner.learn()
        problem = ""
    except (FloatingPointError, UserError) as error:
        problem = str(error)
    env.close()
    return {"reached": None if reached == math.inf else reached, "problem": problem, "rows": rows}


def name_of(lag: int, objective: str) -> str:
    """Return the name of a kind of training."""
    return f"lag {lag}, {objective}" if lag else "synchronous"


def summary(found: dict[str, dict[str, Any]], options: dict[str, str]) -> dict[str, Any]:
    """Return the result: iterations to each error by kind and seed, their ratios to synchronous ones, the curves."""
    iterations: dict[str, dict[str, dict[str, int | None]]] = {}
    for kind, curves in found.items():
        for seed, one in curves.items():
            errors = smooth([row[METRIC] for row in one["rows"]])
            for goal in (*MARKS, GOAL):
                when = next((k + 1 for k, error in enumerate(errors) if k + 1 >= WINDOW and error <= goal), None)
                iterations.setdefault(f"{goal:.2f} m/s", {}).setdefault(kind, {})[seed] = when
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


def smooth(values: list[float]) -> list[float]:
    """Return the means over the last values at each place."""
    return [statistics.fmean(values[max(0, k + 1 - WINDOW) : k + 1]) for k in range(len(values))]


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the file after each training."""
    options = read_words(arguments, KNOWN, whole=("iterations", "jobs"))
    lags = [int(text) for text in options["lags"].split(",")]
    seeds = [int(text) for text in options["seeds"].split(",")]
    kinds = [(lag, objective) for lag in lags for objective in (("decoupled", "none") if lag else ("decoupled",))]
    out = Path(options["out"]) if options["out"] else None
    found: dict[str, dict[str, Any]] = {}
    if out is not None and out.is_file():
        found = json.loads(out.read_text()).get("curves", {})
    work = [
        (lag, objective, seed, int(options["iterations"]))
        for seed in seeds
        for lag, objective in kinds
        if str(seed) not in found.get(name_of(lag, objective), {})
    ]
    with multiprocessing.get_context("spawn").Pool(int(options["jobs"])) as pool:
        for one, result in zip(work, pool.imap(train, work), strict=True):
            kind = name_of(one[0], one[1])
            found.setdefault(kind, {})[str(one[2])] = result
            last = result["rows"][-1][METRIC] if result["rows"] else None
            print(f"{kind}, seed {one[2]}: goal after {result['reached']} steps; last error {last}", flush=True)
            if out is not None:
                write_atomic(out, json.dumps(summary(found, options), indent=1) + "\n")
    print(json.dumps(summary(found, options)["notes"], indent=1))
    return 0


if __name__ == "__main__":
    run_script(main)
