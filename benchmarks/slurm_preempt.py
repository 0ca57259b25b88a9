"""Time from a preemption under Slurm to the first new iteration of the training, on a Slurm of this machine.

    python benchmarks/slurm_preempt.py [task=cartpole] [nodes=1] [rounds=3] [out=benchmarks/slurm_preempt.json]
        [key=value ...]

`robot-rl train launcher=slurm` submits a run to the partition `low` of the cluster that the tests bring up (a
controller and two nodes on loopback, tests/cluster/slurm.py). In each round an empty job of the partition `high` takes
both nodes. The run gets its notice, saves, is requeued, waits for `cred_expire`, starts and trains. Times are from the
submission of the preempting job; the load of the machine is kept with the figures.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import facts, middle, write
from words import read_words, run_script

from robot_rl.errors import UserError
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir
from robot_rl.runs.run_index import last_row
from tests.cluster.slurm import SETTINGS, SlurmCluster, missing

PATIENCE_S = 600.0
ENDLESS = 10**6
PARTS = ("to the checkpoint", "to the preempting job's end", "to the first new iteration")
KNOWN = {"task": "cartpole", "nodes": "1", "rounds": "3", "out": "benchmarks/slurm_preempt.json"}


def begin(cluster: SlurmCluster, given: dict[str, str], nodes: str, root: Path) -> RunDir:
    """Submit the training."""
    words = {**given, "root": root, "run_id": "preempted", "max_iterations": ENDLESS, "save_interval": ENDLESS}
    launcher = ("launcher=slurm", "launcher.partition=low", f"launcher.nodes={nodes}")
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *launcher]
    done = subprocess.run(
        [*command, *(f"{key}={value}" for key, value in words.items())],
        env={**cluster.env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(done.stderr.strip())
    return RunDir.find("preempted", root)


def preempt(cluster: SlurmCluster, run: RunDir) -> dict[str, float]:
    """Preempt the training when it has made two more iterations, and return what took how long [s]."""

    def done() -> int:
        return last_row(run.metrics_file).get("iteration", 0)

    before = done()
    cluster.until(lambda: done() >= before + 2, "two iterations", PATIENCE_S)
    start = time.time()
    urgent = cluster.submit("exit", "--partition=high", "--nodes=2", "--exclusive")
    cluster.wait(urgent, "COMPLETED", timeout_s=PATIENCE_S)
    taken = time.time()
    saved = int(latest_checkpoint(run.path).name)
    durable = run.checkpoints.stat().st_mtime
    assert durable > start
    assert saved == done()
    cluster.until(lambda: done() > saved, "the next iteration", PATIENCE_S)
    return dict(zip(PARTS, (durable - start, taken - start, time.time() - start), strict=True))


def main(arguments: list[str]) -> None:
    """Measure, print and write it down."""
    given = read_words(arguments, KNOWN, whole=("rounds", "nodes"), free=True)
    nodes, rounds, out = given.pop("nodes"), int(given.pop("rounds")), given.pop("out")
    if missing():
        raise UserError(f"there is no {', '.join(missing())} on this machine (Debian: slurm-wlm munge)")
    with tempfile.TemporaryDirectory(prefix="slurm-preempt-") as folder, SlurmCluster() as cluster:
        run = begin(cluster, given, nodes, Path(folder) / "runs")
        taken = [preempt(cluster, run) for _ in range(rounds)]
        slurm = cluster.command("sbatch", "--version").strip()
    result = facts("preempted by Slurm and going on") | {
        "slurm": slurm,
        "slurm.conf": {name: SETTINGS[name] for name in ("AuthInfo", "SchedulerParameters")},
        "settings": {**given, "nodes": int(nodes)},
        "rounds": rounds,
        "load": os.getloadavg()[0],
        "seconds": {part: middle([one[part] for one in taken]) for part in PARTS},
    }
    for part, values in result["seconds"].items():
        print(f"{part:<30}{values['median']:8.2f} s  ({values['least']:.2f} to {values['most']:.2f})")
    write(out, result)


if __name__ == "__main__":
    run_script(main)
