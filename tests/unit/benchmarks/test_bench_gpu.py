"""Everything on a GPU in one command: at toy size, and what happens to parts that fail, hang or do not fit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace as Event

import bench_gpu
import gpu_parts
import pytest
from bench_gpu import PARTS, Part

from robot_rl.errors import UserError

SCRIPT = bench_gpu.__file__
SAVE = 'printf \'%s\' \'{"state": "done", "headline": "42", "met": true}\' > '


def content(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """measure(commands, *words): runs parts that are commands of a shell ("$FILE" is theirs); returns the exit code."""

    def run(commands, *words, limit_s=60.0):
        def command(name, options, file):
            return ["/bin/sh", "-c", f"FILE={file}; {commands[name]}"]

        monkeypatch.setattr(bench_gpu, "command", command)
        monkeypatch.setattr(bench_gpu, "PARTS", {name: Part(limit_s, 1.0, "> 41") for name in commands})
        return bench_gpu.main(["toy=true", f"parts={','.join(commands)}", f"out={tmp_path / 'out'}", *words])

    return run


def test_a_part_that_fails_stops_no_other(measure, tmp_path, capsys):
    commands = {"one": f"{SAVE} $FILE; echo ready; echo broken >&2; exit 3", "two": f"{SAVE} $FILE", "three": "true"}
    assert measure(commands) == 1
    one, two, three = (content(tmp_path / "out", name) for name in commands)
    assert one["state"] == "failed"
    assert one["last_lines"] == ["ready", "broken"]
    assert one["headline"] == "42"
    assert two["state"] == "done"
    assert (three["state"], three["last_lines"]) == ("failed", [])
    summary = content(tmp_path / "out", "summary")["parts"]
    assert {name: part["state"] for name, part in summary.items()} == {
        "one": "failed",
        "two": "done",
        "three": "failed",
    }
    shown = capsys.readouterr().out
    assert "last line: broken" in shown
    assert "> 41: holds" in shown


@pytest.mark.long
def test_a_part_that_hangs_is_ended_with_all_of_its_processes(measure, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"{SAVE} $FILE; echo last words; sleep 1000 & echo $! > {pid}; wait"
    assert measure({"one": hangs, "two": f"{SAVE} $FILE"}, limit_s=3.0) == 1
    one = content(tmp_path / "out", "one")
    assert (one["state"], one["last_lines"], one["headline"]) == ("timed out", ["last words"], "42")
    assert content(tmp_path / "out", "two")["state"] == "done"
    status = Path(f"/proc/{int(pid.read_text())}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_parts_that_no_longer_fit_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_gpu, "command", lambda *_: pytest.fail("nothing is started"))
    assert bench_gpu.main(["toy=true", f"out={tmp_path}", "limit_s=5"]) == 0
    for name in PARTS:
        found = content(tmp_path, name)
        assert found["state"] == "left out"
        assert "limit_s=5" in found["reason"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["parts=envv"], "parts=envv: must be of env, rollout, .*did you mean 'env'"),
        (["parts=,"], "parts=,: names none"),
        (["tpy=true"], "unknown key 'tpy'"),
        (["toy=perhaps"], "toy=perhaps: must be true or false"),
        (["limit_s=0"], "limit_s=0"),
        (["toy=true", "kernels=k"], "kernels are for a GPU"),
        (["kernels=/not/there"], "kernels=/not/there: has no kernels.json"),
        (["mjlab_path=/not/there"], "mjlab_path=/not/there: has no mjlab"),
        (["out=/dev/null"], "out=/dev/null: /dev/null is not a directory"),
    ],
)
def test_bad_input_is_one_line(words, line):
    with pytest.raises(UserError, match=line):
        bench_gpu.main(words)


def test_nothing_has_to_be_installed_to_begin():
    """Neither this project nor what it needs: the packages are found beside the script."""
    done = subprocess.run([sys.executable, "-E", "-S", SCRIPT, "parts=no"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("parts=no: must be of env")
    path = bench_gpu.environment()["PYTHONPATH"].split(os.pathsep)
    assert all(
        (Path(folder) / name).is_dir() for folder, name in zip(path, ("robot_rl", "robot_rl_envs"), strict=False)
    )


def test_launches_are_counted(monkeypatch):
    kinds = gpu_parts.torch.autograd.DeviceType
    names = [("cudaGraphLaunch", kinds.CPU), ("cuLaunchKernel", kinds.CPU), ("cuLaunchKernel", kinds.CPU)]
    events = [
        Event(name=name, device_type=kind) for name, kind in [*names, ("a", kinds.CUDA), ("aten::add", kinds.CPU)]
    ]

    class Profiler:
        def __init__(self, activities):
            pass

        def __enter__(self):
            return Event(events=lambda: events)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("torch.profiler.profile", Profiler)
    found = gpu_parts.count_calls(lambda: None, "cpu")
    assert found == {"cudaGraphLaunch": 1, "cuLaunchKernel": 2, "on the device": 1}


@pytest.fixture
def forked(monkeypatch, start_python):
    """Each part is started sooner, from a process that has imported torch, MuJoCo and Warp."""

    def start(command, *, stdin, stderr, **more):
        assert (command[0], stdin, stderr) == (sys.executable, subprocess.DEVNULL, subprocess.STDOUT)
        return start_python(command[1:], **more)

    monkeypatch.setattr(bench_gpu, "subprocess", Event(**{**vars(subprocess), "Popen": start}))


@pytest.mark.long
def test_all_of_it_at_toy_size(forked, interpreter, tmp_path, capsys):
    code = bench_gpu.main(["toy=true", f"out={tmp_path / 'out'}", f"mjlab_python={interpreter()}"])
    shown = capsys.readouterr().out.replace("\n", " ")
    found = {name: content(tmp_path / "out", name) for name in PARTS}
    assert code == 0, shown
    for name, part in found.items():
        assert part["state"] == "done", part
        assert part["headline"] in shown
        assert part["met"] is None, "figures of a toy meet no goal"
        assert part["toy"]
        assert {"cpu", "cores"} <= set(part["machine"])
        assert "torch" in part["versions"]
        assert part["part"] == name
    assert (
        set(found["env"]["runs"])
        == set(found["env"]["time_over_engine"])
        == {"go2_flat 16", "go2_flat 4", "go2_rough 4"}
    )
    assert found["rollout"]["problem"] == "graphs are CUDA's"
    assert found["rollout"]["time_over_physics"] > 0
    assert set(found["rollout"]["calls"]) == {"graph", "launches"}
    assert found["walk"]["reached_s"] == {"1": None}
    assert [point["iteration"] for point in found["walk"]["curves"]["1"]] == [1, 2]
    assert found["update"]["comparisons"][0]["ratio"] > 0
    assert found["mjlab"]["rows"][1]["who"] == "mjlab, default"
    assert set(found["memory"]["mib"]) == {"4", "8", "16"}
    assert found["parity"]["steps"]["1"]["qpos"] == 0.0, "MuJoCo compared with itself"
    assert set(found["parity"]["steps"]) == {str(step) for step in range(1, 11)}
    assert set(found["tests"]["counts"]) == {"skipped"}
    summary = content(tmp_path / "out", "summary")
    assert [part["state"] for part in summary["parts"].values()] == ["done"] * len(PARTS)
    assert {"machine", "versions", "code", "seconds", "card"} <= set(summary)
