"""docs/img/height_scan.png: the points that a Go2's height scan reads on stairs.

python benchmarks/sensor_images.py folder=docs/img
"""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from PIL import Image
from robot_rl_assets.registry import get_robot
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import rewards, sensing
from robot_rl_envs.render import CameraCfg, Renderer
from robot_rl_envs.task import Observation, ObservationGroup, Reward, Task
from robot_rl_envs.terrain import Stairs, TerrainCfg
from words import read_folder, run_script

LOW, HIGH = np.array([1.0, 0.85, 0.15]), np.array([1.0, 0.15, 0.10])
YAW = 0.5


def render(width: int = 900, height: int = 560) -> np.ndarray:
    """A Go2 on the edge of a flight of stairs, a ball at each point, yellow where it is low, red where high."""
    scan = {"scan": Observation(sensing.height_scan, offset=0.0)}
    tiles = {"stairs": Stairs(platform=1.6)}
    task = Task(
        name="height_scan",
        robot=get_robot("unitree_go2"),
        observations={"actor": ObservationGroup(terms=scan)},
        rewards={"alive": Reward(rewards.alive, weight=1.0)},
        terrain=TerrainCfg(tiles=tiles, num_rows=1, num_columns=1, difficulty=(0.45, 0.45), border=1.0),
    )
    env = make_env(task, num_envs=1, engine="mujoco", num_threads=1)
    for _ in range(25):
        env.step(torch.zeros(1, env.num_actions))
    qpos = env.state.qpos[0].numpy().astype(float)
    qpos[:2] += 0.4
    qpos[3:7] = [np.cos(YAW / 2), 0.0, 0.0, np.sin(YAW / 2)]
    base, turn = qpos[:3], np.array([[np.cos(YAW), -np.sin(YAW)], [np.sin(YAW), np.cos(YAW)]])
    env.engine.step = lambda substeps: env.state.qpos.copy_(torch.tensor(qpos)[None])
    env.step(torch.zeros(1, env.num_actions))
    below = env.state.height_scan[0].numpy()
    spec = env.scene.make_spec(visual=True, textured=True)
    ground = base[2] - below
    share = (ground - ground.min()) / np.ptp(ground)
    for point, z, t in zip(task.sensors.height_scan.points(), ground, share, strict=True):
        spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            size=[0.018, 0.0, 0.0],
            pos=[*(base[:2] + turn @ point), z + 0.01],
            rgba=[*(LOW + t * (HIGH - LOW)), 1.0],
            contype=0,
            conaffinity=0,
        )
    env.close()
    view = CameraCfg(azimuth=150.0, elevation=-28.0, distance=2.3)
    with Renderer(spec.compile(), width, height, view) as renderer:
        renderer.look_at(base - [0.0, 0.0, 0.15])
        return renderer.frame(qpos)


def main(arguments: list[str]) -> None:
    """Write the image."""
    out = read_folder(arguments, "height_scan.png")
    image = Image.fromarray(render()).convert("P", palette=Image.Palette.ADAPTIVE, colors=256)
    image.save(out / "height_scan.png", optimize=True)
    print(out / "height_scan.png", (out / "height_scan.png").stat().st_size, "bytes")


if __name__ == "__main__":
    run_script(main)
