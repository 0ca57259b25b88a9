"""launcher=slurm on a real Slurm: trainings are preempted, lose a node, are swept, and are the undisturbed ones."""

import json

import pytest

from robot_rl.drill import differing_rows, differing_tensors, rows_of
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint
from robot_rl.runs.run_dir import RunDir
from tests.cluster.slurm import NODES
from tests.conftest import Forked

ITERATIONS = 400
# Iterations that take a moment, and many of them: enough for a preemption to find the run in the middle.
SMALL = ("num_envs=16", "num_steps=8", "actor.hidden=[16]", "critic.hidden=[16]", "ppo.epochs=1", "ppo.minibatches=1")
SETTINGS = ("task=cartpole", *SMALL, f"max_iterations={ITERATIONS}", "learner_threads=1", "num_threads=1")
LAUNCHER = ("launcher=slurm", "launcher.partition=low")
RANKS = {1: ("launcher.nodes=1", "launcher.cpus=1"), 2: ("launcher.nodes=2", "launcher.cpus=1")}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A working directory for runs."""
    return tmp_path_factory.mktemp("slurm")


def command(slurm, root, *words):
    """Run robot-rl in a directory on the cluster's login node, which has to succeed; return its output."""
    environ = {**slurm.env, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = Forked(["-m", "robot_rl.cli.main", *words], cwd=root, env=environ)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output


def submit(slurm, root, name, *words):
    """Submit a training; return its job's id and its run."""
    command(slurm, root, "train", *SETTINGS, *LAUNCHER, f"run_id={name}", *words)
    run = RunDir(root / "runs/cartpole" / name)
    return json.loads((run.path / "job.json").read_text())["job"], run


def last_iteration(run):
    return max((row["iteration"] for row in rows_of(run.path)), default=0)


def printed(run):
    """What a run's jobs have printed."""
    return "\n".join(path.read_text() for path in run.path.glob("slurm-*.out"))


def finish(slurm, job, run):
    """Wait for the end of a training that has to be reached."""
    facts = slurm.wait(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", timeout_s=300)
    assert facts["JobState"] == "COMPLETED", printed(run)
    return facts


@pytest.fixture(scope="module")
def undisturbed(slurm_cluster, root):
    """undisturbed(ranks): a run that nothing happened to."""
    runs = {}

    def get(ranks):
        if ranks not in runs:
            job, run = submit(slurm_cluster, root, f"undisturbed-{ranks}", *RANKS[ranks])
            finish(slurm_cluster, job, run)
            runs[ranks] = run
        return runs[ranks]

    return get


def check_same(run, other):
    """Check that a run has each iteration once, and the bits of the undisturbed one."""
    rows = rows_of(run.path)
    assert [row["iteration"] for row in rows] == list(range(1, ITERATIONS + 1))
    assert differing_tensors(latest_checkpoint(run.path), latest_checkpoint(other.path)) == []
    assert differing_rows(rows, rows_of(other.path), 0) == []


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_preempted_training_is_saved_requeued_and_the_same(slurm, root, undisturbed, ranks):
    other = undisturbed(ranks)
    # No checkpoint but those of notices and of the end.
    job, run = submit(slurm, root, f"preempted-{ranks}", *RANKS[ranks], "save_interval=1000", "save_interval_s=0")
    slurm.until(lambda: last_iteration(run) >= 5, "iteration 5", 120)
    urgent = slurm.submit("sleep 1", "--partition=high", "--nodes=2", "--exclusive")
    slurm.wait(urgent, "RUNNING", "COMPLETED")
    saved = int(latest_checkpoint(run.path).name)
    assert saved == last_iteration(run) < ITERATIONS
    assert finish(slurm, job, run)["Restarts"] == "1"
    assert f"interrupted by SIGTERM after iteration {saved}" in printed(run)
    check_same(run, other)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_outlives_a_lost_node(slurm, root, undisturbed, ranks):
    other = undisturbed(ranks)
    job, run = submit(slurm, root, f"lost-{ranks}", *RANKS[ranks], "save_interval=5")
    slurm.until(lambda: last_iteration(run) >= 12, "iteration 12", 120)
    lost = slurm.facts(job)["BatchHost"] if ranks == 1 else NODES[1]
    slurm.kill_node(lost)
    if ranks == 2:
        slurm.until(lambda: slurm.node_states()[lost].startswith("down"), "lost node")
    slurm.start_node(lost)
    assert finish(slurm, job, run)["Restarts"] == "1"
    check_same(run, other)


@pytest.mark.long
def test_a_sweep_is_an_array(slurm, root):
    words = (*SMALL, "max_iterations=3", "seed=1,2,3,4")
    output = command(slurm, root, "train", "task=cartpole", *LAUNCHER, "-m", *words)
    jobs = [line.split()[1].rstrip(":") for line in output.splitlines() if line.startswith("job ")]
    (array,) = {job.split("_")[0] for job in jobs}
    assert jobs == [f"{array}_{k}" for k in range(4)]
    slurm.until(lambda: not slurm.command("squeue", "--noheader", "--jobs", array).strip(), "end of the sweep", 300)
    runs = [RunDir(root / line.split(": ")[1]) for line in output.splitlines() if line.startswith("job ")]
    assert [run.read_config()["config"]["seed"] for run in runs] == [1, 2, 3, 4]
    assert [last_iteration(run) for run in runs] == [3, 3, 3, 3]


@pytest.mark.long
def test_a_preempted_sweep_goes_on_run_by_run(slurm, root, undisturbed):
    other = undisturbed(1)
    words = (*SETTINGS, "seed=1,2", "run_id=swept-${seed}", "save_interval=1000", "save_interval_s=0")
    output = command(slurm, root, "train", "-m", *LAUNCHER, *RANKS[1], *words)
    jobs = [line.split()[1].rstrip(":") for line in output.splitlines() if line.startswith("job ")]
    runs = [RunDir(root / "runs/cartpole" / f"swept-{seed}") for seed in (1, 2)]
    slurm.until(lambda: all(last_iteration(run) >= 5 for run in runs), "iteration 5 of both", 120)
    urgent = slurm.submit("sleep 1", "--partition=high", "--nodes=2", "--exclusive")
    slurm.wait(urgent, "RUNNING", "COMPLETED")
    for job, run in zip(jobs, runs, strict=True):
        assert finish(slurm, job, run)["Restarts"] == "1"
        assert [row["iteration"] for row in rows_of(run.path)] == list(range(1, ITERATIONS + 1))
    check_same(runs[0], other)


@pytest.mark.long
def test_a_cancelled_training_is_saved_and_not_requeued(slurm, root):
    job, run = submit(slurm, root, "cancelled", *RANKS[1], "save_interval=1000", "save_interval_s=0")
    slurm.until(lambda: last_iteration(run) >= 5, "iteration 5", 120)
    slurm.cancel(job)
    slurm.wait(job, "CANCELLED")
    slurm.until(lambda: not slurm.command("squeue", "--noheader").strip(), "an empty queue")
    assert slurm.state(job) == "CANCELLED"
    assert int(latest_checkpoint(run.path).name) == last_iteration(run) < ITERATIONS
