"""Metrics as JSON lines, as TensorBoard files, and at Weights & Biases on request."""

import json
import math
import sys
from types import SimpleNamespace

import pytest

from robot_rl.errors import UserError
from robot_rl.metrics.writers import MetricsWriter, read_metrics


def test_rows_are_on_the_disk_at_once_and_in_order(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"loss/value": 2.0, "time_s": 0.5, "env_steps": 64, "iteration": 1})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert line == '{"iteration": 1, "env_steps": 64, "time_s": 0.5, "loss/value": 2.0}\n'
    writer.close()
    writer.close()


def test_what_is_not_finite_becomes_null(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": math.nan, "b": math.inf, "c": 1.0})
    assert read_metrics(tmp_path) == [{"iteration": 1, "a": None, "b": None, "c": 1.0}]
    json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_resumed_run_appends_and_a_torn_line_is_left_out(tmp_path):
    for step in (1, 2):
        with MetricsWriter(tmp_path) as writer:
            writer.write(step, {"x": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 3, "x"')
    assert [row["x"] for row in read_metrics(tmp_path)] == [1.0, 2.0]


def test_tensorboard_holds_the_same(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(step, {"episode/return": 10.0 * step, "perf/steps_per_s": 5.0, "gone": math.nan})
    board = EventAccumulator(str(tmp_path / "tb"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("episode/return")] == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert "gone" not in board.Tags()["scalars"]


def test_wandb_gets_what_it_is_given(tmp_path, monkeypatch):
    calls = []
    run = SimpleNamespace(log=lambda row, step: calls.append((row, step)), finish=lambda: calls.append("finished"))
    fake = SimpleNamespace(init=lambda **options: (calls.append(options), run)[1])
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with MetricsWriter(tmp_path, "offline", name="go2/1") as writer:
        writer.write(4, {"x": 1.0, "y": math.nan})
    options, row, end = calls
    assert (options["mode"], options["name"], options["dir"]) == ("offline", "go2/1", str(tmp_path))
    assert row == ({"iteration": 4, "x": 1.0}, 4)
    assert end == "finished"


def test_wandb_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"metrics\.wandb: 'online' needs the package wandb"):
        MetricsWriter(tmp_path, "online")


def test_an_unknown_mode(tmp_path):
    with pytest.raises(UserError, match=r"metrics\.wandb=on: must be one of"):
        MetricsWriter(tmp_path, "on")
