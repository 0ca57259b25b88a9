"""Images of a scene without a display: MuJoCo's own renderer on EGL or OSMesa, the camera following the robot."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import ctypes.util
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mujoco

NO_GL = (
    "no OpenGL without a display: install libegl1 libegl-mesa0 libgl1-mesa-dri (Debian, Ubuntu), or libosmesa6 and set "
    "MUJOCO_GL=osmesa"
)
MAX_GEOMS = 5000
SCALE = 2
"""Each pixel is the mean of SCALE x SCALE: OpenGL's own antialiasing leaves the edges of shadows in steps."""
PARKED_M = 15.0
"""Distance from the middle of a team from which on a robot is parked [m]."""


class NoGLError(RuntimeError):
    """OpenGL, which renders, is missing; the message names the package to install."""


@dataclass(kw_only=True, slots=True)
class CameraCfg:
    """The camera's pose relative to the robot. What is None is chosen from the model.

    Attributes:
        distance: from the robot [m].
        azimuth: viewing direction about the vertical [deg]; 90 looks along +y, 180 along -x. None looks at a walking
            robot's first heading from the front left.
        elevation: angle of the line of sight above the horizon [deg]; negative looks down.
        follow: fraction of the distance to the robot that the camera moves in a frame; 0: fixed, 1: attached.
    """

    distance: float | None = None
    azimuth: float | None = None
    elevation: float | None = None
    follow: float = 0.15

    def __post_init__(self) -> None:
        if self.distance is not None and self.distance <= 0:
            raise ValueError(f"distance={self.distance}: must be positive")
        if not 0 <= self.follow <= 1:
            raise ValueError(f"follow={self.follow}: must be in [0, 1]")


@dataclass(kw_only=True, slots=True)
class Arrow:
    """An arrow in the image: foot (3,) and vector to the tip (3,), world frame [m], and color in [0, 1]."""

    start: np.ndarray
    vector: np.ndarray
    rgba: tuple[float, float, float, float] = (0.1, 0.45, 0.9, 1.0)


NEAR = 0.8
"""How far a hinge of a fixed robot, or another thing's slide, is expected to be from the first frame [rad, m]."""
GHOST_RGBA = (0.1, 0.45, 0.9, 0.45)
"""Color of a reference motion beside the robot."""


@dataclass(kw_only=True, slots=True)
class Sphere:
    """A sphere in the image: center (3,), world frame [m], radius [m], and color in [0, 1]."""

    center: np.ndarray
    radius: float = 0.03
    rgba: tuple[float, float, float, float] = (0.1, 0.45, 0.9, 0.5)


def choose_backend() -> str:
    """Return the OpenGL backend: MUJOCO_GL if it is set, else EGL, else OSMesa; off Linux "glfw" or "cgl".

    Raises:
        NoGLError: none is installed.
    """
    wanted = os.environ.get("MUJOCO_GL", "").lower()
    if wanted in ("egl", "osmesa", "glfw", "cgl", "wgl"):
        return wanted
    if sys.platform == "darwin":
        return "cgl"
    if not sys.platform.startswith("linux"):
        return "glfw"
    # PyOpenGL binds to one platform a process: an earlier choice by other code stays.
    bound = os.environ.get("PYOPENGL_PLATFORM", "")
    if bound in ("egl", "osmesa"):
        return bound
    if _egl_works():
        return "egl"
    if ctypes.util.find_library("OSMesa"):
        return "osmesa"
    raise NoGLError(NO_GL)


def _egl_works() -> bool:
    """Whether libEGL is installed and offers a device; checked without binding PyOpenGL to it."""
    name = ctypes.util.find_library("EGL")
    if not name:
        return False
    with contextlib.suppress(OSError, AttributeError):
        egl = ctypes.CDLL(name)
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
        if address:
            query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(
                address
            )
            count = ctypes.c_int(0)
            return bool(query(0, None, ctypes.byref(count))) and count.value > 0
    return False


