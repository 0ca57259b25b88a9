"""The comparison of what trainings reach by precision, at toy size."""

import json

import pytest

from robot_rl.cli.main import main


@pytest.fixture
def precision(monkeypatch):
    import precision

    def command(*words):
        assert main(list(words)) == 0

    monkeypatch.setattr(precision, "command", command)
    return precision


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
