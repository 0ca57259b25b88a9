"""Rendering without a display."""

import sys

import numpy as np
import pytest
from robot_rl_envs import render
from robot_rl_envs.render import Arrow, CameraCfg, NoGLError, Renderer, Sphere

STAND = np.array([0, 0, 0.3, 1, 0, 0, 0, 0.0])


def red(image: np.ndarray) -> np.ndarray:
    """Where the trunk is: pixels much more red than green."""
    return image[..., 0].astype(int) - image[..., 1] > 60


@pytest.fixture
def renderer(gl, fake_env):
    with Renderer(fake_env().engine.model, 160, 120) as renderer:
        yield renderer


def test_robot_is_in_the_middle(renderer):
    image = renderer.frame(STAND)
    assert image.shape == (120, 160, 3)
    assert image.dtype == np.uint8
    rows, columns = np.nonzero(red(image))
    assert 300 < len(rows) < 0.3 * red(image).size
    assert abs(rows.mean() - 60) < 25
    assert abs(columns.mean() - 80) < 25
    assert image[:15].mean() > image[70:].mean()


def test_collision_group_is_not_drawn(renderer):
    # The hull, of half a meter and more, would hide the trunk.
    assert red(renderer.frame(STAND)).any()


def test_camera_follows_and_jumps_after_a_reset(renderer):
    renderer.frame(STAND)
    for x in np.linspace(0, 3, 60):
        image = renderer.frame(np.array([x, 0, 0.3, 1, 0, 0, 0, 0]))
        assert red(image).sum() > 300
    home = renderer.frame(STAND)
    assert abs(np.nonzero(red(home))[1].mean() - 80) < 25


PLANAR = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 0.1" rgba="0.8 0.8 0.8 1"/>
    <body name="trunk" pos="0 0 0.3">
      <joint type="slide" axis="1 0 0" range="{range}"/>
      <joint type="slide" axis="0 0 1"/>
      <joint type="hinge" axis="0 1 0"/>
      <geom type="box" size="0.2 0.1 0.1" rgba="1 0 0 1"/>
      <body><joint type="slide"/><geom size="0.02"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def test_a_planar_robot_is_followed_however_far_it_runs_and_a_cart_on_its_rail_is_not(gl):
    import mujoco

    planar, cart = (mujoco.MjModel.from_xml_string(PLANAR.format(range=text)) for text in ("0 0", "-2 2"))
    assert render.traveling_joints(planar).tolist() == [0, 1]
    assert render.traveling_joints(cart).tolist() == [1]
    with Renderer(planar, 160, 120) as renderer:
        renderer.frame(np.zeros(4))
        for x in np.linspace(0, 50, 200):
            image = renderer.frame(np.array([x, 0, 0, 0]))
        assert 300 < red(image).sum() < 0.3 * red(image).size
        assert image[-1].std(axis=0).max() < 30
        assert image[-1].mean() > 60, "the ground goes on under it"


ARM = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body pos="0 0 0.1">
      <joint type="hinge" axis="0 1 0" range="-180 180"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.5" rgba="1 0 0 1"/>
      <body pos="0 0 0.5">
        <joint type="hinge" axis="0 1 0" range="-180 180"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.5" rgba="1 0 0 1"/>
      </body>
    </body>
    <body pos="0.7 0 0.03"><freejoint/><geom type="box" size="0.03 0.03 0.03" rgba="0 0 1 1"/></body>
  </worldbody>
