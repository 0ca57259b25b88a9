"""Time until go2_flat tracks its command: trains with several seeds and evaluates every checkpoint afterwards.

    python benchmarks/time_to_walk.py out=benchmarks/time_to_walk.json seeds=1,2,3

A checkpoint counts as walking when 100 fresh worlds over 10 s, with observation noise, randomization and pushes on,
have a mean linear error of at most 0.25 m/s and at most 2 % falls. The time is that of a seed's first such checkpoint
(one every 20 iterations, about 13 s); a later one may miss again. It is the runner's own clock: wall time from the
first step on, without the evaluations, which run after the training.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task

from robot_rl.bench.result import make_result
from robot_rl.config import LearnerCfg, apply_overrides
from robot_rl.evaluate import evaluate_run
from robot_rl.learn.build import make_policy
from robot_rl.learn.checkpoint import load_checkpoint
from robot_rl.learn.make import make_runner

ERROR_M_S, FALLS = 0.25, 0.02


def train(seed: int, every: int, directory: Path, learner: str) -> None:
    """Train once with a checkpoint every so many iterations."""
    task = get_task("go2_flat")
    settings = {**task.learner, **task.learner_cpu, "save_interval": every, "keep_checkpoints": 0, "name": learner}
    cfg = apply_overrides(LearnerCfg(), settings)
    env = make_env(task, num_envs=task.num_envs[0], seed=seed)
    runner = make_runner(env, cfg, run_dir=directory, seed=seed)
    runner.learn()
    env.close()


def curve(directory: Path, seed: int) -> list[dict[str, Any]]:
    """Evaluate every checkpoint on fresh worlds."""
    points = []
    for checkpoint in sorted((directory / "checkpoints").iterdir()):
        _, meta = load_checkpoint(checkpoint)
        policy = make_policy(directory, checkpoint)
        result = evaluate_run(
            lambda: make_env(get_task("go2_flat"), num_envs=100, seed=10_000 + seed), policy=policy, bundle=None
        )["torch"]
        point = {"iteration": meta["iteration"], "time_s": meta["time_s"], "env_steps": meta["env_steps"]}
        point |= {key: result[key]["mean"] for key in ("lin_vel_error", "yaw_vel_error", "fall_rate")}
        points.append(point)
        print(f"seed {seed}", {k: round(v, 3) for k, v in point.items()}, flush=True)
    return points


def walks(point: dict[str, Any]) -> bool:
    """Whether a checkpoint is within both bounds."""
    return point["lin_vel_error"] <= ERROR_M_S and point["fall_rate"] <= FALLS


def kept_from(points: list[dict[str, Any]]) -> float | None:
    """Training time [s] from which every later checkpoint walks, too; None where the last one does not."""
    start = None
    for point in reversed(points):
        if not walks(point):
            break
        start = point["time_s"]
    return start


def main(arguments: list[str]) -> None:
    """Train, evaluate, write the JSON."""
    options = dict(argument.split("=", 1) for argument in arguments)
    seeds = [int(seed) for seed in options.get("seeds", "1,2,3").split(",")]
    every = int(options.get("every", "20"))
    learner = options.get("learner", "ppo")
    curves: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            train(seed, every, Path(scratch) / str(seed), learner)
            curves[seed] = curve(Path(scratch) / str(seed), seed)
    reached = {seed: next((p["time_s"] for p in points if walks(p)), None) for seed, points in curves.items()}
    kept = {seed: kept_from(points) for seed, points in curves.items()}
    # A seed that never walks counts as infinitely slow: left out, it would make the median look better.
    times = [math.inf if time is None else time for time in reached.values()]
    notes = {"threshold": {"lin_vel_error": ERROR_M_S, "fall_rate": FALLS}, "reached_s": reached}
    notes |= {"kept_from_s": kept, "curves": curves}
    notes["final_lin_vel_error"] = {seed: points[-1]["lin_vel_error"] for seed, points in curves.items()}
    who = f"go2_flat, learner={learner}"
    result = make_result("time to walk", {who: times}, unit="s of training", notes=notes)
    print("reached [s]:", reached, "median", statistics.median(times))
    print("kept from [s]:", kept)
    print("final error [m/s]:", notes["final_lin_vel_error"])
    if "out" in options:
        Path(options["out"]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
