"""train and resume: overrides reach the run, nothing is left half-written, a run goes on where it stopped."""

import errno
import json
import signal
import subprocess
import sys

import pytest
import torch
import yaml

from robot_rl.learn.base_trainer import BaseTrainer
from robot_rl.learn.checkpoints.checkpoint import latest_checkpoint, load_checkpoint
from robot_rl.runs import run_dir as run_dir_module
from robot_rl.runs.run_dir import RunDir


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_what_it_should(small_run):
    record = yaml.safe_load((small_run / "run.yaml").read_text())
    assert record["config"]["actor"]["hidden"] == [8]
    assert record["config"]["num_envs"] == 4
    assert record["config"]["rewards"]["upright"]["weight"] == 1.0
    assert [row["iteration"] for row in rows(small_run)] == [1, 2]
    assert record["metrics"]["upright"]["unit"] == "1"
    assert record["solved"] == ["tracking/upright", 0.6]
    assert latest_checkpoint(small_run).name == "000002"
    assert any((small_run / "tb").iterdir())


def test_overrides_by_name_reach_task_and_learner(run, in_tmp, tiny):
    words = ["rewards.upright.weight=3", "sim.timestep=0.005", "ppo.learning_rate=5e-4", "~rewards.effort", "seed=4"]
    code, out, _ = run("train", "task=cartpole", *tiny, *words)
    assert code == 0
    run_dir = RunDir.find("latest")
    assert str(run_dir.path) in out
    assert f"robot-rl eval run={run_dir.run_id}" in out
    config = run_dir.read_config()["config"]
    assert config["rewards"]["upright"]["weight"] == 3
    assert "effort" not in config["rewards"]
    assert config["sim"]["timestep"] == 0.005
    assert config["ppo"]["learning_rate"] == 5e-4
    assert run_dir.run_id.split("-")[2] == "4"
    meta = load_checkpoint(latest_checkpoint(run_dir.path))[1]
    assert meta["learner"]["ppo"]["learning_rate"] == 5e-4


@pytest.mark.long
def test_what_an_evaluation_takes_of_a_metric_may_change_when_a_run_goes_on_by_its_id(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny.but("max_iterations=1"), "run_id=mine")[0] == 0
    code, _, err = run("train", "task=cartpole", *tiny, "run_id=mine", "metrics.upright.over=end")
    assert code == 0, err
    run_dir = RunDir.find("mine")
    assert run_dir.read_config()["config"]["metrics"]["upright"]["over"] == "end"
    assert [row["iteration"] for row in rows(run_dir.path)] == [1, 2]


def test_a_sweep_makes_a_run_each(run, in_tmp, tiny):
    code, _, err = run("train", "-m", "task=cartpole", *tiny, "seed=1,2")
    assert (code, [line for line in err.splitlines() if not line.startswith(("iteration", "time", "goal"))]) == (0, [])
    assert sorted(path.name.split("-")[2] for path in in_tmp.glob("runs/cartpole/*")) == ["1", "2"]


def test_a_sweep_over_tasks_takes_the_settings_that_all_of_them_have(run, in_tmp, tiny):
    code, _, err = run("train", "-m", "task=cartpole,gym:CartPole-v1", *tiny[:-1], "ppo.minibatches=1")
    assert (code, [line for line in err.splitlines() if line.startswith("robot-rl")]) == (0, [])
    assert sorted(path.name for path in in_tmp.glob("runs/[!.]*")) == ["cartpole", "gym-CartPole-v1"]
    assert all((path / "checkpoints" / "000002").is_dir() for path in in_tmp.glob("runs/[!.]*/*"))


