"""robot-rl drill from the command line."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from robot_rl.cli.drill import _folder
from robot_rl.drill import FAULTS
from robot_rl.runs.run_dir import RunDir

WORKER = str(Path(__file__).with_name("drill_worker.py"))


def contents(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "run='': name a run"),
        (["run=latest", "fault=kil"], "fault=kil: no fault 'kil'; did you mean 'kill'?"),
        (["run=latest", "fault=kill,nan_wurld"], "did you mean 'nan_world'?"),
        (["run=latest", "iterations=3"], "iterations=3: must be at least 15"),
        (["run=latest", "faults=kill"], "unknown key 'faults': did you mean 'fault'?"),
        (["nowhere"], "run=nowhere: no such run"),
    ],
)
def test_bad_input_is_one_line(run, small_run, words, line):
    code, _, err = run("drill", *words, f"root={small_run.parents[1]}")
    assert code == 2
    assert line in err
    assert err.count("\n") == 1


def test_the_help_names_every_fault(run):
    code, out, _ = run("drill", "--help")
    assert code == 0
    for fault in FAULTS:
        assert f"\n  {fault} " in out


def test_a_drill_that_is_ended_leaves_no_copies(small_run):
    with pytest.raises(SystemExit, match="143"), _folder(RunDir(small_run), keep=False):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not list(small_run.parents[1].glob(".drill-*"))


@pytest.mark.long
def test_every_fault_is_survived(small_run, tmp_path, start_python):
    root, out = small_run.parents[1], tmp_path / "drill.json"
    before = contents(root)
    words = ["latest", "fault=all", f"root={root}", "iterations=30", f"out={out}"]
    process = start_python([WORKER, *words])
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert contents(root) == before
    found = {one["fault"]: one for one in json.loads(out.read_text())["faults"]}
    assert list(found) == list(FAULTS)
    for fault, one in found.items():
        assert f"{fault}: survived" in output
        assert one["same"].startswith("no, as expected" if fault == "nan_world" else "yes, bit for bit"), one
        assert one["recovery_s"] > one["stepping_s"] > 0
    assert found["signal"]["lost_iterations"] == 0
    assert 0 < found["kill"]["lost_iterations"] < found["torn_checkpoint"]["lost_iterations"]
