"""A robot's camera on terrain: what MuJoCo's renderer shows, as a height field and as boxes."""

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import warp as wp
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Actions, Sim
from robot_rl_envs.terrain import Obstacles, Stairs, TerrainCfg, build_terrain

pytestmark = pytest.mark.long
WORLDS = 4


@pytest.fixture(params=["hfield", "boxes"])
def seen(request):
    """A Go2's depth images in a few places of a terrain of one form, and the model that they are of."""
    from robot_rl_envs.cameras.sensor import CameraSensor

    robot = get_robot("unitree_go2")
    tiles = {"stairs": Stairs(up=True), "blocks": Obstacles()}
    cfg = TerrainCfg(tiles=tiles, num_rows=2, num_columns=2, border=3.0, form=request.param, seed=1)
    scene = Scene(robot, Sim(), Actions(), build_terrain(cfg, robot))
    qpos = np.tile(scene.default_qpos, (WORLDS, 1))
    qpos[:, :3] += scene.terrain.origins.reshape(-1, 3)
    camera = Camera(name="front", body="base_link", pos=(0.36, 0, 0.1), forward=(1, 0, -0.4), far=4.0)
    state = {"qpos": wp.array(qpos.astype(np.float32), dtype=wp.float32, device="cpu")}
    state |= {name: wp.zeros(WORLDS, dtype=wp.int32, device="cpu") for name in ("step_count", "counter")}
    sensor = CameraSensor("front", ImageGroup(camera=camera), scene, state, device="cpu", num_threads=2)
    sensor.update()
    yield SimpleNamespace(form=request.param, sensor=sensor, scene=scene, qpos=qpos, camera=camera)
    sensor.close()


def test_depth_on_terrain_is_that_of_mujocos_renderer(seen, gl):
    plain = seen.scene.make_spec(visual=False, textured=False)
    seen.camera.add_to(plain)
    model = plain.compile()
    model.stat.extent, model.vis.map.znear, model.vis.map.zfar = 1.0, 0.02, 64.0
    data, option = mujoco.MjData(model), mujoco.MjvOption()
    option.geomgroup[:] = 1
    with mujoco.Renderer(model, seen.camera.height, seen.camera.width) as renderer:
        renderer.enable_depth_rendering()
        for row, image in zip(seen.qpos, 4.0 * seen.sensor.out.numpy()[:, 0], strict=True):
            data.qpos[:] = row
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, "front", option)
            other = np.clip(renderer.render(), 0.1, 4.0)
            assert (np.abs(image - other) > 5e-3).mean() < 0.01
            assert np.std(image) > 0.1


def test_boxes_are_merged_and_a_height_field_stays_one(seen):
    model = seen.sensor._views.model
    ground = model.geom_type[model.geom_bodyid == 0].tolist()
    if seen.form == "hfield":
        assert ground == [int(mujoco.mjtGeom.mjGEOM_HFIELD)]
    else:
        assert len(seen.scene.terrain.boxes) > 32
        assert ground == [int(mujoco.mjtGeom.mjGEOM_MESH)]
