"""Wheels and castors: what rolls has no foot and no position to hold, and what has no motor gets none."""

import math

import mujoco
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_deploy.describe import make_contract
from robot_rl_deploy.parts import TrainingSpec
from robot_rl_envs.entity.robot_checks import check_robot

from robot_rl.errors import UserError
from robot_rl.robots.tasks import choose_kind, drive_words, wheel_radii
from tests.unit.robots.files import PLACES, drafted, notes, write

SIDE = "1.5707963 0 0"
ROUND = f'type="cylinder" size="0.06 0.02" euler="{SIDE}" mass="0.3"'


def wheel(name, x, y, shape=ROUND, z=0):
    return f'<body name="{name}" pos="{x} {y} {z}"><joint name="{name}_joint" axis="0 1 0"/><geom {shape}/></body>'


def car(shape=ROUND, *, head="", castor="", motors="", names=("FL", "FR", "RL", "RR")):
    wheels = "".join(
        wheel(f"wheel_{name}", 0.75 * x, 1.2 * y, shape) for name, (x, y) in PLACES.items() if name in names
    )
    motors = motors or "".join(
        f'<velocity joint="wheel_{name}_joint" kv="2" ctrlrange="-15 15" forcerange="-3 3"/>' for name in names
    )
    return (
        f'<mujoco>{head}<compiler angle="radian"/><worldbody><body name="chassis" pos="0 0 0.06"><freejoint/>'
        f'<geom type="box" size="0.2 0.08 0.03" mass="4"/>{wheels}{castor}</body></worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )


def ring(sides, radius=0.06, half=0.02):
    """A disc about y as text of an .obj: a prism of so many sides."""
    angles = [2 * math.pi * k / sides for k in range(sides)]
    lines = [f"v {radius * math.cos(a):.6f} {y} {radius * math.sin(a):.6f}" for a in angles for y in (-half, half)]
    corners = [
        (2 * k + 1, 2 * k + 2, (2 * k + 2) % (2 * sides) + 1, (2 * k + 3) % (2 * sides) + 1) for k in range(sides)
    ]
    for a, b, c, d in corners:
        lines += [f"f {a} {b} {c}", f"f {b} {d} {c}"]
    for k in range(1, sides - 1):
        lines += [f"f 1 {2 * k + 1} {2 * k + 3}", f"f 2 {2 * k + 4} {2 * k + 2}"]
    return "\n".join(lines) + "\n"


MESH = '<asset><mesh name="disc" file="disc.obj"/></asset>'


@pytest.mark.parametrize("kind", ["cylinder", "mesh", "mesh as a shape"])
def test_wheels_are_driven_by_their_speed_and_are_no_feet(tmp_path, kind):
    (tmp_path / "disc.obj").write_text(ring(24))
    shape = ROUND if kind == "cylinder" else 'type="mesh" mesh="disc" mass="0.3"'
    collision = "primitives" if kind == "mesh as a shape" else "meshes"
    draft, robot, _ = drafted(write(tmp_path, car(shape, head="" if kind == "cylinder" else MESH)), collision=collision)
    assert list(draft.wheels.values()) == pytest.approx([0.06] * 4, rel=0.02)
    assert robot.feet == ()
    for joint in robot.joints:
        assert (joint.effort_limit, joint.velocity_limit) == (3.0, 15.0)
        assert joint.by_speed
        assert joint.kd * 0.25 * joint.velocity_limit == pytest.approx(joint.effort_limit, rel=1e-3)
    assert [finding for finding in check_robot(robot) if finding.is_problem] == []
    assert any(line.startswith("standing: it holds its default pose") for line in draft.notes)
    assert choose_kind("auto", robot) == "drive"
    words = drive_words(robot)
    assert float(words["fast"]) == pytest.approx(0.5 * 15 * 0.06, rel=0.05)  # Half of what its wheels reach.
    if kind == "mesh as a shape":
        model = mujoco.MjModel.from_xml_path(str(robot.model))
        chassis = model.body("chassis").id
        shapes = model.geom_type[(model.geom_bodyid != chassis) & (model.geom_conaffinity != 0)]
        assert set(shapes.tolist()) == {int(mujoco.mjtGeom.mjGEOM_CYLINDER)}


@pytest.mark.parametrize(
    "shape",
    ['type="box" size="0.06 0.02 0.06" mass="0.3"', 'type="mesh" mesh="disc" mass="0.3"'],
    ids=["box", "hexagon"],
)
def test_what_is_not_round_is_no_wheel(tmp_path, shape):
    (tmp_path / "disc.obj").write_text(ring(6))
    draft, robot, _ = drafted(write(tmp_path, car(shape, head=MESH)))
    assert draft.wheels == {}
    assert wheel_radii(robot) == {}
    assert all(joint.kp > 0 for joint in robot.joints)


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ('type="sphere" size="0.06" mass="0.3"', "sphere"),
        (f'type="capsule" size="0.06 0.02" euler="{SIDE}" mass="0.3"', "capsule"),
    ],
)
def test_a_single_sphere_or_capsule_on_its_axis_is_a_wheel(tmp_path, shape, word):
    """Beside a second shape, or off the axis, it may be a foot: it keeps its position gains."""
    draft, robot, _ = drafted(write(tmp_path, car(shape)))
    assert list(draft.wheels.values()) == pytest.approx([0.06] * 4)
    assert wheel_radii(robot) == draft.wheels
    assert (robot.feet, choose_kind("auto", robot)) == ((), "drive")
    line = f"wheels: the only shape of 'wheel_FL_joint' that touches is a {word} centered on its endless axis"
    assert notes(draft, "wheels: ")[1:][0] == line
    for other in (f'{shape} pos="0.02 0 0"', f'{shape}/><geom type="box" size="0.01 0.01 0.01" mass="0.01"'):
        draft, robot, _ = drafted(write(tmp_path, car(other)))
        assert draft.wheels == {}
        assert all(joint.kp > 0 for joint in robot.joints)