</mujoco>
"""


def test_an_arm_fills_the_image_as_it_stands_and_what_it_handles_is_in_it(gl):
    import mujoco

    model = mujoco.MjModel.from_xml_string(ARM)
    bent = np.array([0.8, 1.2, 0.7, 0, 0.03, 1, 0, 0, 0])
    with Renderer(model, 160, 120) as renderer:
        image = renderer.frame(bent)
        again = renderer.frame(bent + np.eye(1, 9, 0)[0])
    rows, columns = np.nonzero(red(image))
    assert np.ptp(columns) > 0.5 * 160
    assert min(rows.min(), columns.min()) > 0
    assert max(rows.max() / 119, columns.max() / 159) < 1
    blue = image[..., 2].astype(int) - image[..., 0] > 60
    assert blue.sum() > 10
    still = again[..., 2].astype(int) - again[..., 0] > 60
    assert still.any(), "the camera stays where it is"
    assert (blue & still).sum() > 0.5 * blue.sum()


def test_a_thing_on_a_long_slide_does_not_make_the_arm_small(gl):
    import mujoco

    slide = '<joint type="slide" axis="1 0 0" range="-10 10"/><joint type="slide" axis="0 1 0"/>'
    models = [mujoco.MjModel.from_xml_string(ARM.replace("<freejoint/>", text)) for text in (slide, "<freejoint/>")]
    ends = ([0.0, 0.0], [0.7, 0, 0.03, 1, 0, 0, 0])
    radii = [
        render._extent(model, floating=False, pose=np.array([0.8, 1.2, *end]))[1]
        for model, end in zip(models, ends, strict=True)
    ]
    assert radii[0] < 2 * radii[1]


def test_simulated_model_is_left_unchanged(gl, fake_env):
    model = fake_env().engine.model
    extent, width = model.stat.extent, model.vis.global_.offwidth
    with Renderer(model, 64, 48):
        assert (model.stat.extent, model.vis.global_.offwidth) == (extent, width)


def test_larger_than_the_models_frame_buffer(gl, fake_env):
    with Renderer(fake_env().engine.model, 1280, 64) as renderer:
        assert renderer.frame(STAND).shape == (64, 1280, 3)


def test_arrow(renderer):
    arrow = Arrow(start=np.array([0, 0, 0.5]), vector=np.array([0.3, 0, 0]), rgba=(0, 0, 1, 1))
    blue = [
        (p[..., 2].astype(int) - p[..., 0] > 60).sum()
        for p in (renderer.frame(STAND), renderer.frame(STAND, arrows=[arrow]))
    ]
    assert blue[0] == 0
    assert blue[1] > 20


def test_sphere_is_as_large_as_its_radius(renderer):
    counts = []
    for radius in (0.05, 0.1):
        sphere = Sphere(center=np.array([0, 0, 0.6]), radius=radius, rgba=(0, 0, 1, 1))
        image = renderer.frame(STAND, spheres=[sphere])
        counts.append((image[..., 2].astype(int) - image[..., 0] > 60).sum())
    assert counts[0] > 10
    # Twice the radius, four times the area; a small circle is a few pixels.
    assert counts[1] == pytest.approx(4 * counts[0], rel=0.3)


def test_wrong_length_and_not_finite(renderer):
    with pytest.raises(ValueError, match=r"qpos has shape \(7,\), the model wants \(8,\)"):
        renderer.frame(STAND[:7])
    # The infinite floor is drawn about where the camera was in the image before.
    renderer.frame(STAND)
    good = renderer.frame(STAND)
    np.testing.assert_array_equal(renderer.frame(np.full(8, np.nan)), good)


def test_two_renderers_at_once(gl, fake_env):
    model = fake_env().engine.model
    with Renderer(model, 64, 48) as first, Renderer(model, 96, 48, CameraCfg(azimuth=0)) as second:
        shapes = [r.frame(STAND).shape for r in (first, second, first)]
    assert shapes == [(48, 64, 3), (48, 96, 3), (48, 64, 3)]


def test_camera_ranges():
    with pytest.raises(ValueError, match="distance=-1"):
        CameraCfg(distance=-1)
    with pytest.raises(ValueError, match="follow=2"):
        CameraCfg(follow=2)


@pytest.mark.skipif(sys.platform != "linux", reason="the packages named are Debian's")
def test_without_gl_one_line_names_what_to_install(monkeypatch, fake_env):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.setattr(render.ctypes.util, "find_library", lambda name: None)
    with pytest.raises(NoGLError, match="install libegl1 libegl-mesa0 libgl1-mesa-dri") as error:
        Renderer(fake_env().engine.model)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(sys.platform != "linux", reason="backends of Linux")
def test_backend_is_the_users_or_what_is_there(monkeypatch):
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert render.choose_backend() == "osmesa"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(render, "_egl_works", lambda: True)
    assert render.choose_backend() == "egl"
    monkeypatch.setattr(render, "_egl_works", lambda: False)
    monkeypatch.setattr(render.ctypes.util, "find_library", lambda name: "libOSMesa.so.8")
    assert render.choose_backend() == "osmesa"


def test_a_free_object_next_to_a_robot_is_not_followed(gl):
    import mujoco

    ball = '<body pos="{} 0 0.1"><freejoint/><geom size="0.02"/></body></worldbody>'
    model = mujoco.MjModel.from_xml_string(PLANAR.format(range="-1 1").replace("</worldbody>", ball.format(1.0)))
    assert render.traveling_joints(model).tolist() == [1]
    with Renderer(model, 160, 120) as renderer:
        near = renderer.frame(model.qpos0)
        far = model.qpos0.copy()
        far[4] = 30.0
        assert red(renderer.frame(far)).sum() == pytest.approx(red(near).sum(), rel=0.05)
