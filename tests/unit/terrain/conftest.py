"""Small terrains, and the lookup called in a kernel of the tests."""

import dataclasses
from typing import Any

import mujoco
import numpy as np
import pytest
import warp as wp
from robot_rl_envs.terrain import PRESETS, TerrainCfg, add_ground, build_terrain
from robot_rl_envs.terrain.lookup import terrain_height
from robot_rl_envs.terrain.tiles import Grid


@wp.struct
class Ground:
    """The fields of the state that the lookup reads."""

    terrain_heights: wp.array(dtype=wp.float32, ndim=2)
    terrain_grid: wp.vec3
    terrain_stepped: wp.int32


@wp.kernel(module="unique")
def ask(s: Ground, points: wp.array(dtype=wp.vec2), answers: wp.array(dtype=wp.float32)):
    """Height under each point."""
    k = wp.tid()
    answers[k] = terrain_height(s, points[k][0], points[k][1])


def look_up(terrain: Any, points: np.ndarray) -> np.ndarray:
    """(k,) height under points (k, 2); `terrain` None is an endless plane."""
    s = Ground()
    heights = np.zeros((1, 1)) if terrain is None else terrain.heights
    s.terrain_heights = wp.array(heights, dtype=wp.float32, device="cpu")
    s.terrain_grid = wp.vec3(*((0.0, 0.0, 1.0) if terrain is None else terrain.grid))
    s.terrain_stepped = 0 if terrain is None else int(terrain.stepped)
    answers = wp.zeros(len(points), dtype=wp.float32, device="cpu")
    given = wp.array(np.asarray(points, dtype=np.float32), dtype=wp.vec2, device="cpu")
    wp.launch(ask, dim=len(points), inputs=[s, given, answers], device="cpu")
    return answers.numpy()


def compile_terrain(terrain: Any) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Only the terrain in a scene."""
    spec = mujoco.MjSpec()
    add_ground(terrain, spec)
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def vertical_rays(terrain: Any, points: np.ndarray) -> np.ndarray:
    """(k,) what rays straight down hit, by MuJoCo itself [m]."""
    model, data = compile_terrain(terrain)
    down, geom = np.array([0.0, 0.0, -1.0]), np.zeros(1, dtype=np.int32)
    above = float(terrain.heights.max()) + 1.0
    found = [
        mujoco.mj_ray(model, data, np.array([x, y, above]), down, None, 1, -1, geom, None)
        for x, y in np.float64(points)
    ]
    return above - np.array(found)


@pytest.fixture(scope="session")
def lookup():
    """look_up(terrain, points)."""
    return look_up


@pytest.fixture(scope="session")
def rays():
    """vertical_rays(terrain, points)."""
    return vertical_rays


@pytest.fixture(scope="session")
def compiled():
    """compile_terrain(terrain)."""
    return compile_terrain


@pytest.fixture(scope="session")
def small():
    """small(kind, **changes): a ready terrain with a narrow border, three rows by default."""

    def make(kind: str, **changes: Any):
        return build_terrain(dataclasses.replace(PRESETS[kind][1](), **{"num_rows": 3, "border": 2.0, **changes}))

    return make


@pytest.fixture(scope="session")
def single():
    """single(tile, **changes): a terrain of one kind of ground."""

    def make(tile: Any, **changes: Any):
        return build_terrain(TerrainCfg(tiles={"own": tile}, **{"num_rows": 2, "num_columns": 2, **changes}))

    return make


@pytest.fixture(scope="session")
def ground():
    """ground(tile, difficulty, seed=0, size=8.0, resolution=0.1): one tile's heights, with the grid they lie on."""

    def make(tile: Any, difficulty: float, seed: int = 0, size: float = 8.0, resolution: float = 0.1):
        heights = tile.heights(difficulty, size, resolution, np.random.default_rng(seed))
        return heights, Grid(size, resolution, tile.platform, tile.rim)

    return make
