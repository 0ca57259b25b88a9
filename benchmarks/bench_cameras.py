"""Images a second of the cameras on a CPU, and of MuJoCo's own OpenGL renderer, one after the other.

    MUJOCO_GL=egl python benchmarks/bench_cameras.py out=benchmarks/bench_cameras.json worlds=128 repeats=7

Go2 with a camera at its front, on a plane and on a height field of stairs, each world in another place. Kinematics,
search trees, rendering and the conversion to float32 are counted; OpenGL gets kinematics, `update_scene` and `render`.
CPU time is that of all threads of the process, and less sensitive to what else the machine does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import warp as wp
from harness import in_turn, make_result, timed, write
from robot_rl_assets.registry import get_robot
from robot_rl_envs.cameras import Camera, ImageGroup
from robot_rl_envs.cameras.sensor import CameraSensor
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.task import Actions, Sim
from robot_rl_envs.terrain import PRESETS, build_terrain
from words import read_words, run_script

SIZES = ((64, 48), (32, 24))
KINDS = ("depth", "rgb")
GROUNDS = ("plane", "stairs")
THREADS = (1, 2)
GL_WORLDS = 8
KNOWN = {"worlds": "128", "repeats": "7", "out": ""}


def make_scene(ground: str) -> Scene:
    """A Go2 on a plane or on stairs."""
    robot = get_robot("unitree_go2")
    terrain = None if ground == "plane" else build_terrain(PRESETS[ground][1](), robot)
    return Scene(robot, Sim(), Actions(), terrain)


def places(scene: Scene, worlds: int) -> np.ndarray:
    """(worlds, nq) standing in different places and headings."""
    rng = np.random.default_rng(0)
    qpos = np.tile(scene.default_qpos, (worlds, 1))
    origins = np.zeros((1, 3)) if scene.terrain is None else scene.terrain.origins.reshape(-1, 3)
    yaw = rng.uniform(-np.pi, np.pi, worlds)
    qpos[:, :3] += origins[rng.integers(len(origins), size=worlds)]
    qpos[:, 3], qpos[:, 6] = np.cos(yaw / 2), np.sin(yaw / 2)
    return qpos.astype(np.float32)


def make_sensor(scene: Scene, kind: str, size: tuple[int, int], worlds: int, threads: int) -> CameraSensor:
    """The camera at the front, looking 20 degrees down."""
    camera = Camera(
        name="front",
        body=scene.robot.base_body,
        pos=(0.345, 0.0, 0.01),
        forward=(0.94, 0.0, -0.34),
        width=size[0],
        height=size[1],
        far=4.0,
    )
    state: dict[str, Any] = {"qpos": wp.array(places(scene, worlds), dtype=wp.float32, device="cpu")}
    for name in ("step_count", "counter"):
        state[name] = wp.zeros(worlds, dtype=wp.int32, device="cpu")
    return CameraSensor(kind, ImageGroup(camera=camera, kind=kind), scene, state, device="cpu", num_threads=threads)


def gl_pass(sensor: CameraSensor, qpos: np.ndarray) -> Callable[[], None]:
    """Return a function that renders a few worlds with OpenGL."""
    camera, model = sensor.group.camera, sensor._views.model
    renderer, data, option = (
        mujoco.Renderer(model, camera.height, camera.width),
        mujoco.MjData(model),
        mujoco.MjvOption(),
    )
    if sensor.group.kind == "depth":
        renderer.enable_depth_rendering()
        option.geomgroup[:] = 1

    def run() -> None:
        for row in qpos[:GL_WORLDS]:
            data.qpos[:] = row
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            renderer.update_scene(data, camera.name, option)
            renderer.render()

    return run


def measure(worlds: int, repeats: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Images a second by who, one value a repeat; and the median CPU time an image [ms]."""
    passes: dict[str, tuple[Callable[[], None], int]] = {}
    for ground in GROUNDS:
        scene = make_scene(ground)
        qpos = places(scene, worlds)
        for kind in KINDS:
            for size in SIZES:
                name = f"{kind} {size[0]}x{size[1]}, {ground}"
                sensors = {k: make_sensor(scene, kind, size, worlds, k) for k in THREADS}
                for threads, sensor in sensors.items():
                    passes[f"{name}, {threads} threads"] = (sensor.update, worlds)
                passes[f"{name}, OpenGL"] = (gl_pass(sensors[1], qpos), min(worlds, GL_WORLDS))
    found = in_turn(passes, lambda: [timed(work) for work, _ in passes.values()], repeats)
    rows = {who: [passes[who][1] / wall for wall, _ in times] for who, times in found.items()}
    spent = {who: [1e3 * cpu / passes[who][1] for _, cpu in times] for who, times in found.items()}
    return rows, {who: statistics.median(values) for who, values in spent.items()}


def main(arguments: list[str]) -> None:
    """Measure, print, write the JSON."""
    options = read_words(arguments, KNOWN, whole=("worlds", "repeats"))
    rows, cpu = measure(int(options["worlds"]), int(options["repeats"]))
    notes: dict[str, Any] = {"cpu_ms_per_image": cpu, "best": {who: max(values) for who, values in rows.items()}}
    result = make_result("camera images on a CPU", rows, unit="images/s", notes=notes)
    for row in result["rows"]:
        print(f"{row['who']:44s} {row['value']:8.0f} images/s   {cpu[row['who']]:7.3f} ms CPU an image")
    write(options["out"], result)


if __name__ == "__main__":
    run_script(main)
