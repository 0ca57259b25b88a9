"""The height scan: a grid of points around the base at which the ground's height is read, by its map or by rays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import warp as wp

from robot_rl_envs.engine import Engine
from robot_rl_envs.sensing.sensor import Fields, Sensor, SensorContext
from robot_rl_envs.terms import Source, observation
from robot_rl_envs.terms.checks import are_numbers, is_number, require
from robot_rl_envs.terrain.lookup import terrain_height

SIGNAL = "measured/height_scan"
SCAN_SOURCES = ("map", "rays")
MAX_SCAN_POINTS = 4096
ABOVE = 0.5
"""Rays start this far above the highest ground [m]."""


@wp.func
def heading_of(q: wp.vec4) -> wp.vec2:
    """Cosine and sine of the heading of a body with orientation q (w, x, y, z); (1, 0) if it points straight up."""
    x = 1.0 - 2.0 * (q[2] * q[2] + q[3] * q[3])
    y = 2.0 * (q[0] * q[3] + q[1] * q[2])
    length = wp.sqrt(x * x + y * y)
    if length < 1.0e-6:
        return wp.vec2(1.0, 0.0)
    return wp.vec2(x / length, y / length)


@wp.func
def scan_heights(s: Any, i: int):
    """Height of world i's base above the ground at each point of its grid [m], from the terrain's map."""
    pos = s.base_pos_w[i]
    turn = heading_of(s.base_quat_wxyz[i])
    for j in range(s.scan_points.shape[0]):
        point = s.scan_points[j]
        x = pos[0] + turn[0] * point[0] - turn[1] * point[1]
        y = pos[1] + turn[1] * point[0] + turn[0] * point[1]
        s.height_scan[i, j] = wp.clamp(pos[2] - terrain_height(s, x, y), -s.scan_reach[0], s.scan_reach[0])


@wp.kernel(enable_backward=False)
def aim_scan(
    qpos: wp.array2d(dtype=wp.float32),
    base: int,
    points: wp.array(dtype=wp.vec2),
    top: float,
    # outputs
    origins_out: wp.array2d(dtype=wp.vec3),
):
    """Set the start of the ray of world i's point j: above the point [m], at height top."""
    i, j = wp.tid()
    turn = heading_of(wp.normalize(wp.vec4(qpos[i, base + 3], qpos[i, base + 4], qpos[i, base + 5], qpos[i, base + 6])))
    point = points[j]
    x = qpos[i, base] + turn[0] * point[0] - turn[1] * point[1]
    y = qpos[i, base + 1] + turn[1] * point[0] + turn[0] * point[1]
    if wp.isfinite(x) and wp.isfinite(y):
        origins_out[i, j] = wp.vec3(x, y, top)
    else:
        origins_out[i, j] = wp.vec3(0.0, 0.0, top)  # of a world that is to be quarantined


@wp.kernel(enable_backward=False)
def measure_scan(
    qpos: wp.array2d(dtype=wp.float32),
    base: int,
    distances: wp.array2d(dtype=wp.float32),
    top: float,
    reach: float,
    # outputs
    scan_out: wp.array2d(dtype=wp.float32),
):
    """Set the height of world i's base above the hit of point j's ray [m]; reach if it hit nothing."""
    i, j = wp.tid()
    height = reach
    if distances[i, j] >= 0.0:
        height = wp.clamp(qpos[i, base + 2] - (top - distances[i, j]), -reach, reach)
    scan_out[i, j] = height


