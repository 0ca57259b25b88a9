"""What a drill checks in a resumed run: every property is compared."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from robot_rl.drill import SAME, STATE, DrillError, First, Outcome, RunCopies, Training, poison
from robot_rl.learn.checkpoints.checkpoint import load_worlds, save_checkpoint, verify_checkpoint
from robot_rl.processes import name_end
from robot_rl.runs.run_dir import RunDir

TOTAL = 6


def make_run(root, *, steps: Sequence[int] = range(1, TOTAL + 1), weight=1.0, newest=TOTAL):
    run = RunDir(root / "cartpole" / "one")
    run.path.mkdir(parents=True)
    rows = [{"iteration": step, "time_s": 0.5 * step, "loss/value": 1.0 / step} for step in steps]
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tensors, worlds = {"w": torch.full((3,), weight)}, {STATE: torch.zeros(2, 4, dtype=torch.float64)}
    save_checkpoint(run.checkpoints / f"{newest:06d}", tensors, {"iteration": newest}, worlds=worlds)
    return run


@pytest.fixture
def copies(tmp_path):
    """Copies of a run; the undisturbed one has been trained already."""
    make_run(tmp_path / "undisturbed")
    origin = RunDir(tmp_path / "runs" / "cartpole" / "one")
    return RunCopies(
        origin=origin,
        checkpoint=origin.checkpoints / "000002",
        work=tmp_path,
        start=2,
        total=TOTAL,
        save_interval=2,
        iteration_s=0.5,
    )


def test_a_run_that_is_the_undisturbed_one(copies, tmp_path):
    run, outcome = make_run(tmp_path / "copy"), Outcome(fault="kill")
    copies.check_end(run, outcome, ())
    assert copies.compare(run, outcome) == SAME
    assert outcome.wrong == []


@pytest.mark.parametrize(
    ("steps", "missing", "wrong"),
    [
        ([1, 2, 3, 4, 4, 5, 6], (), "iterations twice"),
        ([1, 2, 4, 3, 5, 6], (), "in another order"),
        ([1, 2, 3, 5, 6], (), "lacks iterations [4]"),
        ([1, 2, 3, 4, 5], (), "lacks iterations [6]"),
        ([1, 2, 3, 5, 6], (4,), ""),
        ([1, 2, 3, 4, 5, 6], (4,), "iterations twice, or in another order"),
    ],
)
def test_iterations_are_counted(copies, tmp_path, steps, missing, wrong):
    outcome = Outcome(fault="kill")
    copies.check_end(make_run(tmp_path / "copy", steps=steps), outcome, missing)
    assert len(outcome.wrong) == bool(wrong)
    assert wrong in "".join(outcome.wrong)


def test_a_line_that_is_no_row_is_seen(copies, tmp_path):
    run, outcome = make_run(tmp_path / "copy"), Outcome(fault="kill")
    run.metrics_file.write_bytes(b"\0\0\0\n" + run.metrics_file.read_bytes())
    copies.check_end(run, outcome, ())
    assert outcome.wrong == ["metrics.jsonl has invalid lines"]


def test_another_run_is_wrong_unless_it_cannot_be_compared(copies, tmp_path):
    run, outcome = make_run(tmp_path / "copy", weight=1.5), Outcome(fault="kill")
    assert copies.compare(run, outcome).startswith("no, 1 differences, the first in model.safetensors: w")
    assert len(outcome.wrong) == 1
    copies.incomparable = "a GPU"
    outcome = Outcome(fault="kill")
    assert copies.compare(run, outcome).startswith("cannot be compared (a GPU)")
    assert outcome.wrong == []


def test_rows_that_the_fault_took_do_not_make_another_run(copies, tmp_path):
    run, outcome = make_run(tmp_path / "copy", steps=[1, 2, 3, 5, 6]), Outcome(fault="corrupt_metrics")
    assert copies.compare(run, outcome, missing=(4,)) == f"{SAME} except for the 1 that were lost"
    assert copies.compare(run, outcome).startswith("no, 1 differences, the first in iteration 4: not in both")


def test_the_end_is_a_whole_checkpoint_of_the_last_iteration(copies, tmp_path):
    run, outcome = make_run(tmp_path / "copy", newest=4), Outcome(fault="kill")
    weights = run.checkpoints / "000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    copies.check_end(run, outcome, ())
    assert len(outcome.wrong) == 2
    assert "is 000004, must be 6" in outcome.wrong[0]
    assert "not whole" in outcome.wrong[1]


def test_what_was_lost_is_counted_from_the_last_row(copies):
    process: Any = SimpleNamespace(notices=["robot-rl: 000006 is damaged"])
    outcome = Outcome(fault="kill")
    before = [{"iteration": step, "time_s": 0.5 * step} for step in range(1, 8)]
    outcome.note_start(process, First(5, 2.0, 2.5), before)
    assert (outcome.lost_iterations, outcome.lost_s) == (3, 1.5)
    assert (outcome.stepping_s, outcome.recovery_s) == (2.0, 2.5)
    assert outcome.noticed == ["robot-rl: 000006 is damaged"]


def test_poison_leaves_a_checkpoint_whole(tmp_path):
    newest = make_run(tmp_path / "copy").checkpoints / f"{TOTAL:06d}"
    poison(newest)
    verify_checkpoint(newest)
    worlds = load_worlds(newest)
    assert worlds is not None
    assert worlds[STATE].isnan().nonzero().tolist() == [[0, 1]]


def test_poison_needs_worlds(tmp_path):
    newest = save_checkpoint(tmp_path / "000001", {"w": torch.ones(1)}, {"iteration": 1})
    with pytest.raises(DrillError, match="no physics"):
        poison(newest)


def acting(monkeypatch, folder, script):
    """A process that does as a training does, in the place of Python."""
    actor = folder / "actor"
    actor.write_text(f"#!/bin/sh\n{script}\n")
    actor.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(actor))


def test_a_process_that_ends_too_early_is_reported_with_its_reason(tmp_path, monkeypatch):
    acting(monkeypatch, tmp_path, "echo 'robot-rl: no such run' >&2; exit 2")
    with Training(make_run(tmp_path), {}) as training, pytest.raises(DrillError) as error:
        training.wait_first(20.0)
    assert str(error.value) == "ended with exit code 2 before the first iteration; last line: robot-rl: no such run"


def test_the_output_of_a_process_is_timed(tmp_path, monkeypatch):
    words = (
        "robot-rl: 000006 is damaged",
        "",
        "cartpole: 4 worlds -> runs/cartpole/one",
        "iteration 5/9  steps",
        "done",
    )
    commands = "; ".join(f"echo '{line}'; sleep 0.05" for line in words)
    acting(monkeypatch, tmp_path, f'{commands}; echo "$@"; exit 85')
    with Training(make_run(tmp_path), {"max_iterations": 9}) as training:
        first = training.wait_first(20.0)
        assert training.wait(20.0) == 85
    assert first.iteration == 5
    assert 0.1 <= first.stepping_s < first.done_s
    assert training.notices == ["robot-rl: 000006 is damaged"]
    assert training.lines[-1] == f"-m robot_rl.cli.main resume one root={tmp_path} max_iterations=9"


def test_a_process_that_hangs_is_killed(tmp_path, monkeypatch):
    acting(monkeypatch, tmp_path, "exec sleep 60")
    with Training(make_run(tmp_path), {}) as training:
        with pytest.raises(DrillError, match=r"did not come to iteration 7 within 0 s; it printed nothing"):
            training.wait_iteration(TOTAL + 1, 0.1)
        assert training.wait_iteration(TOTAL, 1.0)["iteration"] == TOTAL
    assert training.wait(1.0) == -9


def test_a_process_with_a_limit_on_file_size(tmp_path, monkeypatch):
    acting(monkeypatch, tmp_path, f"head -c 4096 /dev/zero > {tmp_path}/big")
    with Training(make_run(tmp_path), {}, file_blocks=1) as training:
        assert training.wait(20.0) != 0
    assert (tmp_path / "big").stat().st_size in (512, 1024)


def test_how_a_process_ended_in_words():
    assert name_end(85) == "exit code 85"
    assert name_end(-9) == "death by SIGKILL"
