"""Runs and bundles that release 0.1.0 wrote go on, export and load."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from robot_rl.cli.main import main

RUNS = Path(__file__).parents[2] / "data" / "release_0_1_0"
TASKS = ("cartpole", "go2_flat")


@pytest.fixture(params=TASKS)
def old_run(request, tmp_path, monkeypatch) -> Path:
    """A copy of a run of 0.1.0, in the current directory's runs/."""
    shutil.copytree(RUNS, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / request.param / "old"


def test_it_goes_on(old_run):
    assert main(["resume", f"run={old_run.parent.name}/old", "max_iterations=3"]) == 0
    rows = [json.loads(line) for line in (old_run / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert (old_run / "checkpoints" / "000003").is_dir()


def test_it_exports_the_same_policy(old_run):
    """The network of today's export acts as the one that 0.1.0 exported."""
    inputs, actions = None, []
    for path in (RUNS / old_run.parent.name / "old" / "policy", old_run / "policy"):
        if path.is_relative_to(old_run):
            shutil.rmtree(path)
            assert main(["export", f"run={old_run.parent.name}/old"]) == 0
        session = onnxruntime.InferenceSession(str(path / "policy.onnx"), providers=["CPUExecutionProvider"])
        if inputs is None:
            source = np.random.default_rng(0)
            inputs = {
                one.name: source.normal(size=[side if isinstance(side, int) else 3 for side in one.shape]).astype("f4")
                for one in session.get_inputs()
            }
        actions.append(session.run(None, inputs))
    assert all(np.allclose(old, new, atol=1e-6) for old, new in zip(*actions, strict=True))


def test_its_bundle_is_evaluated(tmp_path, capsys):
    words = [f"policy={RUNS / 'go2_flat' / 'old' / 'policy'}", "episodes=2", "seconds=2", f"out={tmp_path}/eval.json"]
    assert main(["eval", *words]) == 0, capsys.readouterr().err


def test_a_bundle_of_a_task_that_has_changed_since_is_refused_by_one_line(tmp_path, capsys):
    """The cart-pole has another control rate now."""
    words = [f"policy={RUNS / 'cartpole' / 'old' / 'policy'}", "episodes=2", "seconds=2", f"out={tmp_path}/eval.json"]
    assert main(["eval", *words]) == 2
    assert capsys.readouterr().err == "robot-rl: control_period_s is 0.02; the environment steps every 0.04 s\n"
    assert main(["eval", *words, "sim.decimation=2"]) == 0, capsys.readouterr().err
