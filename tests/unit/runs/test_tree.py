"""A task as a tree of plain values, and back."""

import json

import pytest
from robot_rl_tasks.registry import get_task, list_tasks

from robot_rl.errors import UserError
from robot_rl.settings.tree import apply_tree, coerce, dotted_keys, override, task_tree


@pytest.fixture
def task():
    return get_task("go2_flat")


@pytest.mark.parametrize("name", list_tasks())
def test_every_task_goes_there_and_back(name):
    task = get_task(name)
    tree = task_tree(task)
    again = apply_tree(task, json.loads(json.dumps(tree)))
    assert task_tree(again) == tree
    assert again.robot is task.robot
    for group in ("rewards", "terminations", "commands", "events"):
        assert {key: term.fn for key, term in getattr(again, group).items()} == {
            key: term.fn for key, term in getattr(task, group).items()
        }


def test_the_copy_is_changed_and_the_original_is_not(task):
    before = task_tree(task)
    changes = {
        "rewards.track.weight": 7,
        "rewards.track.std": 0.125,
        "observations.actor.terms.joint_pos.noise": 0,
        "commands.velocity.resample_s": [1, 2],
        "sim.timestep": 0.001,
    }
    changed = apply_tree(task, override(before, changes))
    assert (changed.rewards["track"].weight, changed.rewards["track"].params["std"]) == (7.0, 0.125)
    assert changed.observations["actor"].terms["joint_pos"].noise == 0.0
    assert changed.commands["velocity"].resample_s == (1.0, 2.0)
    assert changed.sim.timestep == 0.001
    assert task_tree(task) == before


def test_a_term_that_the_tree_lacks_is_left_out(task):
    tree = task_tree(task)
    del tree["rewards"]["track"]
    assert set(apply_tree(task, tree).rewards) == set(task.rewards) - {"track"}


def test_a_task_without_the_metric_that_counts_as_solved_has_no_bound(task):
    tree = task_tree(task)
    del tree["metrics"]["yaw_vel_error"]
    assert apply_tree(task, tree).solved == task.solved
    del tree["metrics"]["lin_vel_error"]
    assert apply_tree(task, tree).solved is None


def test_a_metric_of_an_older_run_has_the_task_s_options(task):
    tree = task_tree(task) | {"metrics": {"lin_vel_error": {}}}
    assert apply_tree(task, tree).metrics["lin_vel_error"].after_s == 1.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("metrics.lin_vel_error.over", "median", "metrics.lin_vel_error.over='median': must be mean, end, max or min"),
        ("metrics.lin_vel_error.after_s", -1, "metrics.lin_vel_error.after_s=-1.0: must be >= 0"),
        ("rewards.track.weight", "heavy", "rewards.track.weight=heavy: must be a number"),
        ("rewards.track.weight", True, "must be a number"),
        ("rewards.track", 3, "rewards.track=3: is a group"),
        ("sim.decimation", 2.5, "sim.decimation=2.5: must be a whole number"),
        ("sim.solver", 1, "sim.solver=1: must be a word"),
        ("sim.timestep", -1, "sim.timestep=-1.0: must be in (0, 0.05] s"),
        ("only_positive_rewards", 1, "only_positive_rewards=1: must be true or false"),
        ("commands.velocity.resample_s", [1], "commands.velocity.resample_s=[1]: must be a list of 2"),
        ("commands.velocity.resample_s", [1, "x"], "commands.velocity.resample_s[1]=x: must be a number"),
        ("observations.actor.terms.gyro.noise", -1, "observations.actor.terms.gyro.noise=-1.0: must be >= 0"),
        ("episode_length_s", 0, "episode_length_s=0.0: must last at least a control step of 0.02 s"),
    ],
)
def test_a_bad_value_is_named(task, name, value, message):
    with pytest.raises(UserError) as error:
        apply_tree(task, override(task_tree(task), {name: value}))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rewards.trakc.weight", "did you mean 'rewards.track.weight'?"),
        ("reward.track.weight", "did you mean 'rewards.track.weight'?"),
        ("sim.time_step", "did you mean 'sim.timestep'?"),
        ("rewards.track.weight.x", "unknown key 'rewards.track.weight.x'"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(task, name, message):
    with pytest.raises(UserError) as error:
        override(task_tree(task), {name: 1})
    assert message in str(error.value)


def test_dotted_names_reach_every_value():
    assert list(dotted_keys({"a": {"b": 1, "c": {"d": 2}}, "e": 3})) == ["a", "a.b", "a.c", "a.c.d", "e"]


def test_numbers_keep_their_kind():
    assert coerce(3, 4.0, "x") == 4
    assert isinstance(coerce(3, 4.0, "x"), int)
    assert isinstance(coerce(3.0, 4, "x"), float)
    assert coerce((1.0, 2.0), [3, 4], "x") == (3.0, 4.0)


def test_a_body_may_be_named_where_the_task_has_its_index(task):
    changed = apply_tree(task, override(task_tree(task), {"events.mass.body": "base_link"}))
    assert changed.events["mass"].params["body"] == "base_link"
    assert task.events["mass"].params["body"] == 1.0
