"""Run directories: names, finding them again, files that are written whole or not at all."""

import errno
import os

import pytest
import yaml

from robot_rl.errors import UserError
from robot_rl.files import write_atomic, write_json
from robot_rl.machine import git_state, machine_facts, memory_bytes, package_versions
from robot_rl.runs.run_dir import RUN_ID, RunDir


def make_run(root, run_id, task="cartpole"):
    path = root / task / run_id
    path.mkdir(parents=True)
    (path / "run.yaml").write_text("config: {}\n")
    return path


def test_an_id_that_two_tasks_have_is_refused_and_named_with_its_task(tmp_path):
    for task in ("a", "b"):
        (tmp_path / task / "x").mkdir(parents=True)
        (tmp_path / task / "x" / "run.yaml").touch()
    with pytest.raises(UserError, match=r"run=x: 2 runs have this id; write a/x or b/x"):
        RunDir.find("x", tmp_path)
    assert RunDir.find("b/x", tmp_path).words == f"b/x root={tmp_path}"


def test_a_new_run_is_named_by_time_and_seed(tmp_path):
    run_dir = RunDir.create(tmp_path / "runs", "cartpole", 7)
    assert RUN_ID.fullmatch(run_dir.run_id)
    assert run_dir.run_id.split("-")[2] == "7"
    assert run_dir.task == "cartpole"
    assert run_dir.path == tmp_path / "runs" / "cartpole" / run_dir.run_id
    assert RunDir.create(tmp_path / "runs", "cartpole", 7).path != run_dir.path


def test_a_run_is_found_by_id_by_path_and_as_the_newest(tmp_path, monkeypatch):
    root = tmp_path / "runs"
    old = make_run(root, "20260101-100000-1-aaaa")
    new = make_run(root, "20260102-100000-1-bbbb", "go2_flat")
    monkeypatch.chdir(tmp_path)
    assert RunDir.find("20260101-100000-1-aaaa").path.samefile(old)
    assert RunDir.find("cartpole/20260101-100000-1-aaaa").path.samefile(old)
    assert RunDir.find("runs/cartpole/20260101-100000-1-aaaa").path.samefile(old)
    assert RunDir.find(str(old), root).path.samefile(old)
    assert RunDir.find("latest").path.samefile(new)
    assert RunDir.find("cartpole/latest").path.samefile(old)


def test_of_two_runs_in_one_second_the_later_is_the_latest(tmp_path):
    first = make_run(tmp_path, "20260101-100000-2-ffff")
    second = make_run(tmp_path, "20260101-100000-1-0000")
    os.utime(first / "run.yaml", ns=(0, 1_000))
    os.utime(second / "run.yaml", ns=(0, 2_000))
    assert RunDir.find("latest", tmp_path).path == second


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("", "run='': name a run"),
        ("20260101-100000-1-aaab", "did you mean '20260101-100000-1-aaaa'?"),
        ("../outside/20260101-100000-1-cccc", "not a run in"),
        ("/etc", "run=/etc: not a run in"),
        ("../../etc", "not a run in"),
        ("go2_flat/latest", "no run in"),
        ("cartpole", "no such run in"),
        (".", "no such run in"),
    ],
)
def test_a_run_that_is_not_there_or_leads_out(tmp_path, run, message):
    root = tmp_path / "runs"
    make_run(root, "20260101-100000-1-aaaa")
    make_run(tmp_path / "outside", "20260101-100000-1-cccc", "x")
    with pytest.raises(UserError) as error:
        RunDir.find(run, root)
    assert message in str(error.value)


def test_a_link_out_of_the_runs_is_refused(tmp_path):
    elsewhere = make_run(tmp_path / "elsewhere", "20260101-100000-1-aaaa")
    link = tmp_path / "runs" / "cartpole" / "20260101-100000-1-aaaa"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(UserError, match="leads out of"):
        RunDir.find(link.name, tmp_path / "runs")


def test_no_runs_at_all(tmp_path):
    with pytest.raises(UserError, match=r"no run in .* yet"):
        RunDir.find("20260101-100000-1-aaaa", tmp_path)
    with pytest.raises(UserError, match="robot-rl train makes one"):
        RunDir.find("latest", tmp_path / "nowhere")


def test_a_root_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"root=.*file: cannot make"):
        RunDir.create(tmp_path / "file", "cartpole", 1)


def test_run_yaml_holds_what_it_takes_to_repeat_the_run(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    config = {"task": "cartpole", "ppo": {"learning_rate": 1e-5}, "hidden": [64, 64], "init_from": None}
    run_dir.write_config(config, ["robot-rl", "train"])
    record = yaml.safe_load(run_dir.config_file.read_text())
    assert record["config"] == config == run_dir.read_config()["config"]
    assert record["run_id"] == run_dir.run_id
    assert record["command"] == ["robot-rl", "train"]
    assert record["versions"] == package_versions()
    assert record["versions"]["torch"]
    assert record["machine"] == machine_facts()
    assert record["git"] == git_state()


def test_going_on_is_noted(tmp_path):
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    run_dir.write_config({"max_iterations": 5}, ["robot-rl", "train"])
    run_dir.note_resumed({"max_iterations": 9}, ["robot-rl", "resume"], 5)
    record = run_dir.read_config()
    assert record["config"] == {"max_iterations": 9}
    assert [event["iteration"] for event in record["resumed"]] == [5]
    assert record["command"] == ["robot-rl", "train"]


def test_a_run_that_goes_on_for_ever_keeps_a_run_yaml_that_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("robot_rl.runs.run_dir.git_state", dict)
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    run_dir.write_config({"max_iterations": 5}, ["robot-rl", "train"])
    record = run_dir.read_config() | {"resumed": [{"iteration": k} for k in range(5000)]}
    run_dir.config_file.write_text(yaml.safe_dump(record))
    for k in range(5000, 5002):
        run_dir.note_resumed({"max_iterations": 9}, ["robot-rl", "resume"], k)
    assert [event["iteration"] for event in run_dir.read_config()["resumed"]] == list(range(4902, 5002))


@pytest.mark.parametrize("content", ["", "[1, 2]", "config: 3", "config: {a: [", "\xff".encode("latin-1")])
def test_a_damaged_run_yaml(tmp_path, content):
    run_dir = RunDir.create(tmp_path, "cartpole", 1)
    run_dir.config_file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"run.yaml: damaged"):
        run_dir.read_config()


def test_a_missing_run_yaml(tmp_path):
    with pytest.raises(UserError, match=r"run.yaml: missing"):
        RunDir.create(tmp_path, "cartpole", 1).read_config()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"a": 2})
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_device_is_written_to_and_never_replaced(tmp_path):
    from pathlib import Path

    with pytest.raises(OSError, match="No space left"):
        write_atomic(Path("/dev/full"), "text")
    assert Path("/dev/full").is_char_device()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path, "text")


def test_memory_is_that_of_the_machine_and_of_no_device_without_one():
    """A learner is captured on tensors without data, of which the device has no memory."""
    assert memory_bytes() == memory_bytes("cpu") > 2**28
    assert memory_bytes("meta") is None
