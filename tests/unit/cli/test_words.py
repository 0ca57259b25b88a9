"""Arguments of every command that are unknown or misleading: one line that names them, and exit code 2."""

import json
import os
import stat

import pytest
import torch

from robot_rl.cli.process import VARIABLES, cache_variables
from robot_rl.errors import UserError
from robot_rl.runs import training
from robot_rl.settings.tree import override
from robot_rl.settings.words import parse_value

TASK = "task=cartpole"
TRAIN = [
    (["seed=1", "seed=2"], "seed=1 and seed=2: seed is given twice"),
    (["seed=1", "+seed=2"], "seed=1 and +seed=2: seed is given twice"),
    (["seed=1", "++seed=2"], "seed=1 and ++seed=2: seed is given twice"),
    (["-m", "seed=1,2", "seed=3"], "seed=1,2 and seed=3: seed is given twice"),
    (["task=go2_flat"], "task=cartpole and task=go2_flat: task is given twice"),
    (["rewards.upright={weight:3}", "rewards.upright.weight=4"], "rewards.upright.weight is given twice"),
    (["~rewards.upright", "rewards.upright.weight=4"], "rewards.upright.weight is given twice"),
    (["root=[a,b]"], "root=[a,b]: would be read as ['a', 'b']"),
    (["root=null"], "root=null: would be read as None"),
    (["root=1_0"], "root=1_0: would be read as 10"),
    (["-m", "root=a,[b]"], "root=[b]: must name the directory of all runs"),
    (["run_id=-rf"], "run_id=-rf: must be up to 100 of"),
    (
        ["-m", "run_id=a", "seed=1,2"],
        "run_id=a: a sweep makes several runs; give each an id, such as 'run_id=a-${seed}'",
    ),
    (["hydra.run.dir="], "'hydra.run.dir=': is one of Hydra's own settings; use launcher=, sweeper= and root="),
    (["hydra/job_logging=default"], "is one of Hydra's own settings"),
    (["-m", "seed=1,2", "hydra/launcher=joblib"], "is one of Hydra's own settings; use launcher="),
    (["rewards={}"], "rewards={}: is a group; set one of rewards.upright, "),
    (["~rewards"], "~rewards: can be changed but not omitted; omit its parts, such as ~rewards.centred "),
    (["~ppo"], "~ppo: can be changed but not omitted"),
    (["~sim.timestep"], "~sim.timestep: can be changed but not omitted"),
    (
        [f"~rewards.{name}" for name in ("upright", "energy", "effort", "centred", "pole_vel")],
        "rewards={}: needs at least one",
    ),
    (["observations={}"], "observations={}: is a group"),
    (["rewards={uprigth:{weight:3}}"], "unknown key 'rewards.uprigth': did you mean 'rewards.upright'?"),
    (["actor.hidden={a:1}"], "actor.hidden={'a': 1}: is not a group; give one value, such as actor.hidden=[64, 64]"),
    (["seed@x=1"], "'seed@x=1': has a package (@)"),
    (["--cfg", "foo"], "--cfg 'foo': must be job"),
    (["--cfg"], "--cfg '': must be job"),
    (["--resolve"], "--resolve: only changes what --cfg prints; add --cfg job"),
    (["episode_length_s=inf"], "episode_length_s=inf: must be a finite number"),
    (["episode_length_s=.inf"], "episode_length_s=.inf: must be a finite number"),
    (["episode_length_s=1e30"], "episode_length_s=1e+30: must last at least a control step of 0.04 s and at most"),
    (["episode_length_s=1e-9"], "episode_length_s=1e-09: must last at least a control step"),
    (["ppo.gamma=.nan"], "ppo.gamma=nan: must be in"),
    (["actor.hidden=32"], "actor.hidden=32: must be a list; such as [32]"),
    (["num_threads=99999999999"], "num_threads=99999999999: must be in [0, 4096]"),
    (["num_envs=010"], "num_envs='010': must be a whole number"),
    (["sim.floor_friction=-1"], "sim.floor_friction=-1.0: must be >= 0"),
    (["root=a\nb"], "root=a b: contains a control character"),
    (["root=\udcff"], "contains a control character or bytes that are not UTF-8"),
]
OTHERS = [
    ("eval policy=go2_flat episodes=9999999999", "episodes=9999999999: must be in [1, 1048576]"),
    ("eval policy=go2_flat seed=-7", "seed=-7: must be in [0, 2147483647]"),
    ("eval policy=go2_flat episodes=١", "episodes='١': must be a whole number"),
    ("eval policy=go2_flat seconds=inf", "seconds=inf: must be a finite number"),
    ("eval run=", "run= is empty; give a value, or leave run= out for the default"),
    ("eval run=a run=b", "run=a and run=b: run is given twice"),
    ("eval policy=go2_flat commands.velocity.vx_hi=-9", "commands.velocity.vx_lo=-1: must be at most vx_hi=-9"),
    ("eval policy=go2_flat commands.velocity.vx_lo=.inf", "commands.velocity.vx_lo=.inf: must be a finite number"),
    ("eval policy=go2_flat rewards.track.std=0", "std=0: must be greater than 0"),
    ("eval policy=go2_flat rewards.track={}", "rewards.track={}: is a group"),
    ("eval policy=go2_flat sim.decimation=010", "sim.decimation='010': must be"),
    ("play policy=go2_flat seconds=nan", "seconds=nan: must be a finite number"),
    ("play policy=go2_flat seconds=-1", "seconds=-1.0: must be in [0, 1e+06]"),
    ("play policy=go2_flat port=99999", "port=99999: must be in [0, 65535]"),
    ("video policy=go2_flat seed=-1", "seed=-1: must be in [0, 2147483647]"),
    ("record policy=go2_flat worlds=0", "worlds=0: must be in [1, 65536]"),
    ("sim2sim policy=go2_flat tick=nan", "tick=nan: must be a finite number"),
    ("sim2sim policy=go2_flat settings=a:1,a:2", "settings=a:1,a:2: a is given twice"),
    ("sim2sim policy=go2_flat settings=a:nan", "'a:nan' must be name:number"),
    ("terrain stairs seed=-1", "seed=-1: must be in [0, 2147483647]"),
    ("terrain stairs seed=3 terrain.seed=4", "terrain.seed=4: is given twice, the other time as 3"),
    ("profile task=cartpole iterations=999999999", "iterations=999999999: must be in [1, 100000]"),
    ("bench learner num_envs=[99999999]", "must be whole numbers from 1 to 1048576"),
    ("bench gymnasium seeds=1", "bench gymnasium: is a script of the source checkout now"),
    ("bench env rival=mjlab", "run python benchmarks/env_mjlab.py"),
    ("cross deep.json", "deep.json: damaged, its JSON is nested too deeply"),
    ("sim2sim policy=go2_flat faults=deep.json", "faults"),
    ("cross endless.json", "endless.json: damaged, cannot convert float infinity"),
]


