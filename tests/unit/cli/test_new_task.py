"""A new task fits its robot: what is written for feet, for a fixed arm, and what is refused."""

import ast

import pytest
from robot_rl_assets.registry import get_robot

from robot_rl.errors import UserError
from robot_rl.robots.tasks import choose_kind, reach_words, velocity_words


@pytest.mark.parametrize(
    ("robot", "kind"),
    [("unitree_go2", "velocity"), ("unitree_g1", "velocity"), ("franka_panda", "reach"), ("cartpole", "pose")],
)
def test_the_kind_is_that_of_the_robot(robot, kind):
    assert choose_kind("auto", get_robot(robot)) == kind
    assert choose_kind("pose", get_robot(robot)) == "pose"


@pytest.mark.parametrize(
    ("robot", "kind", "line"),
    [
        ("franka_panda", "velocity", "kind=velocity: robot 'franka_panda' has no feet"),
        ("unitree_go2", "reach", "kind=reach: robot 'unitree_go2' is no arm"),
        ("cartpole", "walk", "kind=walk: must be one of auto, pose, velocity, reach"),
    ],
)
def test_what_a_robot_cannot_do_is_one_line(robot, kind, line):
    with pytest.raises(UserError, match=line):
        choose_kind(kind, get_robot(robot))


def test_heights_and_speeds_grow_with_the_robot():
    go2, g1 = (velocity_words(get_robot(name)) for name in ("unitree_go2", "unitree_g1"))
    assert "trot_contact" in go2["gait"]
    assert "foot_air_time" in g1["gait"]
    # Half of the base's height, and 1.5 m/s times the root of its ratio to 0.3 m.
    assert float(go2["low"]) == pytest.approx(0.5 * get_robot("unitree_go2").base_height, abs=0.01)
    assert float(g1["fast"]) == pytest.approx(1.5 * (get_robot("unitree_g1").base_height / 0.3) ** 0.5, abs=0.06)
    assert go2["mirror"] == "True"


def test_targets_are_around_the_hand_in_its_default_pose():
    import mujoco

    robot = get_robot("franka_panda")
    words = reach_words(robot)
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    data = mujoco.MjData(model)
    for joint in robot.joints:
        data.joint(joint.name).qpos[0] = joint.default_pos
    mujoco.mj_kinematics(model, data)
    assert words["hand"] == "hand_tcp"
    box = ast.literal_eval(words["box"])
    for axis, value in zip("xyz", data.site("hand_tcp").xpos, strict=True):
        assert box[f"{axis}_lo"] < value < box[f"{axis}_hi"]
