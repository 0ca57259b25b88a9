"""Cost of checkpoints in a training: how long the learner waits, and how much is written.

    python benchmarks/checkpoint_cost.py worlds=4096 out=benchmarks/checkpoint_cost.json

Trains with a checkpoint after every iteration, and reads from the rows of metrics how long the learner waited for
one ("perf/save_s") and how long an iteration takes without that. Then checkpoints are written while nothing else runs:
the processor's time for one is the most that the thread which writes during a training can take from it. At the
default interval there is one in a hundred iterations, which the shares are for. Resuming is timed as well.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import facts, timed, write
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.checkpoints.checkpoint import good_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.settings import apply_overrides

KNOWN = {"task": "go2_flat", "worlds": "4096", "iterations": "6", "device": "cpu", "out": ""}
ITERATIONS_LEFT_OUT = 2
"""The first iterations compile and touch their memory for the first time."""


def median_times(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the medians of seconds passed and of the processor's seconds of a call."""
    walls, cpus = zip(*(timed(work) for _ in range(times)), strict=True)
    return statistics.median(walls), statistics.median(cpus)


def measure(name: str, worlds: int, iterations: int, device: str, run_dir: Path) -> dict[str, Any]:
    """Train a task and return what its checkpoints cost, by name."""
    task = get_task(name)
    preset = {**task.learner, **(task.learner_cpu if device == "cpu" else {})}
    cfg = apply_overrides(PPOLearnerCfg(), {**preset, "save_interval": 1})
    env = make_env(task, num_envs=worlds, device=device, seed=1)
    rows: list[dict[str, float]] = []
    runner = make_trainer(env, cfg, run_dir=run_dir, seed=1, observer=rows.append)
    runner.train(iterations + ITERATIONS_LEFT_OUT)
    late = rows[ITERATIONS_LEFT_OUT - 1 :]
    still = [row["perf/save_s"] for row in late[1:]]
    took = [b["time_s"] - a["time_s"] - b["perf/save_s"] for a, b in itertools.pairwise(late)]
    durable_s, cpu_s = median_times(runner.save, 10)
    find_s, _ = median_times(lambda: good_checkpoint(run_dir), 5)
    newest = good_checkpoint(run_dir)
    load_s, _ = median_times(lambda: runner.load(newest), 5)
    size = {path.name: path.stat().st_size for path in sorted(newest.iterdir())}
    env.close()
    interval, iteration_s, still_s = PPOLearnerCfg().save_interval, statistics.median(took), statistics.median(still)
    return {
        "task": name,
        "device": device,
        "worlds": worlds,
        "iterations": len(took),
        "iteration_s": iteration_s,
        "stands_still_s": still_s,
        "stands_still_most_s": max(still),
        "processor_s": cpu_s,
        "save_interval": interval,
        "share_stood_still": still_s / (interval * iteration_s),
        "share_at_most": (still_s + cpu_s) / (interval * iteration_s),
        "save_to_durable_s": durable_s,
        "find_good_s": find_s,
        "load_s": load_s,
        "bytes": size,
    }


def main(arguments: list[str]) -> None:
    """Measure, print, write."""
    options = read_words(arguments, KNOWN, whole=("worlds", "iterations"))
    worlds, iterations = int(options["worlds"]), int(options["iterations"])
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(options["task"], worlds, iterations, options["device"], Path(scratch) / "run")
    result = facts("checkpoints") | result | {"load_average": os.getloadavg()[0]}
    print(json.dumps(result, indent=1))
    write(options["out"], result)


if __name__ == "__main__":
    run_script(main)
