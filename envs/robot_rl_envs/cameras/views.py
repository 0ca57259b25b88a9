"""MuJoCo Warp's ray-cast renderer for one camera of many worlds; it runs on a GPU and, on several threads, on a CPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src.bvh import build_scene_bvh

from robot_rl_envs.cameras.kernels import paint
from robot_rl_envs.entity.scene import Scene
from robot_rl_envs.sensing.camera import ImageGroup

FAR_RGB = 256.0
"""What is farther is sky in a color image [m]."""
VISUAL_GROUPS = [0, 1, 2]
"""Geom groups that MuJoCo's viewers show."""
EVERY_GROUP = list(range(6))
MOST_BOXES = 32
"""Boxes that stand still in the world are merged into meshes if they are more."""
SHADES = 8
"""Steps of each color that merged boxes keep apart."""
_BOX_SIGNS = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)], dtype=float)
_BOX_FACES = np.array(
    [
        *([0, 2, 1], [1, 2, 3], [4, 5, 6], [5, 7, 6], [0, 1, 4], [1, 5, 4]),
        *([2, 6, 3], [3, 6, 7], [0, 4, 2], [2, 4, 6], [1, 3, 5], [3, 7, 5]),
    ]
)


def camera_model(scene: Scene, group: ImageGroup) -> mujoco.MjModel:
    """Compile the camera's scene: robot, ground and light; its qpos is the simulated model's.

    Raises:
        ValueError: the camera's body, site or name is not in the robot's model.
    """
    rgb = group.kind == "rgb"
    spec = scene.make_spec(visual=group.geometry == "visual", textured=rgb)
    group.camera.add_to(spec, scene.robot)
    merge_boxes(spec)
    # No physics happens here: without contacts there is nothing to allocate for them.
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    model = spec.compile()
    model.stat.extent = 1.0
    # It is compiled into the renderer: powers of two, so that cameras of about the same range share one.
    model.vis.map.zfar = FAR_RGB if rgb else 2.0 ** math.ceil(math.log2(group.camera.far))
    # The same light as in the project's other images.
    light = model.vis.headlight
    light.ambient[:], light.diffuse[:], light.specular[:] = 0.42, 0.35, 0.05
    model.light_ambient[:], model.light_diffuse[:], model.light_specular[:] = 0.0, 0.42, 0.25
    return model


def merge_boxes(spec: mujoco.MjSpec) -> None:
    """Replace many static boxes by a few meshes, one a color.

    A geom's bounds are computed in every world and step; a mesh has one search tree for all of them.
    """
    boxes = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_BOX]
    if len(boxes) <= MOST_BOXES:
        return
    colors: dict[tuple[float, ...], list[Any]] = {}
    for box in boxes:
        colors.setdefault(tuple(np.round(np.asarray(box.rgba) * SHADES) / SHADES), []).append(box)
    for k, (rgba, same) in enumerate(colors.items()):
        corners = np.concatenate([_corners(box) for box in same])
        faces = (8 * np.arange(len(same))[:, None, None] + _BOX_FACES).reshape(-1, 3)
        mesh = spec.add_mesh(name=f"boxes_{k}", uservert=corners.ravel(), userface=faces.ravel())
        mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        merged = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=f"boxes_{k}", rgba=rgba)
        merged.contype = merged.conaffinity = 0
        merged.group = same[0].group
    for box in boxes:
        spec.delete(box)


def _corners(box: Any) -> np.ndarray:
    """Return the corners (8, 3) of a box geom, in the world [m]."""
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, np.asarray(box.quat, dtype=float))
    return np.asarray(box.pos) + (_BOX_SIGNS * np.asarray(box.size)) @ turn.reshape(3, 3).T


class View:
    """Worlds ``first`` .. ``first + count`` seen by one camera, with their own poses and renderer.

    Attributes:
        data: their poses.
        image: (count, pixels) the last rendering: depth [m], 0 without a hit, or colors, 0xAARRGGBB.
    """

    def __init__(self, model: Any, data: Any, context: Any, first: int, count: int, *, rgb: bool):
        self._model, self.data, self._context = model, data, context
        self.first, self.count = first, count
        self._rgb, self._paint = rgb, []
        self.image = context.rgb_data if rgb else context.depth_data

    def paint_by(self, model: Any, owners: np.ndarray, tint: wp.array) -> None:
        """Color geoms from now on by ``tint`` (num_envs, objects, 4), if its last number is not 0.

        Args:
            model: the compiled scene, with the colors of geoms without a drawn one.
            owners: (ngeom,) index of the object that a geom belongs to, -1 without one.
            tint: red, green, blue, and whether they were drawn.
        """
        # The renderer reads one row a world; worlds of other parts have separate arrays.
        self._model = copy.copy(self._model)
        own = np.tile(model.geom_rgba.astype(np.float32), (self.count, 1, 1))
        self._model.geom_rgba = wp.array(own, dtype=wp.vec4)
        mine = tint[self.first : self.first + self.count]
        self._paint = [wp.array(owners, dtype=wp.int32), mine, self._model.geom_rgba]

    def place(self, qpos: Any) -> None:
        """Set the worlds' bodies, geoms, lights and drawn colors; ``qpos`` is (num_envs, nq)."""
        if self._paint:
            wp.launch(paint, dim=self._model.geom_rgba.shape, inputs=self._paint)
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
        camera: id of the camera in ``model``.
        model: the rendered scene.
    """

    def __init__(
        self,
        scene: Scene,
        group: ImageGroup,
        *,
        num_envs: int,
        device: str,
        num_threads: int,
        tint: wp.array | None = None,
    ):
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
            for first, end in pairwise(edges):
                worlds = end - first
                if context is None:
                    context = self._make_context(group, worlds)
                else:
                    context = _context_like(context, self.model, worlds)
                data = mjw.make_data(self.model, nworld=worlds, nconmax=1, njmax=1)
                self.parts.append(View(warp_model, data, context, first, worlds, rgb=rgb))
                if rgb and tint is not None:
                    self.parts[-1].paint_by(self.model, owners_of(self.model, list(scene.objects)), tint)

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
        """Do ``work`` on every part, in parallel on a CPU; on return a CPU has finished, a GPU has it queued."""
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


def owners_of(model: mujoco.MjModel, objects: list[str]) -> np.ndarray:
    """Return the index of the object that each geom belongs to (ngeom,), -1 without one."""
    roots = {model.body(name).id: k for k, name in enumerate(objects)}
    owners = np.full(model.ngeom, -1, dtype=np.int32)
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        while body and body not in roots:
            body = int(model.body_parentid[body])
        owners[geom] = roots.get(body, -1)
    return owners


def _context_like(context: Any, model: mujoco.MjModel, worlds: int) -> Any:
    """Return a render context for other worlds that shares meshes, height fields, textures and rays with ``context``.

    Building a height field's search tree takes seconds; two sets of worlds differ only in their geoms' poses and
    images.
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
