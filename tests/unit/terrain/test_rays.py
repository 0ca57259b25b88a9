"""Map, physics and lookup are one ground: vertical rays of both engines against the height in a kernel."""

import mujoco
import numpy as np
import pytest
from robot_rl_envs.terrain import PRESETS, Stairs, add_ground

STEPPED = ("flat", "stairs", "stepping_stones", "gaps", "obstacles")
COUNT = 3000


def points(terrain, count=COUNT, seed=0):
    """Anywhere on the map, as the float32 numbers that a kernel sees."""
    ny, nx = terrain.heights.shape
    half = np.array([nx - 1, ny - 1]) * terrain.resolution / 2
    return np.random.default_rng(seed).uniform(-half, half, size=(count, 2)).astype(np.float32)


def steepness(terrain, at):
    """How much a position that is off by a meter would matter: the largest slope of the cells around a point."""
    column = ((at[:, 0] - terrain.x0) / terrain.resolution).astype(int)
    row = ((at[:, 1] - terrain.y0) / terrain.resolution).astype(int)
    corners = np.stack(
        [
            terrain.heights[
                np.minimum(row + i, terrain.heights.shape[0] - 1), np.minimum(column + j, terrain.heights.shape[1] - 1)
            ]
            for i in (0, 1)
            for j in (0, 1)
        ]
    )
    return np.ptp(corners, axis=0) / terrain.resolution


@pytest.mark.parametrize("kind", sorted(set(PRESETS) - {"rough"}))
def test_the_lookup_is_what_a_ray_hits_on_a_height_field(small, lookup, rays, kind):
    terrain = small(kind)
    at = points(terrain)
    error = np.abs(lookup(terrain, at) - rays(terrain, at))
    # A position in float32 is good to 2e-6 m, which the sides of a pit multiply by their slope.
    assert (error <= 1e-5 * np.maximum(steepness(terrain, at), 1.0)).all()
    assert np.median(error) < 2e-6


@pytest.mark.parametrize("kind", STEPPED)
def test_the_lookup_is_what_a_ray_hits_on_boxes(small, lookup, rays, kind):
    terrain = small(kind, form="boxes")
    at = points(terrain)
    # On the very line between two cells either answer is right.
    place = np.stack([(at[:, 0] - terrain.x0), (at[:, 1] - terrain.y0)]) / terrain.resolution + 0.5
    inside = (np.abs(place - np.round(place)) > 1e-3).all(axis=0)
    assert inside.mean() > 0.98
    assert lookup(terrain, at)[inside] == pytest.approx(rays(terrain, at)[inside], abs=1e-5)


@pytest.mark.parametrize("form", ["hfield", "boxes"])
def test_the_lookup_at_the_points_of_the_map_is_the_map(small, lookup, form):
    terrain = small("stairs", num_rows=1, border=1.0, form=form)
    ny, nx = terrain.heights.shape
    x, y = np.meshgrid(terrain.x0 + np.arange(nx) * 0.1, terrain.y0 + np.arange(ny) * 0.1)
    found = lookup(terrain, np.stack([x.ravel(), y.ravel()], axis=1))
    assert found == pytest.approx(terrain.heights.ravel(), abs=1e-5)


def test_spawn_points_are_on_the_ground(small, lookup, rays):
    terrain = small("stairs")
    origins = terrain.origins.reshape(-1, 3)
    assert lookup(terrain, origins[:, :2]) == pytest.approx(origins[:, 2], abs=1e-5)
    assert rays(terrain, origins[:, :2]) == pytest.approx(origins[:, 2], abs=1e-5)


def test_outside_the_map_the_ground_goes_on_as_at_its_edge(single, lookup):
    terrain = single(Stairs(), border=0.0)
    terrain.heights[:, 0] = 0.25
    terrain.heights[-1, :] = 0.5
    far = np.array([[-100.0, 0.0], [0.0, 100.0], [-100.0, 100.0], [100.0, 100.0]], dtype=np.float32)
    assert lookup(terrain, far).tolist() == pytest.approx([0.25, 0.5, 0.5, 0.5])


def test_an_endless_plane_is_at_zero(lookup):
    assert lookup(None, np.array([[3.0, -400.0]])).tolist() == [0.0]


@pytest.mark.parametrize("form", ["hfield", "boxes"])
def test_a_ball_comes_to_rest_on_the_ground_that_the_lookup_says(small, lookup, form):
    terrain = small("stairs", form=form)
    spec = mujoco.MjSpec()
    add_ground(terrain, spec, friction=0.7)
    where = terrain.origins[2, 0] + [0.3, -0.2, 0.0]
    ball = spec.worldbody.add_body(pos=[where[0], where[1], where[2] + 0.15])
    ball.add_freejoint()
    geom = ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0.0, 0.0], mass=1.0)
    geom.contype, geom.conaffinity = 0, 1
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 800)
    floor = lookup(terrain, data.qpos[None, :2])[0]
    assert floor == pytest.approx(-1.44, abs=1e-4)
    assert data.qpos[2] == pytest.approx(floor + 0.1, abs=2e-3)
    assert model.geom("floor").friction[0] == pytest.approx(0.7)
    assert (model.geom("floor").contype[0], model.geom("floor").conaffinity[0]) == (1, 0)


@pytest.mark.long
def test_mujoco_warp_sees_the_same_ground(small, lookup):
    import mujoco_warp as mjw
    import warp as wp

    terrain = small("stairs", num_rows=1, border=0.0)
    spec = mujoco.MjSpec()
    add_ground(terrain, spec)
    spec.worldbody.add_body(pos=[0.0, 0.0, 50.0]).add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.1, 0.0, 0.0])
    model = spec.compile()
    at = points(terrain, 300)
    count, above = len(at), 2.5
    with wp.ScopedDevice("cpu"):
        m, d = mjw.put_model(model), mjw.put_data(model, mujoco.MjData(model))
        mjw.kinematics(m, d)
        origins = wp.array(np.column_stack([at, np.full(count, above)])[None], dtype=wp.vec3)
        down = wp.array(np.tile([0.0, 0.0, -1.0], (1, count, 1)), dtype=wp.vec3)
        distance, normal = wp.zeros((1, count), dtype=float), wp.zeros((1, count), dtype=wp.vec3)
        geom, none = wp.zeros((1, count), dtype=int), wp.full(count, -1, dtype=int)
        groups = mjw._src.types.vec6(-1, -1, -1, -1, -1, -1)
        mjw.rays(m, d, origins, down, groups, True, none, distance, geom, normal)
    error = np.abs(above - distance.numpy()[0] - lookup(terrain, at))
    assert (error <= 1e-5 * np.maximum(steepness(terrain, at), 1.0)).all()
