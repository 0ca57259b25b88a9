"""The pose of a camera, and the errors for one that cannot be built."""

import mujoco
import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup

BAD = {
    "no name": ({"name": ""}, "camera.name"),
    "pos": ({"pos": (0.0, 1.0)}, "pos=.* must be 3 numbers"),
    "not finite": ({"pos": (0.0, 1.0, float("nan"))}, "pos="),
    "up along forward": ({"forward": (0, 0, 2.0), "up": (0, 0, 1)}, "up="),
    "no forward": ({"forward": (0, 0, 0)}, "forward="),
    "quaternion": ({"quat_wxyz": (1.0, 1.0, 0.0, 0.0)}, "quat_wxyz=.* unit length"),
    "fovy": ({"fovy": 180.0}, r"fovy=180.0: must be in \(0, 180\)"),
    "width": ({"width": 0}, "width=0"),
    "height": ({"height": 48.0}, "height=48.0"),
    "range": ({"near": 2.0, "far": 1.0}, "0 < near < far"),
    "every": ({"every": 0}, "every=0"),
    "delay order": ({"delay_steps": (2, 1)}, "delay_steps=.* lo <= hi"),
    "delay fraction": ({"delay_steps": (0, 1.5)}, "delay_steps=.* whole"),
    "dropout": ({"dropout": (0.0, 1.5)}, "dropout="),
    "mount": ({"pos_jitter": -0.1}, "pos_jitter=-0.1"),
    "angle": ({"angle_jitter_deg": 91.0}, "angle_jitter_deg=91"),
    "noise": ({"noise": 2.0}, "noise=2"),
    "missing": ({"missing": -0.1}, "missing=-0.1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_fields_are_named(case):
    fields, line = BAD[case]
    with pytest.raises(ValueError, match=line):
        Camera(**({"name": "eye", "body": "world"} | fields))


@pytest.mark.parametrize(("fields", "line"), [({"kind": "sonar"}, "kind='sonar'"), ({"geometry": "x"}, "geometry='x'")])
def test_bad_groups_are_named(fields, line):
    with pytest.raises(ValueError, match=line):
        ImageGroup(camera=Camera(name="eye", body="world"), **fields)


def test_a_group_needs_a_camera_and_defaults_by_kind():
    with pytest.raises(ValueError, match="must be a Camera"):
        ImageGroup(camera="eye")
    camera = Camera(name="eye", body="world", width=32, height=24)
    depth, rgb = (ImageGroup(camera=camera, kind=kind) for kind in ("depth", "rgb"))
    assert (depth.geometry, rgb.geometry) == ("collision", "visual")
    assert (depth.shape, rgb.shape) == ((1, 24, 32), (3, 24, 32))


def test_forward_and_up_make_a_right_handed_frame():
    rotation = Camera(name="eye", body="world", forward=(2.0, 0.0, -2.0), up=(0.0, 0.0, 1.0)).rotation()
    h = np.sqrt(0.5)
    expected = np.array([[0.0, h, -h], [-1.0, 0.0, 0.0], [0.0, h, h]])
    np.testing.assert_allclose(rotation, expected, atol=1e-12)
    turned = Camera(name="eye", body="world", quat_wxyz=(1.0, 0.0, 0.0, 0.0)).rotation()
    np.testing.assert_allclose(turned, np.eye(3))


def spec_of(robot):
    return mujoco.MjSpec.from_file(str(robot.model))


def test_an_unknown_body_is_named_with_near_ones():
    robot = get_robot("unitree_go2")
    for name, near in (("bse_link", "'base_link'"), ("FL_kalf", "'FL_calf'")):
        with pytest.raises(
            ValueError, match=f"camera 'eye': body='{name}': robot 'unitree_go2' lacks a body or site.*{near}"
        ):
            Camera(name="eye", body=name).add_to(spec_of(robot), robot)


def test_an_unknown_camera_of_the_model_is_named():
    robot = get_robot("unitree_go2")
    with pytest.raises(ValueError, match="camera 'eye': body=None: robot 'unitree_go2' lacks a camera.*name the body"):
        Camera(name="eye").add_to(spec_of(robot), robot)


def test_the_models_own_camera_must_be_plain():
    spec = mujoco.MjSpec()
    spec.worldbody.add_camera(name="eye", fovy=40)
    Camera(name="eye").add_to(spec)
    with pytest.raises(ValueError, match="has one of that name"):
        Camera(name="eye", body="world").add_to(spec)
    spec.worldbody.add_camera(name="chases", mode=mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    with pytest.raises(ValueError, match="not fixed to its body"):
        Camera(name="chases").add_to(spec)
    spec.worldbody.add_camera(name="flat", proj=mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC)
    with pytest.raises(ValueError, match="projection"):
        Camera(name="flat").add_to(spec)


def test_on_a_site_it_has_the_sites_pose():
    robot = get_robot("unitree_go2")
    spec = spec_of(robot)
    Camera(name="eye", body="imu", pos=(0.1, 0.0, 0.0), forward=(0, 1, 0)).add_to(spec, robot)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[3:7] = [0.5, 0.5, 0.5, 0.5]
    mujoco.mj_forward(model, data)
    site = data.site("imu")
    turn = site.xmat.reshape(3, 3)
    np.testing.assert_allclose(data.camera("eye").xpos, site.xpos + turn @ [0.1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(-data.camera("eye").xmat.reshape(3, 3)[:, 2], turn @ [0, 1, 0], atol=1e-9)
