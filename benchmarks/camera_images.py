"""Images of a Go2's front camera in several worlds: docs/img/camera_depth.png and docs/img/camera_rgb.png.

    python benchmarks/camera_images.py folder=docs/img

Each column is a world: at the foot of stairs, between blocks, on stepping stones, on hills. Depth is drawn from near
(dark) to far (white).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp
from PIL import Image
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.cameras.sensor import CameraSensor
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Actions, Sim
from robot_rl_envs.terrain import Obstacles, Stairs, SteppingStones, TerrainCfg, Waves, build_terrain
from words import read_folder, run_script

WIDTH, HEIGHT, ZOOM, GAP = 120, 90, 2, 8
TILES = {
    "stairs": Stairs(up=True),
    "blocks": Obstacles(),
    "stones": SteppingStones(),
    "waves": Waves(),
}
BACKWARD = {"stairs": -0.5, "blocks": 0.5, "stones": 0.3, "waves": 0.5}
"""How far ahead of the tile's middle the robot stands [m]."""


def make_scene() -> Scene:
    """A row of difficult tiles, one of each kind."""
    robot = get_robot("unitree_go2")
    cfg = TerrainCfg(tiles=TILES, num_rows=1, num_columns=len(TILES), difficulty=(0.8, 0.8), border=5.0, seed=2)
    return Scene(robot, Sim(), Actions(), build_terrain(cfg, robot))


def see(scene: Scene, kind: str) -> np.ndarray:
    """(worlds, height, width, 3) uint8, one world on each tile."""
    assert scene.terrain is not None
    worlds = len(TILES)
    qpos = np.tile(scene.default_qpos, (worlds, 1))
    qpos[:, :3] += scene.terrain.origins[0]
    qpos[:, 0] += [BACKWARD[name] for name in scene.terrain.kinds]
    camera = Camera(
        name="front",
        body=scene.robot.base_body,
        pos=(0.345, 0.0, 0.01),
        forward=(0.94, 0.0, -0.34),
        fovy=65.0,
        width=WIDTH,
        height=HEIGHT,
        far=2.5,
    )
    state: dict[str, Any] = {"qpos": wp.array(qpos.astype(np.float32), dtype=wp.float32, device="cpu")}
    for name in ("step_count", "counter"):
        state[name] = wp.zeros(worlds, dtype=wp.int32, device="cpu")
    sensor = CameraSensor(kind, ImageGroup(camera=camera, kind=kind), scene, state, device="cpu", num_threads=2)
    sensor.update()
    image = np.broadcast_to(sensor.out.numpy(), (worlds, 3, HEIGHT, WIDTH)).transpose(0, 2, 3, 1)
    sensor.close()
    return np.round(255 * image).astype(np.uint8)


def strip(images: np.ndarray) -> Image.Image:
    """The images side by side."""
    big = images.repeat(ZOOM, axis=1).repeat(ZOOM, axis=2)
    gap = np.full((HEIGHT * ZOOM, GAP, 3), 255, dtype=np.uint8)
    parts = [part for image in big for part in (image, gap)][:-1]
    return Image.fromarray(np.concatenate(parts, axis=1))


def main(arguments: list[str]) -> None:
    """Write both images."""
    kinds = ("depth", "rgb")
    folder = read_folder(arguments, *(f"camera_{kind}.png" for kind in kinds))
    scene = make_scene()
    for kind in kinds:
        strip(see(scene, kind)).save(folder / f"camera_{kind}.png", optimize=True)


if __name__ == "__main__":
    run_script(main)