BAD = [
    (["task=go2flat"], "did you mean 'go2_flat'?"),
    ([], "task: is missing; write task=<name>, task=gym:<id>, task=isaac/<id>, task=mamujoco:"),
    (["cartpole"], "'cartpole': write settings as key=value, such as task=cartpole"),
    (["task=cartpole", "rewards.uprihgt.weight=2"], "did you mean 'rewards.upright.weight'?"),
    (["task=cartpole", "num_env=4"], "did you mean 'num_envs'?"),
    (["task=cartpole", "num_envs=0"], "num_envs=0: must be in [1, 1048576]"),
    (["task=cartpole", "num_envs=-3"], "num_envs=-3: must be"),
    (["task=cartpole", "num_envs=four"], "num_envs=four: must be"),
    (["task=cartpole", "max_iterations=0"], "max_iterations=0: must be in [1, "),
    (["task=cartpole", "-m", "max_iterations=2,0"], "max_iterations=0: must be in [1, "),
    (["task=go2_rough", "terrain.max_init_level=10"], "terrain.max_init_level=10: must be a row in [0, 9]"),
    (["task=go2_rough", "sensors.height_scan.resolution=5"], "sensors.height_scan.resolution=5.0: must be at most 1 m"),
    (["task=cartpole", "run_id=lauf-ü"], "run_id=lauf-ü: must be up to 100 of A to Z, a to z, 0 to 9, _ - and ."),
    (["task=cartpole", "rewards.upright.weight=big"], "rewards.upright.weight=big: must be a number"),
    (["task=cartpole", "sim.timestep=9"], "sim.timestep=9.0: must be in (0, 0.05] s"),
    (["task=cartpole", "sim.memory=100"], "sim.memory=100: bytes too few to begin; 0 is MuJoCo's own choice"),
    (["task=cartpole", "ppo.clip=-1"], "ppo.clip=-1.0: must be in"),
    (["task=cartpole", "symmetry=mirror"], "symmetry=mirror: must be one of"),
    (["task=cartpole", "actor_groups=[actr]"], "actor_groups: the environment has no group 'actr'"),
    (["task=cartpole", "engine=mujcoo"], "did you mean 'mujoco'?"),
    (["task=cartpole", "device=cuda"], "device=cuda: torch finds no GPU here"),
    (["task=cartpole", "init_from=../../etc"], "init_from=../../etc: not a run in runs"),
    (["task=cartpole", "metrics.wandb=on"], "metrics.wandb="),
    (["task=cartpole", "+x=1"], "settings can be changed, not added"),
    (["task=cartpole", "--foo"], "unknown option '--foo'"),
    (["task=cartpole", "seed=1,2"], "several values are a sweep, which needs -m"),
    (["task=cartpole", "-m", "num_envs=4,0"], "num_envs=0: must be"),
    (["task=cartpole", "seed=${nowhere}"], "nowhere"),
    (["task=cartpole", "seed=[1"], "seed=[1: cannot be read, "),
    (
        ["task=cartpole", "run_id=12e4567"],
        "run_id=12e4567: would be read as inf; must be one name that begins with a letter",
    ),
    (
        ["task=cartpole", "run_id=1_000"],
        "run_id=1_000: would be read as 1000; must be one name that begins with a letter",
    ),
    (["task=cartpole", "root=/dev/null"], "root=/dev/null: cannot make"),
]


