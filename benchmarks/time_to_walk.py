"""Time until go2_flat tracks its command, by learner and seed, in turn on one machine.

    python benchmarks/time_to_walk.py out=time_to_walk.json seeds=1,2,3
    python benchmarks/time_to_walk.py learners=ppo,rsl_rl,rsl_rl+symmetry=none seeds=1,2,3,4,5 every=10 until=first \
        out=benchmarks/time_to_walk_rsl_rl.json

A policy counts as walking when 100 fresh worlds over 10 s, with observation noise, randomization and pushes on,
have a mean linear error of at most 0.25 m/s and at most 2 % failures. The time is that of a seed's first such policy,
of those after every so many iterations; a later one may miss again, which ``until=end`` looks for. It is wall time
from the first step of the training on, without the evaluations, for which the training waits.

``rsl_rl`` is rsl_rl's OnPolicyRunner on the same environment, networks and hyperparameters, with its mirrored samples
in place of our symmetric network; ``+symmetry=none`` leaves these out. ``flashsac`` takes the task's settings for
FlashSAC. Every finished training is kept in the file at once; started again, with more seeds or learners if wanted,
the script goes on with what is missing.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.bench.result import make_result
from robot_rl.config import apply_overrides
from robot_rl.errors import UserError
from robot_rl.evaluate import evaluate_run
from robot_rl.experiment.grammar import parse_value
from robot_rl.files import write_atomic
from robot_rl.learn.algorithms.flashsac.config import FlashSACLearnerCfg
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.policy import make_policy
from robot_rl.learn.runner import make_runner

LEARNERS = {"ppo": PPOLearnerCfg, "rsl_rl": PPOLearnerCfg, "flashsac": FlashSACLearnerCfg}
ERROR_M_S, FAILURES = 0.25, 0.02
KNOWN = {"learners": "ppo", "seeds": "1,2,3", "every": "20", "until": "end", "out": ""}


@dataclass(slots=True)
class Watch:
    """Evaluates the policy every so many iterations, on a clock that is stopped meanwhile.

    Attributes:
        every: iterations between evaluations.
        only_first: end the training with the first policy that walks.
        points: what was found, in order.
    """

    name: str
    seed: int
    every: int
    only_first: bool
    device: str = "cpu"
    episodes: int = 100
    runner: Any = None
    points: list[dict[str, Any]] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)

    def __call__(self, row: dict[str, float]) -> bool:
        """Process an iteration; return true where the training may end."""
        if int(row["iteration"]) % self.every:
            return False
        entered = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            result = evaluate_run(
                lambda: make_env(
                    get_task("go2_flat"), num_envs=self.episodes, device=self.device, seed=10_000 + self.seed
                ),
                policy=make_policy(self.runner.run_dir, self.runner.save(), self.device),
                bundle=None,
            )["torch"]
        point = {"iteration": int(row["iteration"]), "time_s": entered - self.begun, "env_steps": int(row["env_steps"])}
        for key in (
            "lin_vel_error",
            "yaw_vel_error",
            "failure_rate",
        ):  # None: all failed in the first second.
            point[key] = None if result[key] is None else result[key]["mean"]
        self.points.append(point)
        print(
            f"{self.name} seed {self.seed}", {k: v if v is None else round(v, 3) for k, v in point.items()}, flush=True
        )
        self.begun += time.perf_counter() - entered
        return self.only_first and walks(point)


def read_changes(changes: list[str]) -> dict[str, Any]:
    """Return settings by name, of words such as ``symmetry=none``."""
    pairs = (change.split("=", 1) for change in changes)
    return {key: parse_value(text, key) for key, text in pairs}


def train(
    name: str, seed: int, every: int, *, only_first: bool, device: str = "cpu", num_envs: int = 0, episodes: int = 100
) -> list[dict[str, Any]]:
    """Train once, ``<learner>[+setting=value]``, and return the points of its curve.

    On a GPU the task's settings for GPUs apply; ``num_envs`` of 0 are the task's own, ``episodes`` are evaluated.
    """
    task, on_cpu = get_task("go2_flat"), device == "cpu"
    learner, *changes = name.split("+")
    ours = {**task.learner, **(task.learner_cpu if on_cpu else {})}
    ours = task.presets["flashsac"] if learner == "flashsac" else ours
    settings = {**ours, "save_interval": 10**6, "name": learner} | read_changes(changes)
    env = make_env(task, num_envs=num_envs or task.num_envs[0 if on_cpu else 1], device=device, seed=seed)
    watch = Watch(name, seed, every, only_first, device, episodes)
    with tempfile.TemporaryDirectory() as scratch:
        cfg = apply_overrides(LEARNERS[learner](), settings)
        runner = watch.runner = make_runner(env, cfg, run_dir=Path(scratch), seed=seed, observer=watch)
        watch.begun = time.perf_counter()
        runner.learn()
    env.close()
    return watch.points


def walks(point: dict[str, Any]) -> bool:
    """Whether a policy is within both bounds."""
    failures = point["failure_rate"] if "failure_rate" in point else point["fall_rate"]  # its name before 0.2.0
    if point["lin_vel_error"] is None or failures is None:
        return False
    return point["lin_vel_error"] <= ERROR_M_S and failures <= FAILURES


def kept_from(points: list[dict[str, Any]]) -> float | None:
    """Training time [s] after which every policy walks; None where the last one does not."""
    start = None
    for point in reversed(points):
        if not walks(point):
            break
        start = point["time_s"]
    return start


def summary(curves: dict[str, dict[str, list[dict[str, Any]]]], options: dict[str, str]) -> dict[str, Any]:
    """Return the result over the seeds that every learner has finished: learner -> seed -> curve."""
    seeds = [seed for seed in next(iter(curves.values())) if all(seed in curve for curve in curves.values())]
    # A seed that never walks counts as infinitely slow: left out, it would make the median look better.
    reached = {
        name: {seed: next((p["time_s"] for p in points if walks(p)), math.inf) for seed, points in curve.items()}
        for name, curve in curves.items()
    }
    times = {f"go2_flat, learner={name}": [found[seed] for seed in seeds] for name, found in reached.items()}
    notes: dict[str, Any] = {"threshold": {"lin_vel_error": ERROR_M_S, "failure_rate": FAILURES}, "options": options}
    notes["reached_s"] = {
        name: {seed: None if found == math.inf else found for seed, found in row.items()}
        for name, row in reached.items()
    }
    if options["until"] == "end":
        per_seed = {name: curve.items() for name, curve in curves.items()}
        notes["kept_from_s"] = {name: {seed: kept_from(p) for seed, p in curve} for name, curve in per_seed.items()}
        notes["final_lin_vel_error"] = {
            name: {seed: p[-1]["lin_vel_error"] for seed, p in curve} for name, curve in per_seed.items()
        }
    if not seeds:
        return {"notes": notes | {"curves": curves}}
    medians = [statistics.median(row) for row in times.values()]
    notes["ratio_of_medians"] = {name: medians[0] / other for name, other in zip(curves, medians, strict=True)}
    notes["curves"] = curves
    return make_result("time to walk", times, unit="s of training", notes=notes)


def read_options(arguments: list[str]) -> dict[str, str]:
    """Return the options by name.

    Raises:
        UserError: an unknown one, or a value that cannot be.
    """
    options = read_words(arguments, KNOWN, whole=("every",))
    if not all(seed.isdigit() for seed in options["seeds"].split(",")):
        raise UserError(f"seeds={options['seeds']}: must be whole numbers, such as 1,2,3")
    if options["until"] not in ("first", "end"):
        raise UserError(f"until={options['until']}: must be first or end")
    for name in options["learners"].split(","):
        learner, *changes = name.split("+")
        if learner not in LEARNERS or not all("=" in change for change in changes):
            known = ", ".join(LEARNERS)
            raise UserError(f"learners={name}: must be of {known}, with settings behind it, such as +symmetry=none")
        apply_overrides(LEARNERS[learner](), read_changes(changes))
    return options


def read_curves(path: Path, names: list[str], options: dict[str, str]) -> dict[str, Any]:
    """Return the curves of a file that was written with the same options.

    Raises:
        UserError: it was not, or it is damaged.
    """
    try:
        before = json.loads(path.read_text())["notes"]
        curves = {name: curve for name, curve in before["curves"].items() if name in names}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"out={path}: damaged ({error}); name another file") from None
    if before.get("options") != options:
        raise UserError(f"out={path}: was written with other options, {before.get('options')}; name another file")
    return curves


def main(arguments: list[str]) -> None:
    """Train in turn, write the JSON after every training."""
    options = read_options(arguments)
    names, seeds, file = options.pop("learners").split(","), options.pop("seeds").split(","), options.pop("out")
    out = Path(file) if file else None
    curves: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in names}
    if out is not None and out.is_file():
        curves |= read_curves(out, names, options)
    result = summary(curves, options)
    for number, seed in enumerate(seeds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            if seed in curves[name]:
                continue
            curves[name][seed] = train(name, int(seed), int(options["every"]), only_first=options["until"] == "first")
            result = summary(curves, options)
            if out is not None:
                write_atomic(out, json.dumps(result, indent=1) + "\n")
    for key in ("reached_s", "ratio_of_medians", "kept_from_s", "final_lin_vel_error"):
        print(key, result["notes"].get(key))


if __name__ == "__main__":
    run_script(main)
