"""One grammar of settings: what an argument means, and which ones are refused."""

import re

import pytest

from robot_rl.errors import UserError
from robot_rl.runs.settings import change, default_tree, resolve
from robot_rl.settings.words import REMOVED, parse_value, read_changes

TREE = default_tree("cartpole", "cpu")


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["seed=2"], {"seed": 2}),
        (["++seed=2"], {"seed": 2}),
        (["~rewards.upright"], {"rewards.upright": REMOVED}),
        (["actor.hidden=[8,1e1]", "root='a b'"], {"actor.hidden": [8, 10.0], "root": "a b"}),
        (["rewards.upright={weight: 3}"], {"rewards.upright": {"weight": 3}}),
        (["root=läufe"], {"root": "läufe"}),
        ([], {}),
    ],
)
def test_words_are_changes(words, changes):
    assert read_changes(words) == changes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["+seed=2"], "'+seed=2': settings can be changed, not added; omit the +"),
        (["seed=1,2"], "'seed=1,2': several values are a sweep, which robot-rl train -m makes"),
        (["~seed=1"], "'~seed=1': leave the value out, ~seed"),
        (["a@b=1"], "has a package (@)"),
        (["a=[1"], "a=[1: cannot be read"),
        (["a.b=1", "~a"], "a.b=1 and ~a: a.b is given twice"),
    ],
)
def test_what_is_no_change_is_one_line(words, message):
    with pytest.raises(UserError, match=re.escape(message) if "twice" not in message else "a.b is given twice"):
        read_changes(words)


def test_a_value_of_its_own_is_read_alike():
    assert parse_value("[1, 2.5, off]", "x") == read_changes(["x=[1, 2.5, off]"])["x"]
    with pytest.raises(UserError, match="worlds=1,2: several values are a sweep"):
        parse_value("1,2", "worlds")


def test_what_a_task_can_be_without_is_left_out():
    changed = change(TREE, {"rewards.upright": REMOVED, "rewards.effort.weight": -1})
    assert list(resolve(changed).task.rewards) == [name for name in TREE["rewards"] if name != "upright"]
    for key, right in (
        ("sim.timestep", "omit the ~ and give a value"),
        ("rewards", "omit its parts, such as"),
    ):
        with pytest.raises(UserError, match=f"~{key}: can be changed but not omitted; {right}"):
            change(TREE, {key: REMOVED})
    with pytest.raises(UserError, match=r"unknown key 'rewards.uprigth': did you mean 'rewards.upright'"):
        change(TREE, {"rewards.uprigth": REMOVED})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eval policy=go2_flat ~rewards", "~rewards: can be changed but not omitted; omit its parts, such as"),
        ("eval policy=go2_flat ~events.pushh", "unknown key 'events.pushh': did you mean 'events.push'?"),
        ("play policy=go2_flat +sim.timestep=1", "settings can be changed, not added"),
        ("record policy=go2_flat sim.timestep=1,2", "several values are a sweep, which robot-rl train -m makes"),
        ("sim2sim policy=go2_flat ~sim", "~sim: can be changed but not omitted"),
        ("profile task=cartpole ~sim.timestep", "~sim.timestep: can be changed but not omitted"),
        (
            "terrain rough ~terrain.tiles",
            "~terrain.tiles: can be changed but not omitted; omit its parts, such as",
        ),
        ("bench env task=cartpole ~sim.timestep", "~sim.timestep: can be changed but not omitted"),
    ],
)
def test_every_command_reads_it(run, in_tmp, line, message):
    code, out, err = run(*line.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert message in err
    assert list(in_tmp.iterdir()) == []
