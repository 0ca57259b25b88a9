"""The comparison of what trainings reach by precision, at toy size."""

import json

import pytest

from robot_rl.cli.main import main
from robot_rl.errors import UserError


@pytest.fixture
def precision(monkeypatch):
    import precision

    def command(*words):
        assert main(list(words)) == 0

    monkeypatch.setattr(precision, "command", command)
    return precision


@pytest.mark.long
def test_every_kind_of_flow_is_trained_once_and_compared(precision, tiny, tmp_path):
    out = tmp_path / "precision.json"
    train = " ".join(word for word in tiny if not word.startswith("num_threads"))
    words = ["tasks=cartpole", "flows=fp32,bf16:int8,fp32>int8", "seeds=1", "jobs=1", "episodes=4", f"train={train}"]
    assert precision.main([*words, f"root={tmp_path / 'runs'}", f"out={out}"]) == 0
    found = json.loads(out.read_text())
    rows = {row["flow"]: row for row in found["rows"]}
    assert list(rows) == ["fp32", "bf16:int8", "fp32>int8"]
    assert rows["fp32"]["from fp32 %"] == 0.0
    assert rows["fp32"]["log_ratio"] == 0.0
    assert rows["bf16:int8"]["log_ratio"] > 0.0
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "cartpole").glob("*/eval*.json")}
    assert len(made) == 3
    assert precision.main([*words, f"root={tmp_path / 'runs'}", f"out={out}"]) == 0
    assert all(path.stat().st_mtime_ns == time for path, time in made.items())  # What is there is not done again.
    assert precision.main([*words, f"root={tmp_path / 'elsewhere'}", f"out={out}"]) == 0
    assert not (tmp_path / "elsewhere").exists()
    assert json.loads(out.read_text())["runs"] == found["runs"]


def test_a_training_that_was_ended_goes_on(precision, monkeypatch, tmp_path):
    def command(*words):
        raise UserError(" ".join(words))

    monkeypatch.setattr(precision, "command", command)
    words = {"root": str(tmp_path), "train": "num_envs=4", "episodes": "2"}
    path = tmp_path / "cartpole" / "int8_1"
    (path / "checkpoints").mkdir(parents=True)
    with pytest.raises(
        UserError, match="^train task=cartpole seed=1 precision=int8 run_id=int8_1 .* num_envs=4 num_threads"
    ):
        precision.run_one("cartpole", "int8", 1, words)
    assert not path.exists()
    (path / "checkpoints" / "000002").mkdir(parents=True)
    (path / "checkpoints" / "000002" / "meta.json").touch()
    with pytest.raises(UserError, match=f"^resume run=cartpole/int8_1 root={tmp_path}$"):
        precision.run_one("cartpole", "int8", 1, words)
