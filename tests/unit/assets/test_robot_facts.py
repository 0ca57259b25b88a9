"""Joint and Robot refuse what makes no sense; the registry finds robots by name."""

import dataclasses
import sys

import pytest
from robot_rl_assets import Joint, Robot, get_robot, list_robots


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.xml"
    path.write_text("<mujoco/>")
    return path


def joint(name="a", **changes):
    return Joint(**{"name": name, "default_pos": 0.0, "effort_limit": 1.0, "velocity_limit": 1.0, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effort_limit": -1.0}, "effort_limit is -1.0"),
        ({"velocity_limit": 0.0}, "velocity_limit is 0.0"),
        ({"kp": -2.0}, "kp is -2.0"),
        ({"kd": float("nan")}, "kd is nan"),
        ({"kp": "20"}, "joint 'a': kp is '20'; a finite number is needed"),
        ({"mirror_sign": "-1"}, "joint 'a': mirror_sign is '-1'; a finite number is needed"),
        ({"default_pos": float("inf")}, "default_pos is inf"),
        ({"action_scale": 0.0}, "action_scale is 0.0"),
        ({"mirror_sign": 0.5}, "mirror_sign is 0.5"),
        ({"effort_limit": 0.0, "kp": 3.0}, "kp is 3.0"),
        ({"name": ""}, "name is empty"),
    ],
)
def test_joint_names_the_field_that_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        joint(**changes)


def test_a_joint_without_effort_is_passive():
    assert joint(effort_limit=0.0).passive
    assert not joint().passive


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"joints": ()}, "joints is empty"),
        ({"joints": (joint("a"), joint("a"))}, "joints names a twice"),
        ({"base_height": 0.3}, "base_height is 0.3"),
        ({"base_body": "trunk"}, "base_height is 0.0"),
        ({"joints": (joint("a", mirror="b"),)}, "unknown joint 'b'"),
        ({"joints": (joint("a", mirror="b"), joint("b"))}, "must mirror it back"),
        ({"joints": (joint("a", mirror="b", mirror_sign=-1.0), joint("b", mirror="a"))}, "mirror_sign -1.0"),
        ({"feet": ("l", "r"), "foot_radius": 0.02, "foot_mirror": (1, 1)}, "foot_mirror is"),
        ({"feet": ("l", "r", "m"), "foot_radius": 0.02, "foot_mirror": (1, 2, 0)}, "foot_mirror is"),
        ({"feet": ("l", "r"), "foot_mirror": (1, 0)}, "foot_radius is 0.0"),
        ({"feet": ("l", "l"), "foot_radius": 0.02, "foot_mirror": (1, 0)}, "feet names l twice"),
    ],
)
def test_robot_names_the_field_that_is_wrong(model, changes, message):
    with pytest.raises(ValueError, match=message):
        Robot(**{"name": "toy", "model": model, "joints": (joint(),), **changes})


def test_robot_needs_its_model_file(model):
    with pytest.raises(ValueError, match=r"model is '.*none\.xml'; no such file"):
        Robot(name="toy", model=model.with_name("none.xml"), joints=(joint(),))


def test_robot_is_immutable(model):
    robot = Robot(name="toy", model=model, joints=(joint(),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        robot.base_height = 1.0


def test_joint_mirror_by_hand(model):
    left, right = joint("left", mirror="right", mirror_sign=-1.0), joint("right", mirror="left", mirror_sign=-1.0)
    robot = Robot(name="toy", model=model, joints=(left, joint("middle"), right))
    assert robot.joint_mirror() == ((2, 1, 0), (-1.0, 1.0, -1.0))


def test_registry_lists_what_it_gets():
    names = list_robots()
    assert {"cartpole", "unitree_go2"} <= set(names)
    assert names == sorted(names)
    assert [get_robot(name).name for name in names] == names


@pytest.mark.parametrize(
    ("name", "nearest"), [("unitree_g2", "unitree_go2"), ("go2", "unitree_go2"), ("cart_pole", "cartpole")]
)
def test_unknown_robot_gets_the_nearest_name(name, nearest):
    with pytest.raises(ValueError, match=f"robot={name}: must be one of .*; did you mean '{nearest}'"):
        get_robot(name)


@pytest.mark.parametrize("name", ["", "../cartpole", "registry", "__pycache__", "zzzz"])
def test_what_is_no_robot_is_unknown(name):
    with pytest.raises(ValueError, match="must be one of cartpole"):
        get_robot(name)


def test_a_name_without_likeness_gets_no_suggestion():
    with pytest.raises(ValueError, match="or module:name$"):
        get_robot("rocket")


@pytest.mark.parametrize("found", [None, get_robot("unitree_go2")])
def test_a_folder_must_define_its_own_robot(monkeypatch, found):
    get_robot("cartpole")
    monkeypatch.setattr(sys.modules["robot_rl_assets.cartpole.robot"], "ROBOT", found)
    with pytest.raises(ValueError, match="robot=cartpole: "):
        get_robot("cartpole")
