"""Our environment compared with mjlab's: the order of the measurements, and what is refused."""

import json

import env_mjlab
import pytest
from env_mjlab import ours_settings
from robot_rl_envs.make import make_env as make
from robot_rl_tasks.registry import get_task

from robot_rl.errors import UserError


@pytest.fixture
def make_env():
    return lambda: make(get_task("go2_flat"), num_envs=8, device="cpu", seed=1)


def test_the_rival_is_measured_in_turn_where_it_is_best(make_env, interpreter):
    lines = []
    with env_mjlab.Rival(interpreter()) as rival:
        result = env_mjlab.bench_mjlab(make_env, rival, repeats=2, worlds=(2, 4), say=lines.append)
    assert json.loads(json.dumps(result))["rows"] == result["rows"]
    assert [row["who"] for row in result["rows"]] == ["go2_flat on mujoco", *env_mjlab.CONFIGURATIONS]
    settings = result["notes"]["settings"]
    assert [settings[who]["num_envs"] for who in env_mjlab.CONFIGURATIONS] == [4, 2, 2]
    # 4 worlds in 4 / 5 / 10 s a step: 50 a second.
    assert result["rows"][1]["value"] == pytest.approx(50.0)
    assert result["ratio"] == pytest.approx(result["rows"][0]["value"] / 50.0, rel=0.5)
    assert settings["mjlab, fastest found"]["cone"] == settings["go2_flat on mujoco"]["cone"] == "pyramidal"
    assert set(result["notes"]["ratios"]) == set(env_mjlab.CONFIGURATIONS)
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
def test_a_rival_that_fails_is_one_line(interpreter, script, line):
    with env_mjlab.Rival(interpreter(script)) as rival, pytest.raises(UserError, match=line):
        rival.ask("make", "mjlab, default", num_envs=1, sim={}, seed=0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rival_python=/not/there"], "rival_python=/not/there: .*make rival-mjlab"),
        (["rival_python=/bin/sh", "rival_worlds=[0]"], "rival_worlds=.*from 1 to"),
        (["device=cuda"], "unknown key 'device'"),
    ],
)
def test_bad_input_is_one_line(words, line):
    with pytest.raises(UserError, match=line):
        env_mjlab.main(words)
