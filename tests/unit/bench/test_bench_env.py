"""The environment's benchmark: the stages of a step, and the rival in a process of its own."""

import json
import stat
import sys

import pytest
from robot_rl_envs.make import make_env as make
from robot_rl_tasks.registry import get_task

from robot_rl.bench import mjlab
from robot_rl.bench.env import bench_env, ours_settings
from robot_rl.bench.profile import MIRRORS, PHYSICS, REST, _watched
from robot_rl.cli import bench as cli
from robot_rl.errors import UserError

# A rival that answers as the worker does; the first configuration is quickest at 4 worlds, the others at 2.
FAKE = """
import json, sys
made = {}
for line in sys.stdin:
    request = json.loads(line)
    name, do = request["name"], request["do"]
    if do == "make":
        made[name] = request["num_envs"]
        answer = {"num_envs": request["num_envs"], "cone": request["sim"].get("mujoco.cone", "elliptic")}
    elif do == "block":
        assert name in made
        slow = made[name] if name.endswith("default") else made[name] ** 3
        answer = {"seconds": request["steps"] * slow / (made[name] + 1) / 10}
    else:
        answer = {"contacts_per_world": 2.0}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def make_env():
    return lambda: make(get_task("go2_flat"), num_envs=8, device="cpu", seed=1)


def interpreter(tmp_path, script):
    """An executable that runs `script` whatever it is told to run."""
    (tmp_path / "fake.py").write_text(script)
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'fake.py'}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_stages_add_up(make_env):
    result = bench_env(make_env, repeats=2)
    assert json.loads(json.dumps(result)) == result
    stages = result["profile"]["stages"]
    assert {PHYSICS, MIRRORS, REST, "act kernel", "results handed out"} <= set(stages)
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(1.0, abs=0.001)
    assert all(stage["share"] >= 0.0 for stage in stages.values())
    assert "profile" not in bench_env(make_env, repeats=2, profile=False)


def test_the_stopwatch_leaves_nothing_behind(make_env):
    env = make_env()
    owners = (env, env.engine, env.engine.batch, env._act, env._after_and_observe, env._torch_terms)
    before = [dict(vars(owner)) for owner in owners]
    with _watched(env):
        assert any(vars(owner) != known for owner, known in zip(owners, before, strict=True))
    assert [set(vars(owner)) for owner in owners] == [set(known) for known in before]
    env.close()


def test_the_rival_is_measured_in_turn_where_it_is_best(make_env, tmp_path):
    lines = []
    python = interpreter(tmp_path, FAKE)
    result = mjlab.bench_mjlab(make_env, python, repeats=2, worlds=(2, 4), say=lines.append)
    assert json.loads(json.dumps(result))["rows"] == result["rows"]
    assert [row["who"] for row in result["rows"]] == ["go2_flat on mujoco", *mjlab.CONFIGURATIONS]
    settings = result["notes"]["settings"]
    assert [settings[who]["num_envs"] for who in mjlab.CONFIGURATIONS] == [4, 2, 2]
    # 4 worlds in 4 / 5 / 10 s a step: 50 a second.
    assert result["rows"][1]["value"] == pytest.approx(50.0)
    assert result["ratio"] == pytest.approx(result["rows"][0]["value"] / 50.0, rel=0.5)
    assert settings["mjlab, fastest found"]["cone"] == settings["go2_flat on mujoco"]["cone"] == "pyramidal"
    assert set(result["notes"]["ratios"]) == set(mjlab.CONFIGURATIONS)
    assert lines[-1].startswith("turn 2 of 2")


def test_settings_are_those_of_the_model(make_env):
    env = make_env()
    settings = ours_settings(env, sample=2)
    env.close()
    assert settings["decimation"] * settings["timestep_s"] == pytest.approx(env.step_dt)
    assert settings["iterations"] == env.cfg.sim.iterations
    assert settings["solver"] == "newton"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("raise SystemExit('no module named mjlab')", "no module named mjlab"),
        ('input(); print(\'{"error": "KeyError: cone"}\', flush=True); input()', "KeyError: cone"),
    ],
)
def test_a_rival_that_fails_is_one_line(tmp_path, script, line):
    with mjlab.Rival(interpreter(tmp_path, script)) as rival, pytest.raises(UserError, match=line):
        rival.ask("make", "mjlab, default", num_envs=1, sim={}, seed=0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rival=nobody"], "rival=nobody: must be mjlab"),
        (["rival=mjlab", "rival_python=/not/there"], "rival_python=/not/there: .*make rival-mjlab"),
        (["rival=mjlab", "rival_python=/bin/sh", "rival_worlds=[0]"], "rival_worlds=.*at least 1"),
        (["rival=mjlab", "device=cuda"], "device=cuda: rival=mjlab is measured on the CPU"),
    ],
)
def test_bad_input_is_one_line(words, line):
    with pytest.raises(UserError, match=line):
        cli.bench_env(words)


def test_the_table_shows_stages_and_settings(capsys):
    result = {
        "name": "env x",
        "machine": {"cpu": "a CPU", "cores": 2},
        "rows": [{"who": "ours", "value": 2000.0, "spread": 1.0, "unit": "steps/s"}],
        "profile": {"step_ms": 2.0, "stages": {"physics": {"share": 0.75, "ms": 1.5}}},
        "notes": {"device": "cpu", "settings": {"ours": {"cone": "pyramidal"}, "theirs": {"timestep_s": 0.005}}},
    }
    cli.show(result)
    shown = capsys.readouterr().out
    for word in ("2,000", "75.0%", "1.500", "device: cpu", "pyramidal", "0.005"):
        assert word in shown
