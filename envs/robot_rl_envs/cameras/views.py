"""MuJoCo Warp's ray-cast renderer for one camera of many worlds; it runs on a GPU and, on several threads, on a CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.bvh import build_scene_bvh

from robot_rl_envs.cameras.config import ImageGroup

if TYPE_CHECKING:
    from robot_rl_envs.scene import Scene

FAR_RGB = 200.0
"""What is farther is sky in a colour image [m]."""
VISUAL_GROUPS = [0, 1, 2]
"""Geom groups that MuJoCo's viewers show."""
EVERY_GROUP = list(range(6))


def camera_model(scene: Scene, group: ImageGroup) -> mujoco.MjModel:
    """Compile what the camera of ``group`` looks at: robot, ground and light; its qpos is the simulated model's.

    Raises:
        ValueError: the camera's body, site or name is not in the robot's model.
    """
    rgb = group.kind == "rgb"
    spec = scene.make_spec(visual=group.geometry == "visual", textured=rgb)
    group.camera.add_to(spec, scene.robot)
    # No physics happens here: without contacts there is nothing to allocate for them.
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    model = spec.compile()
    model.stat.extent = 1.0
    model.vis.map.zfar = FAR_RGB if rgb else group.camera.far
    # As the project's pictures are lit.
    light = model.vis.headlight
    light.ambient[:], light.diffuse[:], light.specular[:] = 0.42, 0.35, 0.05
    model.light_ambient[:], model.light_diffuse[:], model.light_specular[:] = 0.0, 0.42, 0.25
    return model


class View:
    """Worlds ``first`` .. ``first + count`` seen by one camera: poses and renderer of their own.

    Attributes:
        first, count: the worlds.
        data: their poses.
        image: (count, pixels) what was rendered last: depth [m], 0 where nothing is met, or colours packed as 0xAARRGGBB.
    """

    def __init__(self, model: Any, data: Any, context: Any, first: int, count: int, *, rgb: bool):
        self._model, self.data, self._context = model, data, context
        self.first, self.count = first, count
        self._rgb = rgb
        self.image = context.rgb_data if rgb else context.depth_data

    def place(self, qpos: wp.array) -> None:
        """Put the worlds' bodies, geoms and lights where ``qpos`` (num_envs, nq) has them."""
        wp.copy(self.data.qpos, qpos[self.first : self.first + self.count])
        mjw.kinematics(self._model, self.data)
        if self._rgb:
            mjw.camlight(self._model, self.data)

    def render(self) -> None:
        """Render every world's image from ``data.cam_xpos`` and ``data.cam_xmat``."""
        mjw.refit_bvh(self._model, self.data, self._context)
        mjw.render(self._model, self.data, self._context)


class Views:
    """All worlds' images of one camera, in as many parts as there are threads.

    Attributes:
        parts: the parts.
        camera: id of the camera in ``model``.
        model: what is seen.
    """

    def __init__(self, scene: Scene, group: ImageGroup, *, num_envs: int, device: str, num_threads: int):
        self.model = camera_model(scene, group)
        self.camera = mujoco.mj_name2id(self.model, mujoco.mjtObj.mjOBJ_CAMERA, group.camera.name)
        self._device = device
        count = 1 if device.startswith("cuda") else max(1, min(num_threads, num_envs))
        edges = np.linspace(0, num_envs, count + 1).astype(int).tolist()
        self._pool = ThreadPoolExecutor(count - 1, "robot-rl-camera") if count > 1 else None
        rgb = group.kind == "rgb"
        with wp.ScopedDevice(device):
            warp_model = mjw.put_model(self.model)
            context = None
            self.parts = []
            for first, end in zip(edges[:-1], edges[1:], strict=True):
                worlds = end - first
                if context is None:
                    context = self._make_context(group, worlds)
                else:
                    context = _context_like(context, self.model, worlds)
                data = mjw.make_data(self.model, nworld=worlds, nconmax=1, njmax=1)
                self.parts.append(View(warp_model, data, context, first, worlds, rgb=rgb))

    def _make_context(self, group: ImageGroup, worlds: int) -> Any:
        rgb = group.kind == "rgb"
        return mjw.create_render_context(
            self.model,
            nworld=worlds,
            cam_res=(group.camera.width, group.camera.height),
            render_rgb=rgb,
            render_depth=not rgb,
            render_seg=False,
            use_textures=rgb,
            render_skybox=rgb,
            background_color=(0.9, 0.94, 0.98, 1.0),
            enabled_geom_groups=VISUAL_GROUPS if group.geometry == "visual" else EVERY_GROUP,
            cam_active=[self.camera],
        )

    def run(self, work: Callable[[View], None]) -> None:
        """Do ``work`` on every part, side by side on a CPU; on return a CPU has finished, a GPU has it queued."""
        with wp.ScopedDevice(self._device):
            if self._pool is None:
                for part in self.parts:
                    work(part)
                return
            others = [self._pool.submit(work, part) for part in self.parts[1:]]
            work(self.parts[0])
            for other in others:
                other.result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


def _context_like(context: Any, model: mujoco.MjModel, worlds: int) -> Any:
    """A render context for other worlds that shares meshes, height fields, textures and rays with ``context``.

    Building a height field's search tree takes seconds; what differs between two sets of worlds is only where their
    geoms are, and the images.
    """
    other = copy.copy(context)
    per_world = context.lower.shape[0] // context.group_root.shape[0]
    for name in ("lower", "upper", "group"):
        setattr(other, name, wp.zeros(worlds * per_world, dtype=getattr(context, name).dtype))
    other.group_root = wp.zeros(worlds, dtype=int)
    for name in ("rgb_data", "depth_data", "seg_data", "aa_accum"):
        mine = getattr(context, name)
        setattr(other, name, wp.zeros((worlds, mine.shape[1]), dtype=mine.dtype))
    other.flex_group_root = wp.zeros((worlds, model.nflex), dtype=int)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    build_scene_bvh(model, data, other, worlds)
    return other