def _make_context(width: int, height: int) -> Any:
    """Return an OpenGL context of the chosen backend, current in this thread.

    MuJoCo picks its backend when it is first imported, long before an image is needed; its context classes can be used
    directly, with any choice.
    """
    backend = choose_backend()
    os.environ.setdefault("MUJOCO_GL", backend)
    try:
        if backend == "egl":
            from mujoco.egl import GLContext
        elif backend == "osmesa":
            from mujoco.osmesa import GLContext
        else:
            from mujoco.gl_context import GLContext  # type: ignore[attr-defined]
        context = GLContext(width, height)
        context.make_current()
    except Exception as error:  # each backend fails in its own way: missing library, no device, no display
        raise NoGLError(
            f"{NO_GL} (MUJOCO_GL={backend}: {str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    return context


class Renderer:
    """Draws a model's configurations into arrays; one context, to be used in the thread that made it."""

    def __init__(
        self,
        model: mujoco.MjModel,
        width: int = 640,
        height: int = 480,
        camera: CameraCfg | None = None,
        *,
        robots: Sequence[int] = (),
    ) -> None:
        """Open the context; ``model``, with a floor and a light, is copied. ``width`` and ``height`` are in pixels.

        ``robots`` are the topmost bodies of a team's robots, which are kept in sight together.

        Raises:
            ValueError: a size that is not positive.
            NoGLError: OpenGL is missing.
        """
        if width < 1 or height < 1:
            raise ValueError(f"image of {width} x {height}: both must be positive")
        self._context: Any = _make_context(SCALE * width, SCALE * height)
        import mujoco
        from PIL import Image

        self._average = lambda pixels: np.asarray(Image.fromarray(pixels).reduce(SCALE))

        self._mj = mujoco
        self.width, self.height = width, height
        self.camera = camera or CameraCfg()
        self._free = traveling_joints(model)
        center, self._reach = _extent(model, floating=self._free.size > 0)
        self._model = _prepare(model, SCALE * width, SCALE * height, self._reach)
        self._data = mujoco.MjData(self._model)
        self._scene = mujoco.MjvScene(self._model, maxgeom=max(MAX_GEOMS, model.ngeom + 1000))
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE] = True
        self._option = mujoco.MjvOption()
        # 200 % glyphs are never used: text is drawn on the finished image.
        self._gl = mujoco.MjrContext(self._model, int(mujoco.mjtFontScale.mjFONTSCALE_100))
        mujoco.mjr_setBuffer(int(mujoco.mjtFramebuffer.mjFB_OFFSCREEN), self._gl)
        self._rect = mujoco.MjrRect(0, 0, SCALE * width, SCALE * height)
        self._pixels = np.zeros((SCALE * height, SCALE * width, 3), dtype=np.uint8)
        self._depth = np.zeros(self._pixels.shape[:2], dtype=np.float32)
        self._gl.readDepthMap = int(mujoco.mjtDepthMap.mjDEPTH_ZEROFAR)
        self._sky = None if (model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any() else _gradient(SCALE * height)
        self._view = self._make_view(center)
        self._aimed = self._free.size > 0 or self.camera.distance is not None
        self._ghost: Any = None
        self._team, self._near = np.array(robots, dtype=np.int32), self._view.distance

    def _make_view(self, center: np.ndarray) -> Any:
        view, camera, floating = self._mj.MjvCamera(), self.camera, self._free.size > 0
        view.type = int(self._mj.mjtCamera.mjCAMERA_FREE)
        view.azimuth = camera.azimuth if camera.azimuth is not None else 130.0 if floating else 105.0
        view.elevation = camera.elevation if camera.elevation is not None else -18.0 if floating else -10.0
        view.distance = camera.distance or (3.3 if floating else 2.6) * self._reach
        view.lookat[:] = np.nan if floating else center
        return view

    def look_at(self, point: np.ndarray) -> None:
        """Point the camera at `point` (3,) [m], world frame, immediately."""
        self._view.lookat[:] = point
        self._aimed = True

    def _aim(self) -> None:
        """Bring a robot that stands still, and the objects it handles, into the image, by the first frame's pose."""
        self._view.lookat[:], radius = _extent(self._model, floating=False, pose=self._data.qpos.copy())
        self._view.distance = 2.6 * radius
        self._aimed = True

    def frame(
        self,
        qpos: np.ndarray,
        *,
        arrows: list[Arrow] | None = None,
        spheres: list[Sphere] | None = None,
        ghost: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw one configuration ``qpos`` (nq,), with ``arrows``, ``spheres`` and a ``ghost`` (nq,) in the scene.

        Returns:
            (height, width, 3) uint8, top row first; a new array.
        """
        mj, model, data = self._mj, self._model, self._data
        qpos = np.asarray(qpos, dtype=np.float64)
        if qpos.shape != (model.nq,):
            raise ValueError(f"qpos has shape {qpos.shape}, the model wants ({model.nq},)")
        # A world that diverged is drawn as it last stood.
        if np.isfinite(qpos).all():
            data.qpos[:] = qpos
        mj.mj_kinematics(model, data)
        mj.mj_comPos(model, data)
        mj.mj_camlight(model, data)
        if not self._aimed:
            self._aim()
        self._follow()
        self._context.make_current()
        mj.mjv_updateScene(model, data, self._option, None, self._view, int(mj.mjtCatBit.mjCAT_ALL), self._scene)
        self._light()
        for arrow in arrows or []:
            self._draw_arrow(arrow)
        for sphere in spheres or []:
            self._draw_sphere(sphere)
        if ghost is not None:
            self._draw_ghost(ghost)
        mj.mjr_render(self._rect, self._scene, self._gl)
        mj.mjr_readPixels(self._pixels, None if self._sky is None else self._depth, self._rect, self._gl)
        if self._sky is not None:
            empty = self._depth == 0.0
            self._pixels[empty] = np.broadcast_to(self._sky, self._pixels.shape)[empty]
        return np.ascontiguousarray(self._average(self._pixels)[::-1])

    def _follow(self) -> None:
        """Move the line of sight towards a floating base: fast enough to keep it in sight, without shaking."""
        if not self._free.size:
            return
        target = self._data.xpos[self._model.jnt_bodyid[self._free[0]]] - np.array([0.0, 0.0, 0.15 * self._reach])
        if self._team.size > 1:
            target[:2], apart = self._middle()
            self._view.distance = self._near + 1.6 * apart
        lookat = self._view.lookat
        gap = target - lookat
        # At the start, and when a reset took the robot elsewhere, the camera jumps.
        if not np.isfinite(gap).all() or np.linalg.norm(gap) > self._view.distance:
            if self.camera.azimuth is None:
                forward = self._data.xmat[self._model.jnt_bodyid[self._free[0]]].reshape(3, 3)[:, 0]
                self._view.azimuth = 130.0 + math.degrees(math.atan2(forward[1], forward[0]))
            lookat[:] = target
        else:
            lookat[:2] += self.camera.follow * gap[:2]
            lookat[2] += 0.3 * self.camera.follow * gap[2]

    def _middle(self) -> tuple[np.ndarray, float]:
        """Return the middle (2,) of a team along the ground [m], and the distance of its farthest robot from there.

        Robots that are parked far away do not count.
        """
        at = self._data.xpos[self._team][:, :2]
        at = at[np.linalg.norm(at - np.median(at, axis=0), axis=1) < PARKED_M]
        middle = (at.max(axis=0) + at.min(axis=0)) / 2
        return middle, float(np.linalg.norm(at - middle, axis=1).max())

    def _light(self) -> None:
        """Set bright surroundings and one sun with a shadow, which follows the robot.

        The sun is behind the camera, which makes the shadow's map parallel to the image: at other angles, rounding
        errors of its coordinates draw dots on the floor.
        """
        azimuth = math.radians(self._view.azimuth)
        ahead = np.array([math.cos(azimuth), math.sin(azimuth)])
        for k in range(self._scene.nlight):
            light = self._scene.lights[k]
            if light.headlight:
                light.ambient[:], light.diffuse[:], light.specular[:] = 0.42, 0.35, 0.05
                continue
            light.ambient[:], light.diffuse[:], light.specular[:] = 0.0, 0.42, 0.25
            if light.type == int(self._mj.mjtLightType.mjLIGHT_DIRECTIONAL):
                light.dir[:2] = np.linalg.norm(light.dir[:2]) * ahead
                # The shadow's map covers a few meters around the light's axis, so the robot has to be there.
                light.pos[:] = self._view.lookat - 9.0 * self._reach * light.dir

    def _draw_arrow(self, arrow: Arrow) -> None:
        scene, mj = self._scene, self._mj
        if scene.ngeom >= scene.maxgeom or np.linalg.norm(arrow.vector) < 0.02:
            return
        geom = scene.geoms[scene.ngeom]
        zeros = np.zeros(3)
        kind = int(mj.mjtGeom.mjGEOM_ARROW)
        mj.mjv_initGeom(geom, kind, zeros, zeros, np.eye(3).ravel(), np.array(arrow.rgba, dtype=np.float32))
        start = np.asarray(arrow.start, dtype=np.float64)
        mj.mjv_connector(geom, kind, 0.012, start, start + arrow.vector)
        scene.ngeom += 1

    def _draw_sphere(self, sphere: Sphere) -> None:
        scene = self._scene
        if scene.ngeom >= scene.maxgeom:
            return
        size, center = np.full(3, sphere.radius), np.asarray(sphere.center, dtype=np.float64)
        rgba = np.array(sphere.rgba, dtype=np.float32)
        kind = int(self._mj.mjtGeom.mjGEOM_SPHERE)
        self._mj.mjv_initGeom(scene.geoms[scene.ngeom], kind, size, center, np.eye(3).ravel(), rgba)
        scene.ngeom += 1

    def _draw_ghost(self, qpos: np.ndarray) -> None:
        """Draw everything that moves once more, at other positions, in one transparent color."""
        mj, scene = self._mj, self._scene
        if self._ghost is None:
            self._ghost = mj.MjData(self._model)
        self._ghost.qpos[:] = qpos
        mj.mj_kinematics(self._model, self._ghost)
        first, kinds = scene.ngeom, int(mj.mjtCatBit.mjCAT_DYNAMIC)
        mj.mjv_addGeoms(self._model, self._ghost, self._option, mj.MjvPerturb(), kinds, scene)
        for k in range(first, scene.ngeom):
            geom = scene.geoms[k]
            geom.matid, geom.rgba[:], geom.transparent = -1, GHOST_RGBA, 1

    def close(self) -> None:
        """Free the context; may be called twice."""
        if self._context is not None:
            with contextlib.suppress(Exception):
                self._context.make_current()
                self._gl.free()
            self._context.free()
            self._context = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _gradient(height: int) -> np.ndarray:
    """Return a sky for models without one, (height, 1, 3) uint8, lowest row first."""
    share = np.linspace(0.0, 1.0, height)[:, None, None]
    return np.round((1 - share) * np.array([250, 250, 255]) + share * np.array([199, 219, 240])).astype(np.uint8)


def _prepare(model: mujoco.MjModel, width: int, height: int, reach: float) -> mujoco.MjModel:
    """Return a copy with a frame buffer of this size [px], sharp shadows, and a horizon that fades into the sky."""
    model = copy.copy(model)
    model.stat.extent = reach
    # A mirroring floor costs a second rendering and looks like water.
    model.mat_reflectance[:] = 0.0
    for plane in np.flatnonzero((model.geom_type == 0) & model.geom_size[:, :2].all(axis=1)):
        # It is endless in the physics. A pattern that was stretched over it is then counted by the meter.
        material = int(model.geom_matid[plane])
        if material >= 0 and not model.mat_texuniform[material]:
            model.mat_texrepeat[material] /= 2.0 * model.geom_size[plane, :2]
        model.geom_size[plane, :2] = 0.0
    vis = model.vis
    vis.global_.offwidth, vis.global_.offheight, vis.global_.fovy = width, height, 40.0
    quality = vis.quality
    quality.shadowsize, quality.offsamples = (2048 if width > 800 else 1024), 0
    quality.numslices, quality.numstacks = 20, 10
    vis.map.znear, vis.map.zfar, vis.map.shadowclip, vis.map.haze = 0.02, 60.0, 4.0, 0.35
    if not (model.geom_type == 0).any():
        # A terrain, no endless plane: haze need not hide a horizon, and a wider shadow map speckles slopes.
        vis.map.zfar, vis.map.shadowclip = 400.0, 2.0
    vis.rgba.haze[:] = (0.98, 0.98, 1.0, 1.0)
    return model


def traveling_joints(model: mujoco.MjModel) -> np.ndarray:
    """Return the joints by which a robot travels: a free one, and a planar robot's slides without an end."""
    import mujoco

    kind, slide = model.jnt_type, int(mujoco.mjtJoint.mjJNT_SLIDE)
    endless = (kind == slide) & (model.jnt_limited == 0) & (model.body_parentid[model.jnt_bodyid] == 0)
    travels = (kind == int(mujoco.mjtJoint.mjJNT_FREE)) | endless
    return np.flatnonzero(travels & is_robots(model, model.jnt_bodyid))


def is_robots(model: mujoco.MjModel, bodies: np.ndarray) -> np.ndarray:
    """Return which bodies are the robot's, bool: it is the first thing in a scene that moves."""
    first = model.jnt_bodyid[0] if model.njnt else 0
    return model.body_rootid[bodies] == model.body_rootid[first]


def _extent(model: mujoco.MjModel, *, floating: bool, pose: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Return center (3,) [m] and radius [m] of a ball that contains the robot.

    A floating robot is taken at rest, a fixed one anywhere in its joints' ranges. With a ``pose`` (nq,) its hinges are
    near it, within `NEAR` if they have a range, and everything else that moves is also in the ball, near its place.
    """
    import mujoco

    data = mujoco.MjData(model)
    moving = model.body_weldid[model.geom_bodyid] > 0
    geoms = np.flatnonzero(moving if pose is not None else moving & is_robots(model, model.geom_bodyid))
    if not geoms.size:
        return np.zeros(3), 1.0
    single = np.isin(model.jnt_type, (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)))
    limits = np.where(model.jnt_limited[:, None] != 0, model.jnt_range, [-np.pi, np.pi])
    if pose is not None:
        data.qpos[:] = pose
        is_slide = model.jnt_type == int(mujoco.mjtJoint.mjJNT_SLIDE)
        # A robot's own slide is its rail; an endless hinge, a wheel or a pole.
        near = single & np.where(is_slide, ~is_robots(model, model.jnt_bodyid), model.jnt_limited != 0)
        at = pose[model.jnt_qposadr[near], None]
        limits[near] = np.clip(at + np.array([-NEAR, NEAR]), limits[near, :1], limits[near, 1:])
    rng = np.random.default_rng(0)
    points = []
    for k in range(1 if floating else 64):
        if k:
            drawn = rng.uniform(limits[:, 0], limits[:, 1])
            data.qpos[model.jnt_qposadr[single]] = drawn[single]
        mujoco.mj_kinematics(model, data)
        points.append(data.geom_xpos[geoms])
    everything = np.concatenate(points)
    center = (everything.max(0) + everything.min(0)) / 2
    # Flat workspaces fill the width of the image.
    size = (everything.max(0) - everything.min(0)) / 2
    radius = np.linalg.norm(size * [0.75, 0.75, 1.0]) + float(np.minimum(model.geom_rbound[geoms], 0.1).mean())
    return center, max(float(radius), 0.3)