@pytest.mark.long
@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_written(run, in_tmp, monkeypatch, words, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = run("train", *words)
    assert (code, out) == (2, "")
    assert err.startswith("robot-rl: ")
    assert len(err.splitlines()) == 1
    assert message in err
    assert list(in_tmp.iterdir()) == []


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_at_the_start_is_74_and_leaves_no_run(run, in_tmp, tiny, monkeypatch):
    monkeypatch.setattr(run_dir_module, "write_atomic", full)
    code, _, err = run("train", "task=cartpole", *tiny)
    assert code == 74
    assert "the disk is full" in err
    assert list(in_tmp.iterdir()) == []


def test_a_disk_that_fills_up_is_74_and_keeps_what_was_measured(run, in_tmp, tiny, monkeypatch):
    monkeypatch.setattr(BaseTrainer, "save", full)
    assert run("train", "task=cartpole", *tiny)[0] == 74
    assert len(rows(RunDir.find("latest").path)) == 2


def test_resume_goes_on_in_the_same_directory(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny)[0] == 0
    run_dir = RunDir.find("latest")
    code, _, err = run("resume", run_dir.run_id)
    assert code == 2
    assert "has done 2 iterations; give more, such as max_iterations=4" in err
    assert run("resume", run_dir.run_id, "max_iterations=4")[0] == 0
    assert [row["iteration"] for row in rows(run_dir.path)] == [1, 2, 3, 4]
    assert latest_checkpoint(run_dir.path).name == "000004"
    record = run_dir.read_config()
    assert record["config"]["max_iterations"] == 4
    assert [event["iteration"] for event in record["resumed"]] == [2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "no such run in"),
        (["../../etc"], "not a run in"),
        ([], "name a run by its id"),
        (["latest", "seed=3"], "seed=3: cannot be changed in a run"),
        (["latest", "ppo.lr=3"], "unknown key 'ppo.lr'"),
    ],
)
def test_resume_refuses_what_it_cannot_do(run, small_run, words, message):
    code, _, err = run("resume", *words, f"root={small_run.parent.parent}")
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_damaged_or_missing_checkpoint(run, in_tmp, tiny):
    assert run("train", "task=cartpole", *tiny)[0] == 0
    run_dir = RunDir.find("latest")
    weights = run_dir.checkpoints / "000002" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for command, wanted in (("resume", 86), ("export", 2)):
        code, _, err = run(command, f"run={run_dir.run_id}")
        assert (code, len(err.splitlines())) == (wanted, 1)
        assert "damaged" in err
    assert not run_dir.policy.exists()
    code, _, err = run("train", "task=cartpole", *tiny, f"init_from={run_dir.run_id}")
    assert (code, "damaged" in err) == (2, True)
    assert len(list(in_tmp.glob("runs/cartpole/*"))) == 1
    for file in run_dir.checkpoints.glob("*/*"):
        file.unlink()
    (run_dir.checkpoints / "000002").rmdir()
    code, _, err = run("resume", run_dir.run_id)
    assert code == 86
    assert "has no checkpoint" in err


@pytest.mark.long
def test_fine_tuning_starts_from_the_weights_of_a_run(run, small_run, in_tmp, tiny):
    root = f"root={small_run.parent.parent}"
    still = ["max_iterations=1", "ppo.learning_rate=1e-9", "ppo.schedule=fixed"]
    words = ["task=cartpole", *tiny.but(*still), root, f"init_from={small_run.name}"]
    assert run("train", *words)[0] == 0
    tuned = RunDir.find("latest", small_run.parent.parent)
    assert tuned.path != small_run
    before, _ = load_checkpoint(latest_checkpoint(small_run))
    after, meta = load_checkpoint(latest_checkpoint(tuned.path))
    assert meta["iteration"] == 1
    assert int(after["actor.normalizer.count"]) == int(before["actor.normalizer.count"]) + 4 * 4
    for name, tensor in before.items():
        if name.startswith("actor.") and not name.startswith("actor.normalizer."):
            torch.testing.assert_close(tensor, after[name], rtol=0.0, atol=1e-6)


def test_fine_tuning_with_another_network_is_refused(run, small_run, in_tmp, tiny):
    words = [word for word in tiny if not word.startswith("actor.hidden")]
    root = small_run.parent.parent
    before = sorted(root.glob("*/*"))
    code, _, err = run("train", "task=cartpole", *words, f"root={root}", f"init_from={small_run.name}")
    assert code == 2
    assert "has shape" in err
    assert sorted(root.glob("*/*")) == before


@pytest.mark.long
def test_ctrl_c_saves_and_prints_how_to_resume(run, in_tmp, tiny):
    command = [sys.executable, "-m", "robot_rl.cli.main", "train", "task=cartpole", *tiny.but("max_iterations=1000000")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(line.startswith("iteration 1/") for line in process.stderr)
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    run_dir = RunDir.find("latest")
    last = rest.splitlines()[-1]
    assert last.startswith("robot-rl: interrupted after iteration ")
    assert last.endswith(f"continue with: robot-rl resume {run_dir.run_id}")
    done = len(rows(run_dir.path))
    assert latest_checkpoint(run_dir.path).name == f"{done:06d}"
    assert run("resume", run_dir.run_id, f"max_iterations={done + 1}")[0] == 0
    assert len(rows(run_dir.path)) == done + 1