def test_an_arm_whose_last_joint_turns_without_end_has_no_wheel(tmp_path):
    text = (
        '<mujoco><worldbody><body name="arm"><joint name="lift" axis="0 1 0" range="-90 90"/><geom size="0.1"/>'
        f"{wheel('hand', 0.3, 0)}</body></worldbody></mujoco>"
    )
    draft, robot, _ = drafted(write(tmp_path, text))
    assert draft.wheels == {}
    assert all(joint.kp > 0 for joint in robot.joints)


CASTOR = (
    '<body name="fork" pos="-0.15 0 0.02"><joint name="swivel" axis="0 0 1"/><geom size="0.01" mass="0.05"/>'
    '<body name="roller" pos="-0.02 0 -0.05"><joint name="roll" axis="0 1 0"/>'
    f'<geom type="cylinder" size="0.03 0.01" euler="{SIDE}" mass="0.05"/></body></body>'
)


def test_castors_and_tails_without_a_motor_get_none(tmp_path):
    tail = (
        '<body name="tail"><joint name="tail" axis="0 1 0" stiffness="1" range="-0.5 0.5"/><geom size="0.01"/></body>'
    )
    draft, robot, _ = drafted(write(tmp_path, car(castor=CASTOR + tail, names=("FL", "FR"))))
    assert [joint.name for joint in robot.joints if joint.passive] == ["swivel", "roll", "tail"]
    assert list(draft.wheels) == ["wheel_FL_joint", "wheel_FR_joint"]
    assert "passive: swivel, roll, tail, which no motor drives" in draft.notes
    assert robot.feet == ()
    assert choose_kind("auto", robot) == "drive"