@pytest.fixture
def resolved(monkeypatch):
    """The settings that `robot-rl train` would have trained with; nothing is trained."""
    found = []
    monkeypatch.setattr(training, "train", found.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("words", "message"), TRAIN)
def test_train_refuses_what_it_would_misread(run, in_tmp, resolved, words, message):
    code, out, err = run("train", TASK, *words)
    assert (code, out, resolved, len(err.splitlines())) == (2, "", [], 1), err
    assert message in err
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize(("line", "message"), OTHERS)
def test_other_commands_refuse_it_too(run, in_tmp, line, message):
    cell = {"task": "t", "policy": "p", "engine": "mujoco", "torch": {"failure_rate": {"mean": 0}}, "seconds": 1}
    cell["metrics"] = {"return": {"unit": "1", "meaning": "", "better": "larger"}}
    files = {"deep.json": "[" * 100_000, "endless.json": json.dumps({**cell, "episodes": float("inf")})}
    for name, text in files.items():
        (in_tmp / name).write_text(text)
    code, out, err = run(*line.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert message in err
    assert sorted(path.name for path in in_tmp.iterdir()) == sorted(files)


@pytest.mark.parametrize(
    "words",
    [
        ["-m", TASK, "seed=1,2"],
        [TASK, "--multirun", "seed=1,2", "-m"],
    ],
)
def test_the_flag_of_a_sweep_may_stand_anywhere(run, in_tmp, resolved, words):
    assert run("train", *words)[0] == 0
    assert [cfg.seed for cfg in resolved] == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("root", ["läufe", "läufe/日本", "runs 2", "2024", "./1_0"])
def test_a_root_may_be_called_anything(run, in_tmp, resolved, root):
    code, _, err = run("train", TASK, f"root={root}")
    assert (code, err) == (0, "")
    assert str(resolved[0].root) == root.removeprefix("./")


def test_a_group_given_as_a_whole_changes_what_it_names(run, in_tmp, resolved):
    assert run("train", TASK, "rewards={upright:{weight:3}}", "rewards.centred.weight=-4")[0] == 0
    rewards = resolved[0].task.rewards
    assert (rewards["upright"].weight, rewards["centred"].weight, len(rewards)) == (3.0, -4.0, 5)
    tree = {"actor": {"conv": {"features": 64, "groups": []}}}
    assert override(tree, {"actor": {"conv": {"features": 3}}}) == {"actor": {"conv": {"features": 3, "groups": []}}}
    with pytest.raises(UserError, match=r"actor.conv.features is given twice"):
        override(tree, {"actor": {"conv": {"features": 3}}, "actor.conv.features": 4})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("010", "010"), ("1:30", "1:30"), ("0x10", "0x10"), ("2024-01-01", "2024-01-01"), ("yes", "yes")),
        *(("1_000", 1000), ("-3", -3), (".5", 0.5), ("1e3", 1000.0), ("TRUE", True), ("[1e-3, off]", [1e-3, "off"])),
        *((".inf", ".inf"), ("-inf", float("-inf")), ("null", None), ("", "")),
    ],
)
def test_values_are_read_as_train_reads_them(text, value):
    found = parse_value(text, "x")
    assert (found, type(found)) == (value, type(value))


def test_caches_move_where_home_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", "/proc/nope")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = cache_variables({"MPLCONFIGDIR": "/mine"})
    folder = tmp_path / f"robot-rl-{os.getuid()}"
    assert found == dict.fromkeys((name for name in VARIABLES if name != "MPLCONFIGDIR"), str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)  # Anybody could put kernels into it.
    assert cache_variables({})["XDG_CACHE_HOME"] != str(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_variables({}) == {}
