"""A new task fits its robot: what is written for feet, for a fixed arm, and what is refused."""

import ast

import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_assets.robot import Joint, Robot

from robot_rl.errors import UserError
from robot_rl.robots.tasks import choose_kind, reach_words, velocity_words
from tests.unit.own_models import write_arm
from tests.unit.robots.files import drafted


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
        ("franka_panda", "velocity", "kind=velocity: robot 'franka_panda' is without feet"),
        ("unitree_go2", "reach", "kind=reach: robot 'unitree_go2' is not an arm"),
        ("cartpole", "walk", "kind=walk: must be one of auto, pose, velocity, reach"),
    ],
)
def test_what_a_robot_cannot_do_is_one_line(robot, kind, line):
    with pytest.raises(UserError, match=line):
        choose_kind(kind, get_robot(robot))


def test_heights_and_speeds_grow_with_the_robot():
    go2, g1 = (velocity_words(get_robot(name)) for name in ("unitree_go2", "unitree_g1"))
    assert (go2["gaits"], g1["gaits"], g1["air"]) == ("yes", "", "2")
    # Half of the base's height, and 1.5 m/s times the root of its ratio to 0.3 m.
    assert float(go2["low"]) == pytest.approx(0.5 * get_robot("unitree_go2").base_height, abs=0.01)
    assert float(g1["fast"]) == pytest.approx(1.5 * (get_robot("unitree_g1").base_height / 0.3) ** 0.5, abs=0.06)
    assert go2["mirror"] == "True"
    assert (go2["base"], go2["com"]) == (get_robot("unitree_go2").base_body, "0.02")


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


def test_a_trunk_that_is_fixed_to_a_base_without_mass_carries_the_load(tmp_path):
    """Of a body with its center of mass in the origin MuJoCo reads no other: it stays where it is."""
    model = tmp_path / "model.xml"
    model.write_text(
        '<mujoco><worldbody><body name="base"><freejoint/><inertial pos="0 0 0.1" mass="1e-6" '
        'diaginertia="1e-9 1e-9 1e-9"/><body name="trunk"><geom type="box" size="0.2 0.1 0.1" mass="9"/></body>'
        '<body name="leg"><joint name="hip"/><geom name="foot" size="0.02" pos="0 0 -0.3" mass="1"/>'
        '<site name="foot_foot"/></body></body></worldbody></mujoco>'
    )
    hip = Joint(name="hip", default_pos=0.0, effort_limit=10.0, velocity_limit=5.0, kp=10.0, kd=0.5)
    feet = {"feet": ("foot",), "foot_radius": 0.02, "foot_mirror": (0,)}
    robot = Robot(name="one", model=model, joints=(hip,), base_body="base", base_height=0.32, **feet)
    words = velocity_words(robot)
    assert (words["base"], words["load"], words["com"]) == ("trunk", "0.7", "0")


def test_all_corners_of_the_box_are_in_reach(tmp_path):
    """The arm stands up straight: the percentiles' box around its hand has corners that it cannot reach."""
    write_arm(tmp_path / "arm.urdf")
    words = reach_words(drafted(tmp_path / "arm.urdf", collision="boxes")[1])
    box = ast.literal_eval(words["box"])
    # The first joint is at a height of 0.1 m; from there 0.1 + 0.3 + 0.25 m, and 0.08 + 0.025 m to between the fingers.
    far = [
        max(abs(box[f"{axis}_{end}"] - at) for end in ("lo", "hi")) for axis, at in zip("xyz", (0, 0, 0.1), strict=True)
    ]
    assert words["hand"] == "hand_tcp"
    assert 0.5 < sum(value**2 for value in far) ** 0.5 < 0.1 + 0.3 + 0.25 + 0.105
    assert all(box[f"{axis}_hi"] - box[f"{axis}_lo"] > 0.1 for axis in "xz")


def test_a_target_out_of_reach_is_one_line_before_anything_is_trained(run, in_tmp):
    code, _, err = run("train", "task=panda_reach", "commands.target.x_hi=3.0", "num_envs=1", "max_iterations=1")
    assert (code, err.count("\n")) == (2, 1)
    assert "commands.target.x_hi=3: the corner (3, " in err
    assert "its site 'hand_tcp' reaches " in err
    assert not list(in_tmp.rglob("checkpoints"))
