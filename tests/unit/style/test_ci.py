"""The CI script and the make targets, run with stand-ins for the tools they call."""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TARGETS = ["unit", "deploy", "cluster", "isaac"]


@pytest.fixture
def fake_ci(tmp_path):
    """A repository with the CI script and a file of each group, and tools on the PATH that record their words."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / ".ci" / "long.json").unlink(missing_ok=True)
    groups = "".join(f'[{name}]\ntarget = "{name}"\ntests = ["{name}.py"]\ncovers = ["src"]\n' for name in TARGETS)
    (tmp_path / ".ci" / "long.toml").write_text(groups)
    for name in (*TARGETS, "other"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / ".gitignore").write_text("tools\nlog\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    tools = tmp_path / "tools"
    tools.mkdir()

    def run(failing="", installed=True, script=("bash", ".ci/run")):
        bodies = {
            "make": f'echo "make $* $ROBOT_RL_REQUIRE_ALL" >> log; [ "$1" != "{failing}" ]',
            "dpkg": "exit 0" if installed else "exit 1",
            "apt-get": 'echo "apt-get $*" >> log',
            "sudo": '"$@"',
        }
        for name, body in bodies.items():
            (tools / name).write_text(f"#!/bin/bash\n{body}\n")
            (tools / name).chmod(0o755)
        (tmp_path / "log").write_text("")
        env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        env.pop("ROBOT_RL_REQUIRE_ALL", None)  # As of the check that runs this test.
        done = subprocess.run(script, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr, (tmp_path / "log").read_text().splitlines()

    return run


ALWAYS = [f"make {name} 1" for name in ("install-dev", "check", "docs", "test", "test-deploy", "test-cluster")]


def test_ci_runs_the_long_tests_only_while_what_they_test_is_changed(fake_ci, tmp_path):
    code, out, log = fake_ci()
    assert code == 0
    assert log[0] == ALWAYS[0]
    assert log.index("make isaac 1") < log.index("make test-deploy 1"), "installed meanwhile"
    assert [line for line in log if line != "make isaac 1"] == [
        *ALWAYS,
        *(f"make long-{name} TESTS={name}.py 1" for name in TARGETS),
    ]
    minutes = out.partition("== minutes\n")[2].splitlines()
    stages = ["system", "install", "check", "docs", "test", "quiet", "deploy", "cluster"]
    names = [*stages, *(f"long-{name}" for name in TARGETS)]
    assert [line.split()[0] for line in minutes] == names
    assert all(line.endswith("min") for line in minutes)
    assert set(json.loads((tmp_path / ".ci" / "long.json").read_text())) == set(TARGETS)

    code, out, log = fake_ci()
    assert (code, log) == (0, ALWAYS)
    assert "isaac: unchanged since its long tests passed" in out

    (tmp_path / "other.py").write_text("x = 1\n")
    assert fake_ci()[2] == ALWAYS
    (tmp_path / "cluster.py").write_text("x = 1\n")
    assert fake_ci()[2] == [*ALWAYS, "make long-cluster TESTS=cluster.py 1"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").write_text("")
    assert len([line for line in fake_ci()[2] if "long-" in line]) == len(TARGETS)


def test_a_group_that_changed_and_did_not_pass_fails_with_one_line(fake_ci, tmp_path):
    code, out, _ = fake_ci(failing="long-isaac")
    assert code != 0
    assert "isaac: changed, and the tests did not pass (make long-isaac)" in out.splitlines()
    assert "isaac" not in json.loads((tmp_path / ".ci" / "long.json").read_text())


def test_long_tests_are_run_and_named_by_hand(fake_ci):
    words = ["python3", ".ci/long.py"]
    assert fake_ci(script=[*words, "stale", "deploy", "unit"])[1].split() == ["unit", "deploy"]
    assert fake_ci(script=[*words, "run", "unit"])[2] == ["make long-unit TESTS=unit.py "]
    assert fake_ci(script=[*words, "run", "unit"])[2] == []
    assert len(fake_ci(script=[*words, "run", "all"])[2]) == len(TARGETS)
    assert fake_ci(script=[*words, "run", "all", "isaac"])[2] == ["make long-isaac TESTS=isaac.py "]
    code, out, _ = fake_ci(script=[*words, "run", "unti"])
    assert (code, out) == (2, "unti: no such group; known: all, cluster, deploy, isaac, unit\n")


def test_every_long_test_is_in_one_group():
    groups = tomllib.loads((ROOT / ".ci" / "long.toml").read_text())
    folders = [(ROOT / test, name) for name, group in groups.items() for test in group["tests"]]
    assert [path for path, _ in folders if not path.exists()] == []
    texts = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py") if "gpu" not in path.parent.name}
    marked = [path for path, text in texts.items() if "mark.long" in text or "tests.covering import" in text]
    assert len(marked) > 20
    for path in marked:
        if path != Path(__file__):
            assert len([name for folder, name in folders if path.is_relative_to(folder)]) == 1, path


def test_ci_installs_the_packages_it_lists(fake_ci):
    code, _, log = fake_ci(installed=False)
    assert code == 0
    assert log[0] == "apt-get update -q"
    listed = (ROOT / ".ci" / "apt.txt").read_text().split()
    assert log[1].startswith("apt-get install")
    assert log[1].split()[-len(listed) :] == listed
    assert {"chromium", "libegl1", "libosmesa6"} <= set(listed)


def test_ci_goes_on_if_isaac_lab_could_not_be_installed_meanwhile(fake_ci):
    code, _, log = fake_ci(failing="isaac")
    assert code == 0
    assert log[-1] == "make long-isaac TESTS=isaac.py 1"


def test_ci_stops_where_a_stage_fails(fake_ci):
    code, out, log = fake_ci(failing="check")
    assert code != 0
    assert [line for line in log if "isaac" not in line] == ["make install-dev 1", "make check 1"]
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
    assert "-c constraints.txt --index-url https://example.org/cpu torch " in lines[0]
    assert lines[1].endswith("-c constraints.txt -e '.'")
    assert "index-url" not in dry("run", "VENV=nowhere")
