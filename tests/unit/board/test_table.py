"""The table of runs in memory follows the files."""

import json
import shutil

import pytest

from robot_rl.errors import UserError
from robot_rl.metrics.rows import lock
from robot_rl.runs.run_index import RunRow
from robot_rl.view.board.table import RunTable, created


def states(table):
    return {name: run.row.state for name, run in table.runs.items()}


def test_runs_are_listed_the_newest_first_with_their_states(make_run, table):
    make_run("01", [1, 2, 3])
    make_run("03", [1])
    make_run("02")
    assert list(states(table()).items()) == [("hop/03", "stopped"), ("hop/02", "empty"), ("hop/01", "done")]


def test_a_run_is_kept_as_what_differs_from_another_of_its_task(make_run, table):
    make_run("01", ppo={"gamma": 0.9}, extra=1)
    make_run("02", ppo={"gamma": 0.8}, other=[1, 2])
    found = table()
    assert found.bases["hop"]["ppo.gamma"] in (0.8, 0.9)
    first, second = found.runs["hop/01"], found.runs["hop/02"]
    run, base = (first, second) if first.changed else (second, first)
    assert (base.changed, base.gone) == ({}, [])
    assert set(run.changed) == {"ppo.gamma", "extra"} or set(run.changed) == {"ppo.gamma", "other"}
    assert run.gone == (["other"] if run is first else ["extra"])


def test_only_what_has_changed_is_new(make_run, table):
    first = make_run("01", [1])
    make_run("02", [1])
    found = table()
    version, changed, gone = found.since(0)
    assert ({name for name, _ in changed}, gone) == ({"hop/01", "hop/02"}, [])
    found.refresh()
    assert found.since(version) == (version, [], [])
    with open(first / "metrics.jsonl", "a") as stream:
        stream.write('{"iteration": 2, "tracking/height": 0.75}\n')
    shutil.rmtree(first.parent / "02")
    found.refresh()
    later, changed, gone = found.since(version)
    assert later > version
    assert [(name, run.row.iterations, run.row.goal) for name, run in changed] == [
        ("hop/01", (2, 3), ("tracking/height", 0.75))
    ]
    assert gone == ["hop/02"]


def test_a_run_that_is_trained_is_running_until_it_is_not(make_run, table):
    folder = make_run("01", [1])
    found = table()
    with lock(folder / "metrics.jsonl") as stream:
        stream.write(b'{"iteration": 2, "tracking/height": 1}\n')
        found.refresh()
        assert states(found) == {"hop/01": "running"}
    found.refresh()
    assert states(found) == {"hop/01": "stopped"}


def test_files_are_looked_at_only_every_so_often(make_run, table):
    found = table()
    make_run("01")
    found.refresh(least_s=3600)
    assert not found.runs
    found.refresh()
    assert list(found.runs) == ["hop/01"]


def test_without_an_index_runs_are_there_at_once_and_their_settings_follow(make_run, root, index):
    make_run("01", [1, 2], seed=7)
    found = RunTable(root, index)
    found.refresh()
    (run,) = found.runs.values()
    assert (run.is_pending, run.row.settings, run.row.last["iteration"]) == (True, {}, 2)
    assert found.read_pending(seconds=0)
    assert not found.read_pending()
    (run,) = found.runs.values()
    assert (run.is_pending, run.row.settings["seed"]) == (False, 7)
    again = RunTable(root, index)
    again.refresh()
    assert [run.is_pending for run in again.runs.values()] == [False]


def test_changed_settings_are_read_again_and_the_old_ones_shown_meanwhile(make_run, table):
    folder = make_run("01", seed=7)
    found = table()
    file = folder / "run.yaml"
    file.write_text(file.read_text().replace("seed: 7", "seed: 1234"))
    found.refresh()
    assert (found.runs["hop/01"].is_pending, found.runs["hop/01"].row.settings["seed"]) == (True, 7)
    found.read_pending()
    assert (found.runs["hop/01"].is_pending, found.runs["hop/01"].row.settings["seed"]) == (False, 1234)


@pytest.mark.parametrize("text", ["config: [", "", "a: 1", "\x00", "config: {a: &x [*x]}"])
def test_a_damaged_run_is_listed_as_that(make_run, table, text):
    make_run("01", [1])
    (make_run("02", [1]) / "run.yaml").write_text(text)
    found = table()
    assert states(found) == {"hop/02": "damaged", "hop/01": "stopped"}
    assert not found.runs["hop/02"].is_pending


def test_links_are_not_followed(make_run, root, tmp_path, table):
    run = make_run("01", [1, 2, 3])
    shutil.copytree(run, tmp_path / "away" / "hop" / "02")
    (root / "hop" / "02").symlink_to(tmp_path / "away" / "hop" / "02")
    (root / "leap").symlink_to(tmp_path / "away" / "hop")
    other = make_run("03", [1])
    (other / "run.yaml").unlink()
    (other / "run.yaml").symlink_to(run / "run.yaml")
    fourth = make_run("04")
    (fourth / "metrics.jsonl").unlink()
    (fourth / "metrics.jsonl").symlink_to(run / "metrics.jsonl")
    assert states(table()) == {"hop/04": "empty", "hop/01": "done"}


def test_a_root_that_is_none(tmp_path):
    with pytest.raises(UserError, match="is not a directory"):
        RunTable(tmp_path / "nowhere")


def test_no_such_run(make_run, table):
    make_run("01")
    with pytest.raises(UserError, match=r"run=hop/\.\.: no such run"):
        table().get("hop/..")


def test_when_a_run_was_created(tmp_path):
    assert created(RunRow(path=tmp_path / "x", record={"created": "2026-01-02T00:00:00"})) == "2026-01-02T00:00:00"
    assert created(RunRow(path=tmp_path / "20260102-030405-1-abcd")) == "2026-01-02T03:04:05"
    assert created(RunRow(path=tmp_path / "mine", record=json.loads('{"created": 3}'))) == ""
