"""robot-rl profile: the table, the advice, the files, and what it refuses."""

import json

import pytest

from robot_rl.cli.profile import advise

TREE = {
    "device": "cpu",
    "num_threads": 0,
    "num_envs": 64,
    "sim": {"iterations": 5, "decimation": 3},
    "actor": {"hidden": [512, 256, 128]},
    "critic": {"hidden": [128, 128]},
    "ppo": {"epochs": 5, "minibatches": 4},
}


def made(part, stage):
    return {"limit": part, "parts": {part: {"share": 0.6}}, "stages": {part: {stage: {"share": 0.45}}}}


def test_the_table_and_the_files(run, in_tmp, tiny):
    settings = [word for word in tiny if not word.startswith("max_iterations")]
    code, out, err = run("profile", "task=cartpole", *settings, "iterations=2", "out=p.json", "trace=t.json")
    assert code == 0, err
    for word in ("simulate", "physics", "infer", "learn", "backward", "clip and Adam", "other", "limited by"):
        assert word in out
    result = json.loads((in_tmp / "p.json").read_text())
    assert (result["name"], result["notes"]["worlds"], result["notes"]["actor.hidden"]) == ("profile cartpole", 4, [8])
    assert result["advice"] in out
    assert json.loads((in_tmp / "t.json").read_text())["traceEvents"]
    assert sorted(path.name for path in in_tmp.iterdir()) == ["p.json", "t.json"]  # No run directory.


@pytest.mark.parametrize(
    ("part", "stage", "words"),
    [
        ("simulate", "physics", ("75% of it physics", "sim.iterations (now 5)", "num_threads, now all")),
        ("learn", "backward", ("actor.hidden (now [512, 256, 128])", "ppo.epochs (now 5)")),
        ("learn", "clip and Adam", ("ppo.minibatches (now 4)",)),
        ("learn", "values and advantages", ("critic.hidden (now [128, 128])",)),
        ("simulate", "cameras", ("more cores or a GPU",)),
    ],
)
def test_the_advice_names_settings_and_their_values(part, stage, words):
    line = advise(made(part, stage), TREE)
    assert all(word in line for word in words)


def test_advice_without_stages():
    result = {"limit": "other", "parts": {"other": {"share": 0.6}}, "stages": {}}
    assert advise(result, TREE).startswith("to change that: fewer checkpoints (save_interval=)")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "task: is missing; write task=<name>, task=gym:<id>, task=isaac/<id>, task=mamujoco:"),
        (("task=cartpol",), "did you mean 'cartpole'"),
        (("task=cartpole", "iterations=0"), "iterations=0: must be in [1, 100000]"),
        (("task=cartpole", "iterations=many"), "iterations=many: must be a whole number"),
        (("task=cartpole", "num_env=3"), "unknown key 'num_env': did you mean 'num_envs'"),
        (("task=cartpole", "trace=trace.txt"), "trace=trace.txt: must end in .json or .json.gz"),
        (("task=cartpole", "out=nowhere/p.json"), "out=nowhere/p.json: there is no folder nowhere"),
    ],
)
def test_what_cannot_be_profiled(run, in_tmp, words, line):
    code, _, err = run("profile", *words)
    assert code == 2
    assert line in err
    assert err.count("\n") == 1
