"""A camera and an observation group of its images; plain values, nothing is compiled here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robot_rl_envs.terms.checks import is_whole, nearest, require

if TYPE_CHECKING:
    import mujoco
    from robot_rl_assets.robot import Robot

KINDS = ("depth", "rgb")
GEOMETRIES = ("collision", "visual")
CHANNELS = {"depth": 1, "rgb": 3}
MAX_SIDE = 1024


def _vector(name: str, value: Any, length: int) -> tuple[float, ...]:
    """Return `value` as finite floats, or raise an error that names it."""
    try:
        numbers = tuple(float(k) for k in value)
    except (TypeError, ValueError):
        numbers = ()
    require(len(numbers) == length and all(map(math.isfinite, numbers)), name, value, f"must be {length} numbers")
    return numbers


def _range(name: str, value: Any, high: float) -> tuple[float, float]:
    lo, hi = _vector(name, value, 2)
    require(0 <= lo <= hi <= high, name, value, f"must be (lo, hi) with 0 <= lo <= hi <= {high}")
    return lo, hi


@dataclass(kw_only=True, slots=True)
class Camera:
    """A camera on the robot or in the world: its pose, image and faults.

    The image's first row is its top. The orientation is given by `forward` and `up`, or by MuJoCo's `quat_wxyz` (the
    camera looks along its own -z, its x points right in the image, its y up).

    Each world draws at its reset: the error of the mount, the delay, the share of lost images, and in which of `every`
    steps it takes its images.

    Attributes:
        name: two groups with cameras of one name draw the same values.
        body: body or site that it is mounted on; "world" is fixed. None: the robot's model has a camera of this
            name, with its own pose and field of view.
        pos: in that body's or site's frame [m].
        forward: viewing direction in that frame; of any length.
        up: direction that is up in the image; need not be at a right angle to `forward`.
        quat_wxyz: orientation in that frame, instead of `forward` and `up`.
        fovy: vertical field of view [deg].
        width, height: of the image [px].
        near, far: measured range along the line of sight [m]. Nearer counts as near, farther as far. Depth is given as
            a share of far.
        every: control steps between two images.
        delay_steps: (lo, hi) age in control steps at which an image is delivered.
        dropout: (lo, hi) share of images that are lost; the last one is repeated.
        pos_jitter: largest error of the mount along each axis [m].
        angle_jitter_deg: and about each of the camera's axes [deg].
        noise: standard deviation of a pixel: of depth as a share of the depth, of a color in [0, 1].
        missing: share of depth pixels without a value, which read 0.
    """

    name: str
    body: str | None = None
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    forward: tuple[float, float, float] = (1.0, 0.0, 0.0)
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)
    quat_wxyz: tuple[float, float, float, float] | None = None
    fovy: float = 58.0
    width: int = 64
    height: int = 48
    near: float = 0.1
    far: float = 3.0
    every: int = 1
    delay_steps: tuple[int, int] = (0, 0)
    dropout: tuple[float, float] = (0.0, 0.0)
    pos_jitter: float = 0.0
    angle_jitter_deg: float = 0.0
    noise: float = 0.0
    missing: float = 0.0

    def __post_init__(self) -> None:
        name = f"camera {self.name!r}"
        require(bool(self.name), "camera.name", self.name, "must not be empty")
        _vector(f"{name}: pos", self.pos, 3)
        self._check_orientation(name)
        require(0 < self.fovy < 180, f"{name}: fovy", self.fovy, "must be in (0, 180) degrees")
        for side in ("width", "height"):
            value = getattr(self, side)
            require(is_whole(value, 1, MAX_SIDE), f"{name}: {side}", value, f"must be an int in [1, {MAX_SIDE}]")
        require(0 < self.near < self.far < math.inf, f"{name}: near, far", (self.near, self.far), "want 0 < near < far")
        require(is_whole(self.every, 1, 1000), f"{name}: every", self.every, "must be an int in [1, 1000]")
        delays = _range(f"{name}: delay_steps", self.delay_steps, 100)
        whole = all(k == int(k) for k in delays)
        require(whole, f"{name}: delay_steps", self.delay_steps, "must be whole control steps")
        self.delay_steps = (int(delays[0]), int(delays[1]))
        self.dropout = _range(f"{name}: dropout", self.dropout, 1.0)
        require(0 <= self.pos_jitter <= 1, f"{name}: pos_jitter", self.pos_jitter, "must be in [0, 1] m")
        jitter = self.angle_jitter_deg
        require(0 <= jitter <= 90, f"{name}: angle_jitter_deg", jitter, "must be in [0, 90] degrees")
        require(0 <= self.noise <= 1, f"{name}: noise", self.noise, "must be in [0, 1]")
        require(0 <= self.missing <= 1, f"{name}: missing", self.missing, "must be in [0, 1]")

    def _check_orientation(self, name: str) -> None:
        if self.quat_wxyz is not None:
            length = math.hypot(*_vector(f"{name}: quat_wxyz", self.quat_wxyz, 4))
            require(abs(length - 1) < 1e-3, f"{name}: quat_wxyz", self.quat_wxyz, "must be of unit length")
            return
        forward, up = _vector(f"{name}: forward", self.forward, 3), _vector(f"{name}: up", self.up, 3)
        require(math.hypot(*forward) > 1e-6, f"{name}: forward", self.forward, "must not be zero")
        across = np.linalg.norm(np.cross(forward, up))
        parallel = across < 1e-3 * math.hypot(*forward) * max(math.hypot(*up), 1e-6)
        require(not parallel, f"{name}: up", self.up, "must not be zero or along forward")

    def rotation(self) -> np.ndarray:
        """Return (3, 3) columns: the camera's x (right), y (up) and z (backward) in the frame of its body or site."""
        import mujoco

        if self.quat_wxyz is not None:
            matrix = np.zeros(9)
            mujoco.mju_quat2Mat(matrix, np.array(self.quat_wxyz) / np.linalg.norm(self.quat_wxyz))
            return matrix.reshape(3, 3)
        back = -np.array(self.forward) / np.linalg.norm(self.forward)
        right = np.cross(self.up, back)
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(back, right), back], axis=1)

    def add_to(self, spec: mujoco.MjSpec, robot: Robot | None = None) -> None:
        """Add the camera to a scene that is not compiled yet; ``robot`` is named in errors.

        Raises:
            ValueError: no such body, site or camera; the line lists similar names. Or the model's own camera is one
                that follows something, or has another projection.
        """
        owner = f"robot {robot.name!r}" if robot is not None else "the model"
        if self.body is None:
            self._check_own(spec, owner)
            return
        bodies, sites = ({thing.name: thing for thing in found if thing.name} for found in (spec.bodies, spec.sites))
        if self.body not in bodies and self.body not in sites:
            line = f"{owner} lacks a body or site of that name; {nearest(self.body, {**bodies, **sites})}"
            raise ValueError(f"camera {self.name!r}: body={self.body!r}: {line}")
        if any(camera.name == self.name for camera in spec.cameras):
            raise ValueError(f"camera {self.name!r}: {owner} has one of that name; choose another, or omit body")
        place, rotation = np.array(self.pos, dtype=float), self.rotation()
        body = bodies.get(self.body)
        if body is None:
            site = sites[self.body]
            body = site.parent
            place, rotation = _in_parent(spec.compile().site(self.body), place, rotation)
        camera = body.add_camera(name=self.name, fovy=self.fovy)
        camera.pos, camera.quat = place, _quat(rotation)

    def _check_own(self, spec: mujoco.MjSpec, owner: str) -> None:
        import mujoco

        own = {camera.name: camera for camera in spec.cameras if camera.name}
        if self.name not in own:
            line = f"{owner} lacks a camera of that name; {nearest(self.name, own)}; name the body it is on"
            raise ValueError(f"camera {self.name!r}: body=None: {line}")
        camera = own[self.name]
        if int(camera.mode) != int(mujoco.mjtCamLight.mjCAMLIGHT_FIXED):
            raise ValueError(f"camera {self.name!r}: {owner}'s camera of that name is not fixed to its body; give body")
        perspective = int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE)
        if int(camera.proj) != perspective or np.any(np.asarray(camera.sensor_size) != 0):
            line = "has its own projection or sensor size; give body and fovy"
            raise ValueError(f"camera {self.name!r}: {owner}'s camera of that name {line}")


