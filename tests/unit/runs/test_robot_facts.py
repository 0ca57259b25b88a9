"""A run knows its robots again, and a contract of a known robot has that robot's joints, limits and gains."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from robot_rl_assets.registry import get_robot, list_robots
from robot_rl_deploy import contract as contracts
from robot_rl_tasks.registry import get_task

from robot_rl.cli.main import main
from robot_rl.errors import UserError
from robot_rl.runs import robot_facts
from robot_rl.runs.robot_facts import check_robot, check_unchanged, describe_robots, find_all
from tests.unit.deploy.test_corruption import forge

GO2 = Path(__file__).parents[3] / "tasks" / "robot_rl_tasks" / "go2_flat" / "policy"
THIGH = 1


def changed(change):
    data = json.loads((GO2 / "contract.json").read_text())
    change(data)
    return data


def joint(field, value):
    return lambda data: data["joints"][THIGH].update({field: value})


def renamed(data):
    """Joints as another robot calls them, everywhere."""
    text = json.dumps(data).replace("_thigh_joint", "_thigh")
    data.clear()
    data.update(json.loads(text))


def stranger(data):
    data["robot"] = "stranger"
    joint("effort_limit", 237.0)(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: None,
        joint("kp", 20.0),
        joint("kd", 3.0),
        joint("effort_limit", 20.0),
        joint("upper", 2.0),
        joint("velocity_limit", 20.0),
        stranger,
    ],
)
def test_the_robots_own_and_what_is_tighter_passes(change):
    check_robot(contracts.from_dict(changed(change)))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (renamed, "its joints are not those of the robot 'unitree_go2', see FL_thigh, FL_thigh_joint"),
        (joint("kp", 400.0), "'FL_thigh_joint' kp=400.0: the robot 'unitree_go2' has 40"),
        (joint("kd", 0.1), "kd=0.1: the robot 'unitree_go2' has 1"),
        (joint("effort_limit", 237.0), "effort_limit=237.0: the robot 'unitree_go2' has 23.7"),
        (joint("velocity_limit", 90.0), "velocity_limit=90.0: the robot 'unitree_go2' has 30.1"),
        (joint("upper", 4.0), "upper=4.0: the robot 'unitree_go2' has 3.4907"),
        (joint("lower", -3.0), "lower=-3.0: the robot 'unitree_go2' has -1.5708"),
    ],
)
def test_what_is_not_the_robots_is_refused(change, line):
    with pytest.raises(UserError, match=re.escape(line)):
        check_robot(contracts.from_dict(changed(change)))


@pytest.mark.parametrize("words", [["deploy", "to={to}"], ["sign", "key={key}"]], ids=["deploy", "sign"])
def test_neither_leaves_nor_is_signed(tmp_path, capsys, words):
    bundle, key = tmp_path / "policy", tmp_path / "robot.key"
    shutil.copytree(GO2, bundle)
    (bundle / "contract.json").write_text(json.dumps(changed(joint("effort_limit", 237.0))))
    forge(bundle)
    assert main(["sign", f"new={key}"]) == 0
    capsys.readouterr()
    filled = [word.format(to=tmp_path / "to", key=key) for word in words]
    assert main([*filled, f"policy={bundle}"]) == 2
    error = capsys.readouterr().err
    assert "effort_limit=237.0" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "to").exists()
    assert not (bundle / "SHA256SUMS.sig").exists()


def test_the_robots_of_the_assets_have_models_to_compare_with():
    from robot_rl_assets.registry import get_robot

    from robot_rl.runs.robot_facts import _ranges

    assert all(set(_ranges(get_robot(name))) <= set(get_robot(name).joint_names) for name in list_robots())


def test_gains_that_no_bundle_may_have_are_noted_before_a_training():
    robot = get_robot("unitree_go2")
    assert find_all(robot) == []
    weak = tuple(dataclasses.replace(joint, kp=0.1, kd=0.01) for joint in robot.joints)
    notes = [finding for finding in find_all(dataclasses.replace(robot, joints=weak)) if "exported" in finding.text]
    assert [note.is_problem for note in notes] == [False] * 12
    assert "a policy for it cannot be exported: joint 'FL_hip_joint': effort_limit is 23.7; gains" in notes[0].text


@pytest.mark.parametrize("name", ["cartpole", "g1_flat", "panda_lift", "go2_pair_carry"])
def test_a_run_knows_its_robots_again(name):
    task = get_task(name)
    record = yaml.safe_load(yaml.safe_dump(describe_robots(task)))
    assert record["robots"]
    check_unchanged("mine", record, task)
    check_unchanged("mine", {}, task)  # Of an earlier version.


def test_a_run_whose_robot_has_changed_is_refused_by_every_command(in_tmp, capsys, monkeypatch):
    words = ["task=cartpole", "max_iterations=1", "num_envs=8", "device=cpu"]
    assert main(["train", *words, "run_id=mine"]) == 0
    assert main(["export", "run=mine"]) == 0
    unchanged = robot_facts._facts

    def changed(robot):
        facts = unchanged(robot)
        return facts | {"joints": facts["joints"] | {"slider": facts["joints"]["slider"] | {"effort_limit": 3.0}}}

    monkeypatch.setattr(robot_facts, "_facts", changed)
    capsys.readouterr()
    for command in ("export", "eval", "resume", "video"):
        assert main([command, "mine" if command == "resume" else "run=mine"]) == 2, command
        error = capsys.readouterr().err
        assert "the robot 'cartpole' has joints.slider.effort_limit=3.0 now, the run began with 15.0" in error
        assert error.count("\n") == 1
    monkeypatch.setattr(robot_facts, "_facts", lambda robot: unchanged(robot) | {"model": "0" * 64})
    assert main(["export", "run=mine"]) == 2
    assert (
        "has another model file than at the beginning of the run; restore the robot's files" in capsys.readouterr().err
    )
