"""Who may import what a run's settings name."""

import shutil
import stat
import sys
from pathlib import Path

import pytest

from robot_rl.errors import UserError
from robot_rl.runs import trust

GYM = {"task": "gym:their_module:Their-v0"}
MODULE = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

gymnasium.register("Their-v0", entry_point=PendulumEnv, max_episode_steps=5)
"""
SMALL = ("num_envs=2", "num_steps=8", "ppo.minibatches=2", "max_iterations=1", "actor.hidden=[8]", "critic.hidden=[8]")


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """Become another user."""

    def at(name):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))

    at("here")
    return at


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        ({"task": "cartpole"}, []),
        ({"task": "gym:Pendulum-v1", "env": {"f": "os:system"}}, []),
        ({"task": "their.tasks:make_task"}, ["their.tasks"]),
        (GYM, ["their_module"]),
        ({"task": "gym:a.b:ALE/Pong-v5"}, ["a.b"]),
        ({"task": "isaac/mod:Their-v0", "env": {}}, ["mod"]),
        ({"task": "isaac/Isaac-Ant", "env": {"scene": {"usd": "omniverse://a/b.usd"}, "dt": 0.1}}, []),
        ({"task": "isaac/Isaac-Ant", "env": {"rewards": {"a": {"func": "os:system"}}}}, ["os:system"]),
        ({"task": "isaac/Isaac-Ant", "env": {"f": ["lambda x: x"]}}, ["lambda x: x"]),
        ({"task": 3}, []),
        ({}, []),
    ],
)
def test_what_settings_would_import(tree, code):
    assert trust.named_code(tree) == code


def test_only_the_user_who_made_a_run_needs_no_trust_setting(at_home):
    sealed = trust.seal(GYM)["seal"]
    trust.require_trust(GYM, sealed, "run x", trust=False)
    for tree, seal in (({"task": "gym:other:Their-v0"}, sealed), (GYM, None), (GYM, "\u00e9"), (GYM, 3)):
        with pytest.raises(UserError, match=r"task=gym:.*: run x was not made here.*give trust=true"):
            trust.require_trust(tree, seal, "run x", trust=False)
        trust.require_trust(tree, seal, "run x", trust=True)
    for _ in range(2):
        at_home("elsewhere")
        with pytest.raises(UserError, match="would import their_module"):
            trust.require_trust(GYM, sealed, "run x", trust=False)
        trust.seal(GYM)


def test_the_key_is_the_users_own(at_home, tmp_path):
    assert trust.seal({"task": "cartpole"}) == {}
    assert not (tmp_path / "here").exists()
    assert trust.seal(GYM) == trust.seal(GYM)
    (key,) = (tmp_path / "here" / "robot-rl").iterdir()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.write_bytes(b"short")
    assert trust.seal(GYM) == {}


def test_where_no_key_can_be_kept_runs_have_no_seal(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert trust.seal(GYM) == {}
    monkeypatch.setenv("XDG_STATE_HOME", "")

    def home():
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", home)
    assert trust.seal(GYM) == {}


def test_somebody_elses_run_imports_its_module_only_where_it_is_trusted(run, in_tmp, at_home, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (in_tmp / "their_module.py").write_text(MODULE)
    words = ("train", "task=gym:their_module:Their-v0", *SMALL, "run_id=theirs")
    assert run(*words)[0] == 0
    evaluate = ("eval", "run=theirs", "episodes=1")
    assert run(*evaluate)[0] == 0
    at_home("there")
    shutil.rmtree(in_tmp / "__pycache__", ignore_errors=True)
    (in_tmp / "their_module.py").write_text("raise SystemExit('imported')")
    sys.modules.pop("their_module")
    commands = (evaluate, ("video", "run=theirs"), ("resume", "theirs", "max_iterations=2"), ("drill", "theirs"))
    for command in commands:
        code, _, err = run(*command)
        assert (code, len(err.splitlines())) == (2, 1)
        assert "run theirs was not made here, and would import their_module; give trust=true" in err
    for command in ("play", "export", "sign", "record"):
        out = ("key=k", "run=theirs") if command == "sign" else ("run=theirs",)
        assert run(command, *out)[0] == 2
    (in_tmp / "their_module.py").write_text(MODULE)
    assert run(*evaluate, "trust=true")[0] == 0
    assert run(*evaluate)[0] == 2
    assert run("resume", "theirs", "max_iterations=2", "trust=true")[0] == 0
    assert run(*evaluate)[0] == 0  # It goes on here, so it is made here.
    sys.modules.pop("their_module")


NATIVE = """
from robot_rl_tasks.registry import get_task


def make_task():
    task = get_task("cartpole")
    task.name = "their_cart"
    return task
"""


def test_a_task_named_by_its_module_is_a_run_of_its_own_name(run, in_tmp, at_home, tiny, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (in_tmp / "their_tasks.py").write_text(NATIVE)
    assert run("train", "task=their_tasks:make_task", *tiny)[0] == 0
    (path,) = (in_tmp / "runs").glob("their_cart/*")
    evaluate = ("eval", "run=their_cart/latest", "episodes=2", "seconds=1.5", "form=torch")
    assert run(*evaluate)[0] == 0
    assert run("resume", path.name, "max_iterations=3", "~rewards.effort", "fresh_worlds=true")[0] == 0
    at_home("there")
    sys.modules.pop("their_tasks")
    for command in (evaluate, ("resume", path.name, "max_iterations=4")):
        code, _, err = run(*command)
        assert (code, "would import their_tasks; give trust=true" in err) == (2, True)
    assert "their_tasks" not in sys.modules
    assert run(*evaluate, "trust=true")[0] == 0
    sys.modules.pop("their_tasks")


@pytest.mark.long
def test_a_bundle_of_such_a_task_needs_trust(run, in_tmp, at_home, tiny, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (in_tmp / "their_tasks.py").write_text(NATIVE)
    assert run("train", "task=their_tasks:make_task", *tiny, "run_id=one")[0] == 0
    path = in_tmp / "runs" / "their_cart" / "one"
    assert run("export", "run=latest")[0] == 0
    shutil.copytree(path / "policy", in_tmp / "bundle")
    bundle = ("eval", "policy=bundle", "episodes=2", "seconds=1.5")
    assert "policy bundle was not made here, and would import their_tasks" in run(*bundle)[2]
    assert run(*bundle, "trust=true")[0] == 0
    sys.modules.pop("their_tasks")