@dataclass(kw_only=True, slots=True)
class ImageGroup:
    """An observation group of images: float32 (num_envs, channels, height, width) in [0, 1].

    Depth has one channel: distance along the line of sight over `camera.far`; 1 is far or nothing, 0 a missing pixel.
    Color has three: red, green, blue.

    Attributes:
        camera: its pose, image and faults.
        kind: "depth" or "rgb".
        geometry: "collision": the geoms that collide; "visual": the visible ones, slower. None: collision for depth,
            visual for rgb.
    """

    camera: Camera
    kind: str = "depth"
    geometry: str | None = None

    def __post_init__(self) -> None:
        require(isinstance(self.camera, Camera), "image group: camera", self.camera, "must be a Camera")
        require(self.kind in KINDS, "image group: kind", self.kind, f"must be one of {', '.join(KINDS)}")
        if self.geometry is None:
            self.geometry = "collision" if self.kind == "depth" else "visual"
        right = f"must be one of {', '.join(GEOMETRIES)}"
        require(self.geometry in GEOMETRIES, "image group: geometry", self.geometry, right)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return CHANNELS[self.kind], self.camera.height, self.camera.width


def _quat(rotation: np.ndarray) -> np.ndarray:
    import mujoco

    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(rotation).ravel())
    return quat


def _in_parent(site: Any, place: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Transform a pose from a compiled site's frame to the frame of the site's body."""
    import mujoco

    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, site.quat)
    turn = turn.reshape(3, 3)
    return site.pos + turn @ place, turn @ rotation
