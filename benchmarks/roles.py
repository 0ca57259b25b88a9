"""What simulators apart from the learner cost, and how soon lost ones step again, on one machine by Ray.

    python benchmarks/roles.py out=benchmarks/roles.json
    python benchmarks/roles.py parts=cost,kill repeats=3 out=benchmarks/roles.json

"cost": go2_flat with networks of 512-256-128, one simulator without staleness, against the same training in one
process, in turn: the time of an iteration, and that from the publication of weights to the first step with them.
"kill": cartpole with 4 simulators and staleness.max=1: a simulator is killed (SIGKILL), until as many as before step
again; the learner is, until the first new row. Iterations that are missing or there twice are counted.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from harness import in_turn, make_result, middle, write
from words import read_words, run_script

KNOWN = {"parts": "cost,kill", "repeats": "3", "iterations": "16", "num_envs": "512", "out": ""}
WARM_UP = 4
NETWORKS = ("actor.hidden=[512,256,128]", "critic.hidden=[512,256,128]")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the whole rows of a run."""
    try:
        lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    except OSError:
        return []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start robot-rl train."""
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *words, f"root={folder}"]
    environ = {**os.environ, "RAY_TMPDIR": str(folder)}
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)


def iteration_s(rows: list[dict[str, Any]]) -> float:
    """Return the median time of an iteration after the first ones [s]."""
    times = [after["time_s"] - before["time_s"] for before, after in itertools.pairwise(rows)]
    return statistics.median(times[WARM_UP:])


def cost(options: dict[str, str], folder: Path) -> dict[str, Any]:
    """Time iterations in one process and through Ray, in turn."""
    delays: list[float] = []
    repeats = itertools.count()
    common = ("task=go2_flat", f"num_envs={options['num_envs']}", f"max_iterations={options['iterations']}")
    common += (*NETWORKS, "num_threads=1", "learner_threads=1")
    on_ray = ("launcher=ray", "launcher.address=local", "roles.sim.count=1")

    def time_one(name: str, *more: str) -> float:
        assert start(folder, *common, *more, f"run_id={name}").wait() == 0
        rows = rows_of(folder / "go2_flat" / name)
        delays.extend(row["perf/publish_to_step_s"] for row in rows[WARM_UP:] if "perf/publish_to_step_s" in row)
        print(name, round(iteration_s(rows), 4), flush=True)
        return iteration_s(rows)

    def measure() -> tuple[float, float]:
        repeat = next(repeats)
        return time_one(f"ray-{repeat}", *on_ray), time_one(f"here-{repeat}")

    found = in_turn(("ray", "here"), measure, int(options["repeats"]), warm_up=0)
    ratios = [ray / here for ray, here in zip(found["ray"], found["here"], strict=True)]
    return {
        "iteration_s": {kind: middle(values) for kind, values in found.items()},
        "overhead": middle([ratio - 1.0 for ratio in ratios]),
        "publish_to_step_s": middle(delays),
    }


def processes(word: str, parent: int) -> list[psutil.Process]:
    """Return the processes of a Ray, below a process or of its raylet, with a word in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if word in " ".join(process.info["cmdline"] or []) and process.pid != parent:
            found.append(process)
    return found


def wait_for(condition: Any, seconds: float = 120.0) -> float:
    """Wait, and return when it was so."""
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            raise TimeoutError("a process did not come back")
        time.sleep(0.02)
    return time.time()


def kill(options: dict[str, str], folder: Path) -> dict[str, Any]:
    """Kill a simulator, then the learner."""
    simulator, learner, wrong = [], [], 0
    for repeat in range(int(options["repeats"])):
        name = f"kill-{repeat}"
        run, total = folder / "cartpole" / name, 900
        small = ("task=cartpole", "num_envs=256", "num_threads=1", "learner_threads=1", "save_interval=5")
        roles = ("launcher=ray", "launcher.address=local", "roles.sim.count=4", "staleness.max=1")
        process = start(folder, *small, *roles, f"run_id={name}", f"max_iterations={total}")
        wait_for(lambda run=run: len(rows_of(run)) >= 20)
        begin = time.time()
        os.kill(processes("SimulatorProcess", process.pid)[0].pid, signal.SIGKILL)
        wait_for(lambda run=run: rows_of(run)[-1]["simulators/lost"] == 1.0)
        simulator.append(wait_for(lambda run=run: rows_of(run)[-1]["simulators"] == 4.0) - begin)
        begin = time.time()
        os.kill(processes("RayTrainWorker", process.pid)[0].pid, signal.SIGKILL)
        time.sleep(0.3)
        counts = [len(rows_of(run))]

        def has_grown(run: Path = run, counts: list[int] = counts) -> bool:
            """Rows after the checkpoint are cut off first."""
            counts.append(len(rows_of(run)))
            return counts[-1] > counts[-2]

        learner.append(wait_for(has_grown) - begin)
        time.sleep(2.0)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        numbers = [row["iteration"] for row in rows_of(run)]
        wrong += numbers != list(range(1, len(numbers) + 1))
        print(name, len(numbers), round(simulator[-1], 2), round(learner[-1], 2), flush=True)
    return {"simulator_s": middle(simulator), "learner_s": middle(learner), "runs_with_wrong_rows": wrong}


def main(arguments: list[str]) -> None:
    """Measure the parts, and write the file."""
    options = read_words(arguments, KNOWN, whole=("repeats", "iterations", "num_envs"))
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="ray") as scratch:
        for part in options["parts"].split(","):
            result[part] = {"cost": cost, "kill": kill}[part](options, Path(scratch))
    result = make_result("roles", {}, unit="s", notes=options) | result
    print(json.dumps({part: result[part] for part in options["parts"].split(",")}, indent=1))
    write(options["out"], result)


if __name__ == "__main__":
    run_script(main)
