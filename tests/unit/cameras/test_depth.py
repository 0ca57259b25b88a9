"""Depth images against exact formulas and against MuJoCo's own renderer."""

import numpy as np
import pytest

CARRIER = 2.0


def test_level_ground_seen_at_a_slant(rig):
    forward = np.array([1.0, 0.0, -2.0])
    r = rig(forward=tuple(forward), up=(0, 0, 1), pos=(0, -4, 0))
    world = r.rays() @ r.camera.rotation().T
    expected = CARRIER / -world[..., 2]
    image = r.step()
    assert image.shape == (1, 1, 24, 32)
    assert expected.max() < 8.0
    np.testing.assert_allclose(image[0, 0], expected / 8.0, rtol=1e-5)


def test_top_of_a_box(rig):
    r = rig(pos=(3.0, 0.0, 0.0))
    depth = 8.0 * r.step()[0, 0]
    # The camera's up is the world's x, its right the world's -y; of the box only the top is seen from above its middle.
    rays = r.rays()
    on_top = (np.abs(rays[..., 1] * 1.4) < 0.5) & (np.abs(rays[..., 0] * 1.4) < 0.4)
    assert 20 < on_top.sum() < 300
    np.testing.assert_allclose(depth[on_top], 1.4, rtol=1e-5)
    np.testing.assert_allclose(depth[~on_top], 2.0, rtol=1e-5)


def test_a_ball(rig):
    r = rig(pos=(-3.0, 0.0, 0.0))
    depth = 8.0 * r.step()[0, 0]
    rays = r.rays()
    # |t ray - center| = radius with the center 1.5 m ahead; t is depth, since rays are 1 long along the line of sight.
    a, b, c = (rays**2).sum(-1), 1.5, 1.5**2 - 0.5**2
    root = b * b - a * c
    hit = root > 1e-3
    assert 100 < hit.sum() < 500
    np.testing.assert_allclose(depth[hit], ((b - np.sqrt(np.where(hit, root, 0))) / a)[hit], rtol=1e-4)
    np.testing.assert_allclose(depth[root < -1e-3], 2.0, rtol=1e-5)


def test_the_step_of_a_height_field(rig):
    r = rig(pos=(0.0, 10.0, 0.0))
    depth = 8.0 * r.step()[0, 0]
    # Up is x: the upper part of the image sees the higher half; its edge rises from x = -0.2 to 0.
    np.testing.assert_allclose(depth[:11], 2.0 - 0.51, atol=1e-4)
    np.testing.assert_allclose(depth[15:], 2.0 - 0.01, atol=1e-4)


def test_right_in_the_image_is_right_of_the_camera(rig):
    r = rig(forward=(1, 0, 0), up=(0, 0, 1), pos=(0.0, 0.6, -1.5))
    image = r.step()[0, 0]
    # The box is ahead and to the right (-y) of it; the sky is above, the ground below.
    assert image[13, 20] < 3.0 / 8.0
    assert image[13, 11] > 3.0 / 8.0
    assert (image[0] == 1.0).all()
    assert (image[-1] < 0.2).all()


def test_near_and_far_bound_the_depth(rig):
    poses = [[0, -4, z, 1, 0, 0, 0] for z in (0.05, 1.0, 7.9, 9.0, 100.0)]
    image = rig(poses, near=0.2).step()[:, 0, 12, 16]
    np.testing.assert_allclose(image, [0.2 / 8, 1 / 8, 7.9 / 8, 1.0, 1.0], rtol=1e-4)


def test_the_camera_goes_with_its_body_and_its_site(rig):
    r = rig(num_envs=3, pos=(0, -4, 0))
    r.lift([1.0, 2.0, 3.0])
    np.testing.assert_allclose(r.step()[:, 0, 12, 16] * 8, [1, 2, 3], rtol=1e-5)
    on_site = rig(body="mast", pos=(0, 0, 0.25), num_envs=1)
    np.testing.assert_allclose(on_site.step()[0, 0, 12, 16] * 8, CARRIER + 0.75, rtol=1e-5)


def test_a_camera_in_the_world_sees_the_body_move(rig):
    r = rig(body="world", pos=(0.0, 0.0, 3.0), width=101, height=101, fovy=10.0, num_envs=2)
    r.lift([2.0, 2.5])
    np.testing.assert_allclose(r.step()[:, 0, 50, 50] * 8, [0.99, 0.49], rtol=1e-4)


def test_noise_is_a_share_of_the_depth_and_missing_pixels_are_zero(rig):
    r = rig(num_envs=8, noise=0.02, missing=0.1, pos=(0, -4, 0), fovy=5.0)
    r.lift([1.0] * 4 + [4.0] * 4)
    image = r.step()[:, 0] * 8
    gone = image == 0
    assert 0.08 < gone.mean() < 0.12
    for half, depth in ((image[:4], 1.0), (image[4:], 4.0)):
        values = half[half > 0]
        assert abs(values.mean() / depth - 1) < 2e-3
        assert 0.018 < values.std() / depth < 0.022
    # Another step, another world, another noise.
    assert (r.step()[:, 0] * 8 != image).mean() > 0.9
    assert (image[0] != image[1]).mean() > 0.9


def test_the_same_bits_at_any_number_of_threads_and_any_split_of_worlds(rig):
    faults = {"noise": 0.05, "missing": 0.1, "pos_jitter": 0.1, "angle_jitter_deg": 5.0, "pos": (0, -3, 0)}
    one = rig(num_envs=5, num_threads=1, seed=3, **faults).step()
    np.testing.assert_array_equal(rig(num_envs=5, num_threads=3, seed=3, **faults).step(), one)
    np.testing.assert_array_equal(rig(num_envs=2, seed=3, world_offset=3, **faults).step(), one[3:])
    assert (rig(num_envs=5, seed=4, **faults).step() != one).mean() > 0.5


def test_the_mount_is_off_by_no_more_than_it_may(rig):
    r = rig(num_envs=200, pos_jitter=0.2, angle_jitter_deg=0.0, pos=(0, -4, 0), width=1, height=1)
    heights = 8 * r.step()[:, 0, 0, 0]
    assert heights.min() > 1.8 - 1e-5
    assert heights.max() < 2.2 + 1e-5
    assert heights.std() > 0.09
    tilted = rig(num_envs=200, angle_jitter_deg=10.0, pos=(0, -4, 0), width=1, height=1)
    slant = np.degrees(np.arccos(2.0 / (8 * tilted.step()[:, 0, 0, 0])))
    assert slant.max() < 10 * np.sqrt(2) + 0.1
    assert slant.mean() > 4


@pytest.mark.parametrize("view", ["ground", "box", "ball", "field"])
def test_depth_is_that_of_mujocos_renderer(rig, gl, view):
    place = {"ground": (0, -4, 0), "box": (1.0, 0.5, -1), "ball": (-1, 0, 0), "field": (0, 7, -1)}[view]
    ahead = {"ground": (0, -1, -1), "box": (1, 0, -0.3), "ball": (-1, 0, -0.6), "field": (0, 1, -0.3)}[view]
    r = rig(pos=place, forward=ahead, up=(0, 0, 1), width=64, height=48)
    image, other = 8.0 * r.step()[0, 0], np.minimum(r.gl(), 8.0)
    # Within a pixel of an edge either may see what is before or behind it.
    off = np.abs(image - other) > 2e-3 * other
    assert off.mean() < 0.005
    assert np.std(image) > 0.1
