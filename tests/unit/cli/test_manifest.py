"""robot-rl manifest: the run's own launcher, options, notes, files, and every refusal in one line."""

import pytest
import yaml

from robot_rl.cluster.manifests import validate
from robot_rl.runs.run_dir import RunDir

LAUNCHER = {"name": "slurm", "nodes": 2, "ranks": 2, "gpus": 0, "cpus": 4, "time": "04:00:00", "partition": "gpu"}


@pytest.fixture
def trained(in_tmp):
    """Makes a run with these settings; returns its directory."""

    def make(task="cartpole", launcher=None, **settings):
        run_dir = RunDir.create("runs", task, 1, "mine")
        config = {"task": task, "seed": 1, "num_envs": 64, "device": "cpu", "learner": "ppo", **settings}
        words = ["robot-rl", "train", f"task={task}", "num_envs=64"]
        run_dir.write_config(config, words, {"launcher": launcher} if launcher else None)
        return run_dir

    return make


def rendered(out):
    return next(document for document in yaml.safe_load_all(out) if document.get("kind") in ("JobSet", "RayJob"))


def test_nodes_processes_and_time_are_the_launchers(run, trained):
    trained(launcher=LAUNCHER)
    code, out, err = run("manifest", "mine", "target=jobset")
    assert (code, err) == (0, "")
    spec = rendered(out)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["completions"], spec["activeDeadlineSeconds"]) == (2, 14_400)
    assert "'WORLD_SIZE'" in str(spec)
    assert out.startswith("# Made by:\n# robot-rl manifest mine target=jobset\n")
    assert "/runs/cartpole/mine" in out
    _, out, _ = run("manifest", "mine", "target=jobset", "nodes=1", "ranks=1", "time=60")
    spec = rendered(out)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["completions"], spec["activeDeadlineSeconds"]) == (1, 3600)


def test_without_a_launcher_it_is_one_process(run, trained):
    trained()
    _, out, _ = run("manifest", "target=jobset")
    assert "WORLD_SIZE" not in out
    code, out, err = run("manifest", "target=jobset", "gpus=4")
    assert (code, err) == (0, "robot-rl: gpus=4: the run's device is cpu, so that it will not use them\n")
    assert "nvidia.com/gpu: 4" in out
    assert "LOCAL_WORLD_SIZE" in out
    assert "prometheus.io/port: '9400'" in out
    assert "prometheus" not in run("manifest", "target=jobset", "gpus=4", "metrics_port=0")[1]


def test_a_batch_script_is_of_the_run_where_it_is(run, trained, in_tmp):
    trained(launcher=LAUNCHER)
    _, out, _ = run("manifest", "target=sbatch")
    assert f"\nrun={in_tmp}/runs/cartpole/mine\n" in out
    for line in ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=4", "--time=04:00:00", "--partition=gpu"):
        assert f"#SBATCH {line}\n" in out


def test_a_ray_job_goes_on_with_the_run_whatever_command_run_yaml_names(run, trained):
    run_dir = trained()
    words = "run=cartpole/mine root=/runs launcher=ray launcher.nodes=1 launcher.ranks=1"
    assert rendered(run("manifest", "target=rayjob")[1])["spec"]["entrypoint"] == f"robot-rl resume {words}"
    record = run_dir.read_config() | {"command": ["robot-rl", "train", "-m", "task=their.module:make", "seed=1,2"]}
    run_dir.config_file.write_text(yaml.safe_dump(record))
    code, _, err = run("manifest", "target=rayjob")
    assert (code, "run.yaml: was changed after it was written" in err) == (2, True)
    del record["record_sha256"]  # Of an earlier version.
    run_dir.config_file.write_text(yaml.safe_dump(record))
    assert rendered(run("manifest", "target=rayjob")[1])["spec"]["entrypoint"] == f"robot-rl resume {words}"


