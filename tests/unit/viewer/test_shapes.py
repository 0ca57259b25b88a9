"""Triangles of primitive shapes, and of a whole body."""

import mujoco
import numpy as np
import pytest

from robot_rl.view.viewer.shapes import (
    body_meshes,
    geom_color,
    height_above_base,
    height_field,
    primitive,
)


def volume(mesh) -> float:
    """Signed volume by the divergence theorem: positive where all triangles face outwards."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(float) for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


@pytest.mark.parametrize(
    ("mesh", "exact", "tolerance"),
    [
        (primitive("BOX", np.array([0.1, 0.2, 0.3])), 8 * 0.1 * 0.2 * 0.3, 1e-5),
        (primitive("SPHERE", np.array([0.5, 0, 0])), 4 / 3 * np.pi * 0.5**3, 0.05),
        (primitive("ELLIPSOID", np.array([0.1, 0.2, 0.3])), 4 / 3 * np.pi * 0.1 * 0.2 * 0.3, 0.05),
        (primitive("CYLINDER", np.array([0.1, 0.3, 0])), np.pi * 0.1**2 * 0.6, 0.02),
        (primitive("CAPSULE", np.array([0.1, 0.3, 0])), np.pi * 0.1**2 * 0.6 + 4 / 3 * np.pi * 0.1**3, 0.04),
    ],
)
def test_volume(mesh, exact, tolerance):
    assert volume(mesh) == pytest.approx(exact, rel=tolerance)


def test_extent_of_a_capsule():
    mesh = primitive("CAPSULE", np.array([0.1, 0.3, 0]))
    np.testing.assert_allclose(mesh.vertices.max(0), [0.1, 0.1, 0.4], atol=1e-6)
    np.testing.assert_allclose(mesh.vertices.min(0), [-0.1, -0.1, -0.4], atol=1e-6)


def test_body_joins_shapes_by_color_and_hides_collision_groups():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco>
      <asset><material name="red" rgba="1 0 0 1"/></asset>
      <worldbody>
        <body>
          <geom type="box" size="1 1 1" pos="2 0 0" material="red"/>
          <geom type="sphere" size="0.1" pos="0 0 3" material="red"/>
          <geom type="cylinder" size="0.1 0.2" rgba="0 0 1 0.5"/>
          <geom type="sphere" size="9" group="3"/>
          <geom type="sphere" size="9" rgba="0 0 0 0"/>
        </body>
      </worldbody>
    </mujoco>""")
    np.testing.assert_allclose(geom_color(model, 0), [1, 0, 0, 1])
    red, blue = body_meshes(model, 1)
    assert red[:2] == ((255, 0, 0), 1.0)
    assert blue[:2] == ((0, 0, 255), 0.5)
    np.testing.assert_allclose(red[2].vertices.max(0), [3, 1, 3.1], atol=1e-5)


def test_turned_geom_is_where_mujoco_puts_it():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody><body><geom type="capsule" fromto="0 0 0 1 0 0" size="0.1"/></body></worldbody></mujoco>""")
    ((_, _, mesh),) = body_meshes(model, 1)
    np.testing.assert_allclose(mesh.vertices.max(0), [1.1, 0.1, 0.1], atol=1e-3)
    np.testing.assert_allclose(mesh.vertices.min(0), [-0.1, -0.1, -0.1], atol=1e-3)


def test_mesh_geom():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco>
      <asset><mesh name="m" vertex="0 0 0  1 0 0  0 1 0  0 0 1" face="0 2 1 0 1 3 0 3 2 1 2 3"/></asset>
      <worldbody><body><geom type="mesh" mesh="m"/></body></worldbody>
    </mujoco>""")
    ((_, _, mesh),) = body_meshes(model, 1)
    assert volume(mesh) == pytest.approx(1 / 6, rel=1e-4)


def test_a_height_field_is_where_it_is_simulated_and_its_triangles_look_up():
    rng = np.random.default_rng(0)
    spec = mujoco.MjSpec()
    spec.add_hfield(name="ground", nrow=7, ncol=11, size=[2.0, 1.0, 0.5, 0.1], userdata=rng.random(77))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", pos=[3.0, -1.0, 0.2])
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    ((_, _, mesh),) = body_meshes(model, 0)
    assert (len(mesh.vertices), len(mesh.faces)) == (77, 120)
    corners = mesh.vertices[mesh.faces].astype(float)
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (normal[:, 2] > 0).all()
    # A ray down onto the middle of each triangle hits it there.
    for middle in corners.mean(axis=1):
        distance = mujoco.mj_ray(
            model, data, middle + np.array([0.0, 0, 2]), np.array([0.0, 0, -1]), None, 1, -1, np.zeros(1, np.int32)
        )
        assert distance == pytest.approx(2.0, abs=1e-5)


def test_a_large_height_field_is_thinned_out_up_to_its_edges():
    mesh = height_field(np.zeros((100, 50)), np.array([5.0, 10.0, 1.0]), limit=700)
    assert len(mesh.vertices) <= 800
    assert mesh.vertices.min(axis=0).tolist() == [-5.0, -10.0, 0.0]
    assert mesh.vertices.max(axis=0).tolist() == [5.0, 10.0, 0.0]


def test_height_of_a_robot_above_its_base():
    robot = """
    <mujoco><worldbody><body pos="0 0 0.7">{joint}
      <geom type="sphere" size="0.1"/>
      <geom type="sphere" size="9" group="3" contype="0" conaffinity="0"/>
      <body pos="0 0 0.2"><joint/><geom type="capsule" size="0.05 0.2" euler="0 60 0"/></body>
    </body></worldbody></mujoco>"""
    # 0.2 m to the capsule's middle, half of its length of 0.2 m (cos 60 deg) and its radius, by its bounding box.
    box_above = 0.25 * np.cos(np.pi / 3) + 0.05 * np.sin(np.pi / 3)
    model = mujoco.MjModel.from_xml_string(robot.format(joint="<freejoint/>"))
    assert height_above_base(model) == pytest.approx(0.2 + box_above, abs=1e-6)
    assert height_above_base(mujoco.MjModel.from_xml_string(robot.format(joint="<joint/>"))) == 0.0