LINK = (
    '<link name="{name}"><inertial><mass value="{mass}"/><inertia ixx="0.002" iyy="0.002" izz="0.002" ixy="0" ixz="0" '
    'iyz="0"/></inertial><collision><origin rpy="{rpy}"/><geometry>{shape}</geometry></collision></link>'
)
JOINT = (
    '<joint name="{name}_joint" type="{kind}"><origin xyz="{at}"/><parent link="{parent}"/><child link="{name}"/>'
    '<axis xyz="{axis}"/>{limit}</joint>'
)


def part(name, parent, at, kind="continuous", axis="0 1 0", limit='<limit effort="5" velocity="20"/>', shape=""):
    shape = shape or '<cylinder radius="0.08" length="0.03"/>'
    link = LINK.format(name=name, mass=0.3, rpy=SIDE, shape=shape)
    return link + JOINT.format(name=name, kind=kind, at=at, parent=parent, axis=axis, limit=limit)


BASE = LINK.format(name="base", mass=6, rpy="0 0 0", shape='<box size="0.3 0.2 0.1"/>')
CASTOR_URDF = part("fork", "base", "-0.1 0 -0.03", axis="0 0 1", limit="", shape='<box size="0.01 0.01 0.01"/>') + part(
    "ball", "fork", "0 0 -0.02", limit="", shape='<sphere radius="0.03"/>'
)


def test_a_urdf_with_castors(tmp_path):
    wheels = "".join(part(f"{side}_wheel", "base", f"0 {y} 0") for side, y in (("left", 0.15), ("right", -0.15)))
    draft, robot, _ = drafted(
        write(tmp_path, f'<robot name="r">{BASE}{wheels}{CASTOR_URDF}</robot>', "car.urdf"), base="floating"
    )
    assert [joint.name for joint in robot.joints if joint.passive] == ["fork_joint", "ball_joint"]
    assert list(draft.wheels) == ["left_wheel_joint", "right_wheel_joint"]
    assert [joint.effort_limit for joint in robot.joints if not joint.passive] == [5.0, 5.0]
    assert robot.feet == ()


def test_wheels_on_the_body_make_a_urdf_float(tmp_path):
    places = {
        f"{end}_{side}": f"{x} {y} 0" for end, x in (("f", 0.1), ("r", -0.1)) for side, y in (("l", 0.15), ("r", -0.15))
    }
    wheels = "".join(part(f"{name}_wheel", "base", at) for name, at in places.items())
    draft, robot, _ = drafted(write(tmp_path, f'<robot name="r">{BASE}{wheels}</robot>', "car.urdf"))
    assert len(draft.wheels) == 4
    assert robot.base_body == "base"
    assert "base: floating, since 4 links may roll; set base= to change it" in draft.notes
    assert not any(line.startswith("gains:") for line in draft.notes)
    assert choose_kind("auto", robot) == "drive"
    with pytest.raises(UserError, match="is without feet to walk on; write kind=drive"):
        choose_kind("velocity", robot)


def test_a_wheel_and_a_limited_joint_on_the_other_side_share_nothing(tmp_path):
    limit = '<limit lower="-3" upper="3" effort="5" velocity="20"/>'
    wheels = part("left_wheel", "base", "0 0.15 0", "revolute", limit=limit) + part("right_wheel", "base", "0 -0.15 0")
    wheels += part("back_wheel", "base", "-0.2 0 0")
    _, robot, _ = drafted(write(tmp_path, f'<robot name="r">{BASE}{wheels}</robot>', "car.urdf"))
    assert {joint.name: joint.by_speed for joint in robot.joints} == {
        "left_wheel_joint": False,
        "right_wheel_joint": True,
        "back_wheel_joint": True,
    }


@pytest.mark.parametrize("turn", [0.0, 0.785])
def test_a_turned_wheel_is_as_high_as_any(tmp_path, turn):
    _, robot, _ = drafted(write(tmp_path, car(ROUND.replace(SIDE, f"1.5707963 {turn} 0"))))
    assert robot.base_height == pytest.approx(0.0605, abs=1e-3)


