"""The CI script and the make targets, run with stand-ins for the tools they call."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fake_ci(tmp_path):
    """A tree with the CI script, and a PATH on which make, dpkg and apt-get record their arguments."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    tools = tmp_path / "tools"
    tools.mkdir()

    def run(failing="", installed=True):
        bodies = {
            "make": f'echo "make $* $ROBOT_RL_REQUIRE_ALL" >> log; [ "$1" != "{failing}" ]',
            "dpkg": "exit 0" if installed else "exit 1",
            "apt-get": 'echo "apt-get $*" >> log',
            "sudo": '"$@"',
        }
        for name, body in bodies.items():
            (tools / name).write_text(f"#!/bin/bash\n{body}\n")
            (tools / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout, (tmp_path / "log").read_text().splitlines()

    return run


def test_ci_checks_and_tests_with_everything_required(fake_ci):
    code, out, log = fake_ci()
    assert code == 0
    stages = ["make install-dev 1", "make check 1", "make test 1", "make test-deploy 1", "make test-cluster 1"]
    assert [line for line in log if "isaac" not in line] == stages
    isaac = [line for line in log if "isaac" in line]
    assert isaac == ["make isaac-python 1", "make isaac 1", "make isaac-python 1", "make test-isaac 1"]
    assert log.index("make install-dev 1") < log.index("make isaac 1") < log.index("make test-deploy 1")
    minutes = out.partition("== minutes\n")[2].splitlines()
    names = ["system", "install", "check", "test", "quiet", "deploy", "cluster", "isaac"]
    assert [line.split()[0] for line in minutes] == names
    assert all(line.endswith("min") for line in minutes)


def test_ci_installs_the_packages_it_lists(fake_ci):
    code, _, log = fake_ci(installed=False)
    assert code == 0
    assert log[0] == "apt-get update -q"
    listed = (ROOT / ".ci" / "apt.txt").read_text().split()
    assert log[1].startswith("apt-get install")
    assert log[1].split()[-len(listed) :] == listed
    assert {"chromium", "libegl1", "libosmesa6"} <= set(listed)


def test_ci_leaves_isaac_lab_out_where_no_python_fits(fake_ci):
    code, out, log = fake_ci(failing="isaac-python")
    assert code == 0
    assert log[-1] == "make isaac-python 1"
    assert "left out: Isaac Lab needs a Python 3.12" in out


def test_ci_goes_on_where_isaac_lab_could_not_be_installed_meanwhile(fake_ci):
    code, _, log = fake_ci(failing="isaac")
    assert code == 0
    assert log[-1] == "make test-isaac 1"


def test_ci_stops_where_a_stage_fails(fake_ci):
    code, out, log = fake_ci(failing="check")
    assert code != 0
    assert [line for line in log if "isaac" not in line] == ["make install-dev 1", "make check 1"]
    assert "make test-isaac 1" not in log
    assert "check" in out.splitlines()[-1]
    assert out.splitlines()[-1].endswith("FAILED")


def dry(*words):
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_make_run_goes_all_the_way():
    commands = " ".join(dry("run", "TRAIN=seed=3 learner=ppo").split())
    steps = ["train task=go2_flat seed=3 learner=ppo", "export", "eval", "video", "report"]
    places = [commands.index(f"robot-rl {step}") for step in steps]
    assert places == sorted(places)
    assert "robot-rl play" in commands


def test_make_run_learns_as_is_quickest_here():
    learner = "" if Path("/dev/nvidia0").exists() else " learner=world_model"
    assert f"robot-rl train task=go2_flat{learner} seed=3" in " ".join(dry("run", "TRAIN=seed=3").split())
    assert "robot-rl train task=cartpole" in dry("run", "TASK=cartpole")
    assert "learner=" not in dry("run", "TASK=cartpole")


def test_pytorch_is_installed_first_and_from_the_given_index():
    commands = dry("run", "VENV=nowhere", "TORCH_INDEX=https://example.org/cpu")
    lines = [line for line in commands.splitlines() if "pip" in line and " install " in line]
    assert lines[0].endswith("-c constraints.txt --index-url https://example.org/cpu torch")
    assert lines[1].endswith("-c constraints.txt -e '.'")
    assert "index-url" not in dry("run", "VENV=nowhere")
