"""robot-rl new: the skeletons work as they are, in a copy of the source tree."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of what the registries look at."""
    for name in ("tasks", "sim_assets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "policy"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def in_copy(start_python, copy):
    """Runs Python in the copy, with the copy's packages first on the path; returns the output."""
    env = {**os.environ, "PYTHONPATH": f"{copy / 'tasks'}{os.pathsep}{copy / 'sim_assets'}"}

    def call(*words):
        process = start_python(words, cwd=copy, env=env)
        output, _ = process.communicate()
        assert process.returncode == 0, output
        return output

    return call


@pytest.mark.long
def test_a_new_robot_and_new_tasks_pass_their_tests(run, copy, in_copy):
    root = f"root={copy}"
    assert run("new", "robot", "demo_arm", root)[0] == 0
    in_copy("-m", "robot_rl.cli.main", "new", "task", "hold_arm", "robot=demo_arm", root)
    assert run("new", "task", "hold_go2", root)[0] == 0
    made = [str(path) for name in ("demo_arm", "hold_arm", "hold_go2") for path in copy.rglob(f"*{name}*")]
    for check in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *check, *made], cwd=copy, check=True)
    assert "3 passed" in in_copy("-m", "pytest", "-q", "tests")
    in_copy("-m", "robot_rl.cli.main", "train", "task=hold_arm", "num_envs=4", "num_steps=4", "max_iterations=1")
    assert list(copy.glob("runs/hold_arm/*/checkpoints/000001"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["project", "torch"], "a package of that name can be imported here"),
        (["project", "My"], "a name is lower-case letters"),
        ([], "write robot-rl new task <name>"),
        (["task"], "write robot-rl new task <name>"),
        (["tsk", "x"], "did you mean 'task'?"),
        (["task", "Go2"], "a name is lower-case letters"),
        (["task", "../x"], "a name is lower-case letters"),
        (["task", "class"], "is a word of Python"),
        (["task", "cartpole"], "exists"),
        (["robot", "robot"], "exists"),
        (["robot", "unitree_go2"], "exists"),
        (["task", "x", "robot=unitree_go3"], "unitree_go2"),
        (["task", "x", "root=/nowhere"], "no source tree"),
        (["task", "x", "robt=unitree_go2"], "did you mean 'robot'?"),
    ],
)
def test_bad_names_write_nothing(run, words, message):
    before = sorted(path for name in ("tasks", "sim_assets") for path in (ROOT / name).glob("*/*"))
    code, _, err = run("new", *words)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(path for name in ("tasks", "sim_assets") for path in (ROOT / name).glob("*/*")) == before


def test_what_cannot_be_written_whole_is_removed_again(run, copy, monkeypatch):
    before = sorted(copy.rglob("*"))
    real, calls = Path.write_bytes, []

    def full(path, content):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    code, _, _ = run("new", "robot", "demo_arm", f"root={copy}")
    assert code == 74
    assert sorted(copy.rglob("*")) == before


@pytest.mark.long
def test_a_project_is_a_package_its_task_trains_and_its_tests_pass(run, in_tmp, tiny, monkeypatch):
    code, out, err = run("new", "project", "walkers")
    assert code == 0, err
    assert "cd walkers && robot-rl train task=walkers_task" in out
    project = in_tmp / "walkers"
    for check in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *check, project], check=True)
    monkeypatch.chdir(project)
    assert run("new", "robot", "second")[0] == 0
    monkeypatch.setattr(sys, "path", [*sys.path])
    code, out, err = run("new", "task", "lift", "robot=second")
    assert (code, "next: robot-rl train task=lift" in out) == (0, True), err
    assert (project / "tests" / "test_task_lift.py").is_file()
    for task in ("walkers_task", "lift"):
        code, _, err = run("train", f"task={task}", *tiny)
        assert code == 0, err
        assert list(project.glob(f"runs/{task}/*/checkpoints/000002"))
    assert run("eval", "run=walkers_task/latest", "episodes=2", "seconds=1.5", "form=torch")[0] == 0
    assert "walkers_robot holds its default pose" in run("list", "tasks")[1]
    assert pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", str(project), str(project / "tests")]) == 0


def test_a_project_is_made_once(run, in_tmp):
    assert run("new", "project", "strollers")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in (in_tmp / "strollers").rglob("*")}
    assert "strollers exists" in run("new", "project", "strollers")[2]
    assert {path: path.stat().st_mtime_ns for path in (in_tmp / "strollers").rglob("*")} == before
    assert "exists" in run("new", "task", "strollers_task", f"root={in_tmp / 'strollers'}")[2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[project]", "[project", "pyproject.toml: cannot be read: Expected ']'"),
        ('packages = ["pacers"]', 'packages = ["missing"]', "pyproject.toml: packages in [tool.hatch"),
        ('robots"]\n', 'robots"]\nlimb = "pacers.other:LIMB"\n', "has that name for pacers.other:LIMB"),
        ('robots"]\n', 'robots"]\nlimb = "pacers.limb.robot:ROBOT"\n', ""),
    ],
    ids=["unreadable", "without its folder", "another entry", "the same entry"],
)
def test_a_projects_file_is_neither_passed_over_nor_damaged(run, in_tmp, monkeypatch, old, new, message):
    assert run("new", "project", "pacers")[0] == 0
    file = in_tmp / "pacers" / "pyproject.toml"
    file.write_text(file.read_text().replace(old, new))
    before = file.read_text()
    monkeypatch.chdir(in_tmp / "pacers" / "pacers")
    code, _, err = run("new", "robot", "limb")
    assert (code, message in err, len(err.splitlines())) == ((2, True, 1) if message else (0, True, 0))
    assert file.read_text() == before
    assert not (ROOT / "sim_assets" / "robot_rl_assets" / "limb").exists()