@dataclass(kw_only=True, slots=True)
class HeightScan(Sensor):
    """A grid of points around the base, rotated with its heading, at which the ground's height is read.

    Attributes:
        size: extent along x (forward) and y [m].
        resolution: distance between points [m].
        offset: of the grid's middle from the base's origin, along x and y [m].
        source: "map": from the terrain's own height map; "rays": by the engine's rays against the ground.
        max_distance: bound on the magnitude of a reading [m].
    """

    derives: ClassVar[bool] = True

    size: tuple[float, float] = (1.6, 1.0)
    resolution: float = 0.1
    offset: tuple[float, float] = (0.0, 0.0)
    source: str = "map"
    max_distance: float = 5.0

    def __post_init__(self) -> None:
        fits = are_numbers(self.size, 2) and min(self.size) >= 0
        require(fits, "sensors.height_scan.size", self.size, "must be (x, y) >= 0 m")
        require(are_numbers(self.offset, 2), "sensors.height_scan.offset", self.offset, "must be (x, y) [m]")
        for name in ("resolution", "max_distance"):
            value = getattr(self, name)
            require(is_number(value) and value > 0, f"sensors.height_scan.{name}", value, "must be a number > 0 [m]")
        sides = [side for side in self.size if side > 0]
        right = f"must be at most {min(sides, default=0.0):g} m, the shortest side of size (one of 0 is a single row)"
        require(
            all(self.resolution <= side for side in sides), "sensors.height_scan.resolution", self.resolution, right
        )
        right = f"must be one of {', '.join(SCAN_SOURCES)}"
        require(self.source in SCAN_SOURCES, "sensors.height_scan.source", self.source, right)
        right = f"gives {self.count} points, at most {MAX_SCAN_POINTS}; take a coarser one or a smaller size"
        require(self.count <= MAX_SCAN_POINTS, "sensors.height_scan.resolution", self.resolution, right)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows along y and columns along x."""
        columns, rows = (int(extent / self.resolution + 1e-6) + 1 for extent in self.size)
        return rows, columns

    @property
    def count(self) -> int:
        """Number of points."""
        rows, columns = self.shape
        return rows * columns

    def points(self) -> list[tuple[float, float]]:
        """Return x and y of every point from the base, heading frame [m]: row after row from the right to the left."""
        rows, columns = self.shape
        return [
            (
                self.offset[0] + (column - (columns - 1) / 2) * self.resolution,
                self.offset[1] + (row - (rows - 1) / 2) * self.resolution,
            )
            for row in range(rows)
            for column in range(columns)
        ]

    def sizes(self, at: SensorContext) -> dict[str, tuple[int, ...]]:
        """Return the rows and columns of the grid."""
        return {"height_scan": self.shape}

    def fields(self, sizes: Mapping[str, int], num_envs: int, at: SensorContext) -> Fields:
        """Return the heights and the points of the grid."""
        return {
            "height_scan": (wp.float32, 2, (num_envs, self.count)),
            "scan_points": (wp.vec2, 1, (self.count,)),
            "scan_reach": (wp.float32, 1, (1,)),
        }

    def constants(self, at: SensorContext) -> dict[str, Any]:
        """Return the points and the bound of a reading."""
        return {"scan_points": self.points(), "scan_reach": [self.max_distance]}

    def update(self, at: SensorContext) -> Sequence[wp.Function]:
        """Read the terrain's map; rays have been cast before."""
        return () if self.is_launched else (scan_heights,)

    def reset(self, at: SensorContext) -> Sequence[wp.Function]:
        """Read the terrain's map at the start of the episode; rays are cast afterwards."""
        return self.update(at)

    @property
    def is_launched(self) -> bool:
        """Whether the engine casts rays."""
        return self.source == "rays"

    def make_launches(self, scene: Any, engine: Engine, arrays: dict[str, wp.array]) -> "RayScan":
        """Return the rays of all points."""
        return RayScan(self, scene, engine, arrays)

    def signals(self, state: Any, at: SensorContext) -> dict[str, Any]:
        """Return the heights."""
        return {SIGNAL: state.height_scan.clone()}

    def describe(self) -> dict[str, Any]:
        """Return the grid."""
        return {"grid": {"size": list(self.size), "resolution": self.resolution, "offset": list(self.offset)}}

    def mirror(self, rule: str, at: SensorContext) -> tuple[list[int], list[float]] | None:
        """Return the grid with its rows in the opposite order."""
        if rule != "height_scan":
            return None
        if self.offset[1] != 0:
            line = "a grid to one side cannot be mirrored; set mirror to False"
            raise ValueError(f"sensors.height_scan.offset={self.offset!r}: {line}")
        order = np.arange(self.count).reshape(self.shape)[::-1]
        return order.ravel().tolist(), [1.0] * self.count


class RayScan:
    """Fills ``s.height_scan`` by the engine's own rays, straight down onto the ground; ``arrays`` are those of ``s``.

    The terrain's map gives the same numbers at a fraction of the cost; rays are its check, and the method for ground
    without a map.
    """

    def __init__(self, scan: HeightScan, scene: Any, engine: Engine, arrays: dict[str, wp.array]):
        base, points = scene.entity.base_qpos, arrays["scan_points"]
        top = max(0.0 if scene.terrain is None else float(np.max(scene.terrain.heights)), 0.0) + ABOVE
        self._rays = engine.make_rays(points.shape[0], ground_only=True)
        self._rays.directions.fill_(wp.vec3(0.0, 0.0, -1.0))
        dim = (engine.num_envs, points.shape[0])
        options: dict[str, Any] = {"dim": dim, "device": engine.device, "record_cmd": True}
        qpos = arrays["qpos"]
        self._aim: Any = wp.launch(aim_scan, inputs=[qpos, base, points, top, self._rays.origins], **options)
        inputs = [qpos, base, self._rays.distances, top, scan.max_distance, arrays["height_scan"]]
        self._measure: Any = wp.launch(measure_scan, inputs=inputs, **options)

    def look(self) -> None:
        """Scan the ground around every world's base at its current position; capturable if the engine is."""
        self._aim.launch()
        self._rays.cast()
        self._measure.launch()


@observation(
    size="height_scan",
    unit="m",
    frame="heading",
    signal=SIGNAL,
    transform="minus_offset",
    mirror="height_scan",
    source=Source(uses=("height_scan",)),
)
def height_scan(s: Any, i: int, j: int, offset: float) -> float:
    """Height of the base above the ground at each point of the grid, less ``offset`` [m]; see sensors.HeightScan."""
    return s.height_scan[i, j] - offset