def test_code_that_is_not_ours_is_placed_in_a_sandbox(run, trained):
    trained("gym:their_module:Env-v0")
    code, out, err = run("manifest", "target=jobset")
    assert (code, err) == (0, "")
    assert "runtimeClassName: gvisor" in out
    assert "trust=true" in out
    _, out, err = run("manifest", "target=jobset", "sandbox=false")
    assert "gvisor" not in out
    assert err.startswith("robot-rl: the run's settings name code that is not ours (their_module")
    _, _, err = run("manifest", "target=osmo")
    assert "no sandbox here" in err


def test_a_file_is_written_validated_and_replaced(run, trained, in_tmp):
    trained()
    for _ in range(2):
        assert run("manifest", "target=kueue", "queue=team", "out=job.yaml") == (0, "job.yaml\n", "")
    assert run("manifest", "check=job.yaml") == (0, "job.yaml: valid\n", "")
    path = in_tmp / "job.yaml"
    path.write_text(path.read_text().replace("backoffLimit", "backofLimit").replace("clusterIP: None", "clusterIP: 5"))
    code, out, err = run("manifest", "check=job.yaml")
    assert (code, out, len(err.splitlines())) == (2, "", 2)
    assert "backofLimit" in err
    path.write_text("mine")
    code, _, err = run("manifest", "target=kueue", "queue=team", "out=job.yaml")
    assert (code, path.read_text()) == (2, "mine")
    assert "is there already and is not a file of robot-rl manifest" in err


def test_without_the_extra_a_line_reports_that_it_was_not_validated(run, trained, monkeypatch):
    trained()
    monkeypatch.setattr(validate, "EXTRA", ("no_such_package_anywhere",))
    code, _, err = run("manifest", "target=jobset")
    assert (code, len(err.splitlines())) == (0, 1)
    assert "not validated: that needs the extra kubernetes" in err
    code, _, err = run("manifest", "check=x.yaml")
    assert code == 2
    assert "needs the extra kubernetes" in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nobody", "target=jobset"), "run=nobody: no such run in runs"),
        (("mine",), "target: is missing; known: jobset, kueue, osmo, rayjob, sbatch"),
        (("mine", "target=jobsets"), "target=jobsets: must be one of jobset, kueue, osmo, rayjob, sbatch, or"),
        (("mine", "target=kueue"), "queue: is missing"),
        (("mine", "target=jobset", "gpus=1000"), "gpus=1000: must be at least 0 and at most 16 on a node"),
        (("mine", "target=jobset", "gpus=4", "ranks=2"), "gpus=4: each of the ranks=2 processes of a node uses one"),
        (("mine", "target=jobset", "ranks=7"), "num_envs=64: must be a multiple of the 7 processes"),
        (("mine", "target=jobset", "queues=true"), "queues=true: needs the name of the queue"),
        (("mine", "target=sbatch", "spot=true"), "spot=true: does not affect target=sbatch"),
        (("mine", "target=osmo", "claim=x"), "claim=x: does not affect target=osmo"),
        (("mine", "target=jobset", "image=robot-rl:latest"), "image=robot-rl:latest: is not pinned"),
        (("mine", "target=jobset", "nodes=two"), "nodes=two: must be a whole number"),
        (("mine", "target=jobset", "gpu=1"), "unknown key 'gpu': did you mean 'gpus'?"),
        (("mine", "target=sbatch", "time=1"), "time=1: must be longer than the notice"),
        (("mine", "target=jobset", "out=no/where/\x01"), "control character"),
        (("mine", "target=jobset", "out=runs"), "out=runs: is a folder"),
        (("check=none.yaml",), "check=none.yaml: does not exist"),
        (("check=none.yaml", "spot=true"), "check=none.yaml: goes without other options"),
        (("check=runs",), "runs: is a directory or device"),
    ],
)
def test_what_cannot_be_rendered_is_one_line(run, trained, in_tmp, words, line):
    trained()
    code, out, err = run("manifest", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert line in err
    assert [path.name for path in in_tmp.iterdir()] == ["runs"]


def test_a_damaged_run_is_one_line(run, trained):
    run_dir = trained()
    run_dir.config_file.write_text("config: [")
    code, _, err = run("manifest", "target=jobset")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "damaged" in err
