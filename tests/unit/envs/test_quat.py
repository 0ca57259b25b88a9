"""Rotations by w, x, y, z quaternions, against rotation matrices."""

import numpy as np
import pytest
import warp as wp
from robot_rl_envs import quat


@wp.kernel(enable_backward=False)
def apply_all(
    q: wp.array(dtype=wp.vec4),
    p: wp.array(dtype=wp.vec4),
    v: wp.array(dtype=wp.vec3),
    angle: wp.array(dtype=float),
    rotated: wp.array(dtype=wp.vec3),
    inverse: wp.array(dtype=wp.vec3),
    product: wp.array(dtype=wp.vec4),
    turned: wp.array(dtype=wp.vec4),
    yaw: wp.array(dtype=float),
):
    i = wp.tid()
    rotated[i] = quat.quat_rotate(q[i], v[i])
    inverse[i] = quat.quat_rotate_inverse(q[i], v[i])
    product[i] = quat.quat_multiply(q[i], p[i])
    turned[i] = quat.quat_from_axis_angle(wp.normalize(v[i]), angle[i])
    yaw[i] = quat.yaw_of(q[i])


def matrix(q):
    """Rotation matrix (3, 3) of a unit quaternion w, x, y, z, from the textbook."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def apply(q, p, v, angle):
    n = len(q)
    outputs = [wp.zeros(n, dtype=t, device="cpu") for t in (wp.vec3, wp.vec3, wp.vec4, wp.vec4, float)]
    kinds = (wp.vec4, wp.vec4, wp.vec3, float)
    inputs = [
        wp.array(np.asarray(x, np.float32), dtype=t, device="cpu") for x, t in zip((q, p, v, angle), kinds, strict=True)
    ]
    wp.launch(apply_all, dim=n, inputs=inputs, outputs=outputs, device="cpu")
    return [output.numpy() for output in outputs]


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(0)
    q, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, 50, 4)))
    return q, p, rng.normal(size=(50, 3)), rng.uniform(-3, 3, size=50)


def test_rotations_are_those_of_the_matrix(cases):
    q, p, v, angle = cases
    rotated, inverse, product, _, yaw = apply(q, p, v, angle)
    for i in range(len(q)):
        r = matrix(q[i])
        np.testing.assert_allclose(rotated[i], r @ v[i], atol=2e-6)
        np.testing.assert_allclose(inverse[i], r.T @ v[i], atol=2e-6)
        np.testing.assert_allclose(matrix(product[i]), r @ matrix(p[i]), atol=2e-6)
        assert yaw[i] == pytest.approx(np.arctan2(r[1, 0], r[0, 0]), abs=1e-5)


def test_axis_and_angle_follow_rodrigues(cases):
    q, p, v, angle = cases
    turned = apply(q, p, v, angle)[3]
    for i in range(len(q)):
        k = v[i] / np.linalg.norm(v[i])
        cross = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
        want = np.eye(3) + np.sin(angle[i]) * cross + (1 - np.cos(angle[i])) * cross @ cross
        np.testing.assert_allclose(matrix(turned[i]), want, atol=2e-6)


def test_a_quarter_turn_about_z_takes_x_to_y():
    """w comes first: read as x, y, z, w the same four numbers turn half round about another axis, without a warning."""
    half = np.sqrt(0.5)
    rotated, inverse, _, turned, yaw = apply(
        [[half, 0, 0, half]] * 2, [[1, 0, 0, 0]] * 2, [[1, 0, 0], [0, 0, 1]], [0, np.pi / 2]
    )
    np.testing.assert_allclose(rotated[0], [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(inverse[0], [0, -1, 0], atol=1e-6)
    np.testing.assert_allclose(turned[1], [half, 0, 0, half], atol=1e-6)
    assert yaw[0] == pytest.approx(np.pi / 2, abs=1e-6)
