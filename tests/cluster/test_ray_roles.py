"""roles.sim.count= on a real Ray cluster: the bits of a local run, killed simulators and learners, what is refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from robot_rl.drill import differing_rows, differing_tensors, rows_of
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from tests.cluster.ray_cluster import Clusters, _words, rows, wait_until

SMALL = ("task=cartpole", "num_threads=1", "learner_threads=1", "save_interval=10")
WORLDS = "num_envs=64"
OURS = ("simulators", "simulators/lost", "staleness/dropped")


@pytest.fixture(scope="module")
def clusters():
    with Clusters(nodes=3) as clusters:
        yield clusters


@pytest.fixture
def cluster(clusters):
    return clusters.idle()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


def train(cluster, root, name, iterations, *words):
    words = words if any(word.startswith("num_envs=") for word in words) else (WORLDS, *words)
    more = (f"max_iterations={iterations}", f"run_id={name}", "launcher=ray", f"launcher.address={cluster.address}")
    return cluster.run(root, "train", *SMALL, *more, *words)


def finish(process, path, iterations):
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    found = rows(path)
    assert [row["iteration"] for row in found] == list(range(1, iterations + 1)), output
    assert [row["env_steps"] for row in found] == [found[0]["env_steps"] * k for k in range(1, iterations + 1)]
    return found


def simulators(cluster):
    """Return the processes that simulate."""
    found = []
    for process in cluster.processes():
        if "SimulatorProcess" in " ".join(_words(process)):
            found.append(process)
    return found


def done(path):
    found = rows(path)
    return found[-1]["iteration"] if found else 0


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("learner=flashsac", "flashsac.warm_up=2000", "flashsac.batch=64")])
def test_one_simulator_elsewhere_without_staleness_is_the_local_run(cluster, root, words):
    names = ("apart", "here") if not words else ("apart_flashsac", "here_flashsac")
    apart, here = (root / "runs/cartpole" / name for name in names)
    finish(train(cluster, root, apart.name, 12, "roles.sim.count=1", *words), apart, 12)
    more = (*words, WORLDS, "max_iterations=12", f"run_id={here.name}")
    finish(cluster.run(root, "train", *SMALL, *more), here, 12)
    differing = differing_tensors(latest_checkpoint(apart), latest_checkpoint(here))
    own = ("env.", "random.noise", "random.hold", "worlds.noise")  # What acts is the simulator's.
    assert [name for name in differing if not any(part in name for part in own)] == []
    plain = [{key: value for key, value in row.items() if key not in OURS} for row in rows_of(apart)]
    assert differing_rows(plain, rows_of(here), 0) == []


def test_a_killed_simulator_is_replaced_and_a_killed_learner_goes_on(cluster, root):
    path = root / "runs/cartpole/killed"
    process = train(cluster, root, "killed", 150, "roles.sim.count=2", "staleness.max=1")
    wait_until(lambda: done(path) >= 12, process=process)
    os.kill(simulators(cluster)[0].pid, signal.SIGKILL)
    wait_until(lambda: len(simulators(cluster)) == 2, 60, process=process)
    wait_until(lambda: rows(path)[-1]["simulators/lost"] == 1.0, process=process)
    before = done(path)
    wait_until(lambda: done(path) >= before + 5, process=process)
    os.kill(next(iter(cluster.workers().values())).pid, signal.SIGKILL)
    time.sleep(0.5)
    found = finish(process, path, 150)
    assert max(row["staleness/max"] for row in found) <= 1.0
    wait_until(lambda: simulators(cluster) == [], 30)


@pytest.mark.long
def test_simulators_join_and_leave_with_a_machine_and_a_signal_saves(cluster, root):
    path = root / "runs/cartpole/elastic"
    sims = ("roles.sim.count=3", "roles.sim.least=2", "roles.sim.cpus=1", "staleness.max=1", "num_envs=192")
    process = train(cluster, root, "elastic", 2000, *sims)
    present = lambda: rows(path)[-1]["simulators"] if done(path) else 0.0  # noqa: E731
    wait_until(lambda: done(path) >= 3, process=process)
    assert {row["simulators"] for row in rows(path)} == {2.0}
    late = cluster.add_node()
    wait_until(lambda: present() == 3.0, process=process)
    cluster.kill_node(late)
    wait_until(lambda: present() == 2.0, process=process)
    assert rows(path)[-1]["simulators/lost"] == 1.0
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 85, output
    assert int(latest_checkpoint(path).name) == done(path) < 2000
    wait_until(lambda: simulators(cluster) == [], 60)
    last = done(path) + 5
    found = finish(train(cluster, root, "elastic", last, *sims), path, last)  # With fewer machines than before.
    assert found[-1]["simulators"] == 2.0
    assert max(row["staleness/max"] for row in found) <= 1.0


@pytest.mark.long
def test_two_learners_with_a_simulator_each_are_two_processes_to_the_bit(cluster, root):
    path = root / "runs/cartpole"
    finish(train(cluster, root, "both", 8, "launcher.ranks=2", "roles.sim.count=2"), path / "both", 8)
    plain = ("max_iterations=8", "run_id=plain", "launcher=torchrun", "launcher.ranks=2")
    # A process of its own, since the launcher forks its processes from a server that those of the tests would share.
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", *SMALL, WORLDS, *plain]
    subprocess.run(command, cwd=root, env=cluster.environ, check=True, capture_output=True, timeout=240)
    differing = differing_tensors(latest_checkpoint(path / "both"), latest_checkpoint(path / "plain"))
    assert [name for name in differing if "env." not in name and "random.noise" not in name] == []
    mine, theirs = (
        [{key: v for key, v in row.items() if key not in OURS} for row in rows_of(path / name)]
        for name in ("both", "plain")
    )
    assert differing_rows(mine, theirs, 0) == []


@pytest.mark.long
def test_a_sweep_over_runs_with_simulators_of_several_engines(cluster, root):
    words = ("-m", "seed=1,2", "max_iterations=3", "num_envs=32", "root=sweep", "launcher=ray")
    more = ("roles.sim.count=2", "roles.sim.engines=[mujoco,mujoco_warp]", f"launcher.address={cluster.address}")
    process = cluster.run(root, "train", *SMALL, *words, *more)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    found = [rows(path) for path in sorted((root / "sweep/cartpole").iterdir())]
    assert [[row["iteration"] for row in run] for run in found] == [[1, 2, 3]] * 2
    assert all(f"simulators/{name}/episode/return" in found[0][-1] for name in ("mujoco", "mujoco_warp")), found[0][-1]
    wait_until(lambda: simulators(cluster) == [], 30)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("roles.sim.count=8", "roles.sim.cpus=4"), "8 simulators need 33 CPU, the cluster has 3"),
        (("roles.sim.count=3",), "num_envs=64: must be a multiple of the 3 simulators"),
        (("roles.sim.count=2", "staleness.max=-1"), "staleness.max=-1: must be in"),
        (("roles.sim.count=2", "staleness.max=1", "learner=rsl_rl"), "staleness.max: 1, but learner=rsl_rl cannot"),
        (
            ("roles.sim.count=2", "roles.sim.engines=[mujoco,mujok]"),
            "roles.sim.engines: engine='mujok': must be one of",
        ),
        (("roles.reference=apart",), "roles.reference=apart: the run has none; give reference.run=<run>"),
        (("roles.eval.every=5", "roles.eval.cpus=9"), "roles.eval.cpus=9: with it the run needs 10 CPU, the cluster"),
    ],
)
def test_roles_that_cannot_be_are_one_line(cluster, root, words, line):
    process = train(cluster, root, "refused", 3, *words)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    assert line in output
    assert "Traceback" not in output
    assert output.count("\n") <= 2  # One says which cluster it is.
    assert not (root / "runs/cartpole/refused").exists()


def evaluations(path):
    return [json.loads(line) for line in (path / "evaluations.jsonl").read_text().splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("role", ["reference", "teacher"])
def test_a_service_and_evaluations_in_processes_of_their_own_change_no_bit(cluster, root, role):
    first = root / "runs/cartpole/first"
    if not first.is_dir():
        finish(train(cluster, root, "first", 3), first, 3)
    words = {
        "reference": (f"reference.run={first}", "reference.weight=0.5"),
        "teacher": ("learner=distill", f"teacher.run={first}", "teacher.mix=0"),
    }[role]
    apart, here = (root / "runs/cartpole" / f"{role}_{place}" for place in ("apart", "learner"))
    more = (f"roles.{role}=apart", "roles.eval.every=5", "roles.eval.episodes=8")
    found = finish(train(cluster, root, apart.name, 20, *words, *more), apart, 20)
    finish(train(cluster, root, here.name, 20, *words), here, 20)
    assert differing_tensors(latest_checkpoint(apart), latest_checkpoint(here)) == []
    plain = [{k: v for k, v in row.items() if not k.startswith("eval/")} for row in rows_of(apart)]
    assert differing_rows(plain, rows_of(here), 0) == []
    results = evaluations(apart)
    assert results[-1]["iteration"] == 20  # The last one is waited for.
    assert results[-1]["env_steps"] == found[-1]["env_steps"]
    in_rows = {row["eval/iteration"]: row["eval/return"] for row in found if "eval/iteration" in row}
    assert in_rows == {line["iteration"]: line["metrics"]["return"] for line in results if line["iteration"] in in_rows}
    if role == "teacher":
        return
    words = ["eval", f"run={apart.name}", "episodes=8", "form=torch", f"out={root / 'eval.json'}"]
    process = cluster.run(root, *words)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    expected = json.loads((root / "eval.json").read_text())["torch"]
    assert results[-1]["metrics"]["return"] == pytest.approx(expected["return"]["mean"], rel=1e-6)


@pytest.mark.long
def test_a_killed_evaluator_is_replaced_and_holds_nobody_up(cluster, root):
    path = root / "runs/cartpole/unjudged"
    process = train(cluster, root, "unjudged", 250, "roles.eval.every=5", "roles.eval.episodes=200")

    def evaluators():
        return [found for found in cluster.processes() if "EvaluatorProcess" in " ".join(_words(found))]

    wait_until(lambda: done(path) >= 7 and evaluators(), process=process)
    os.kill(evaluators()[0].pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "the evaluator was lost" in output
    assert evaluations(path)[-1]["iteration"] == 250
    wait_until(lambda: evaluators() == [], 30)