def test_transmissions_of_a_urdf_say_what_is_driven(tmp_path):
    arms = part("upper", "base", "0 0 0.1", "revolute", limit='<limit lower="-1" upper="1" effort="5"/>')
    arms += part("lower", "upper", "0 0 0.1", "revolute", limit='<limit lower="-1" upper="1" effort="5"/>')
    drive = '<transmission name="t"><joint name="upper_joint"/></transmission>'
    _, robot, _ = drafted(write(tmp_path, f'<robot name="r">{BASE}{arms}{drive}</robot>', "arm.urdf"))
    assert [joint.name for joint in robot.joints if joint.passive] == ["lower_joint"]
    _, robot, _ = drafted(write(tmp_path, f'<robot name="r">{BASE}{arms}</robot>', "arm.urdf"))
    assert [joint.name for joint in robot.joints if joint.passive] == []


def test_legs_on_wheels_have_wheels_and_no_feet(tmp_path, monkeypatch):
    text = BASE
    for side, y in (("left", 0.15), ("right", -0.15)):
        thigh = {"limit": '<limit lower="-1" upper="1" effort="20"/>', "shape": '<box size="0.02 0.2 0.02"/>'}
        text += part(f"{side}_thigh", "base", f"0 {y} 0", "revolute", **thigh)
        text += part(f"{side}_wheel", f"{side}_thigh", "0 0 -0.2")
    draft, robot, _ = drafted(write(tmp_path, f'<robot name="r">{text}</robot>', "biped.urdf"))
    assert list(draft.wheels) == ["left_wheel_joint", "right_wheel_joint"]
    assert robot.feet == ()
    assert [joint.by_speed for joint in robot.joints] == [False, True, False, True]
    assert choose_kind("auto", robot) == "drive"
    rows = driving(robot, monkeypatch).describe_policy()
    training = TrainingSpec(run_id="run", task="roll", git_commit="unknown", iteration=0)
    assert [action.kind for action in make_contract(rows, training).actions] == ["position", "velocity"] * 2
    assert [row.get("kind") for row in rows["actions"]] == [None, "velocity", None, "velocity"]
    observed = {row["name"]: row for row in rows["observations"]}
    assert observed["joint_pos"]["params"] == {"joints": ["left_thigh_joint", "right_thigh_joint"]}
    assert (observed["joint_pos"]["size"], observed["joint_vel"]["size"]) == (2, 4)


def test_the_robots_of_the_project_have_no_wheels():
    assert [wheel_radii(get_robot(name)) for name in ("unitree_go2", "franka_panda", "cartpole")] == [{}, {}, {}]
    with pytest.raises(UserError, match="kind=drive: robot 'unitree_go2' does not drive: it needs a floating base and"):
        choose_kind("drive", get_robot("unitree_go2"))


def driving(robot, monkeypatch):
    """Two worlds of the task that the template becomes, without events."""
    from robot_rl_envs.make import make_env

    from robot_rl.cli.new import fill

    words = drive_words(robot) | {"name": "roll", "robot": "car"}
    words["base"] = repr(words["base"])
    monkeypatch.setattr("robot_rl_assets.registry.get_robot", lambda name: robot)
    namespace: dict = {}
    exec(compile(fill("drive.txt", words), "drive.txt", "exec"), namespace)
    task = namespace["make_task"]()
    task.events = {}
    return make_env(task, num_envs=2, device="cpu", seed=1)


def test_a_driving_task_drives_at_the_speed_that_its_wheels_are_to_have(in_tmp, monkeypatch):
    import torch

    _, robot, _ = drafted(write(in_tmp, car()))
    env = driving(robot, monkeypatch)
    speed = 1.0 * robot.joints[0].action_scale * 0.06
    for _ in range(40):
        env.step(torch.ones(2, env.num_actions))
    assert env.state.base_lin_vel_b[:, 0].tolist() == pytest.approx([speed, speed], rel=0.1)
    env.step(torch.full((2, env.num_actions), 100.0))
    assert float(env.state.ctrl.max()) == pytest.approx(robot.joints[0].velocity_limit)
    env.close()
