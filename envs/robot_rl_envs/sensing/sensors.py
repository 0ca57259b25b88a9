"""A robot's sensors as plain figures: their poses and ranges. The task's terms decide which of them are read.

Noise, bias, delay and dropout are options of each observation term; see docs/sensors.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from robot_rl_envs.terms.checks import are_numbers, is_number, is_whole, require

SCAN_SOURCES = ("map", "rays")
MAX_SCAN_POINTS = 4096
MAX_FORCE_SUBSTEPS = 100


def _require(fits: bool, field: str, value: Any, right: str) -> None:
    require(fits, f"sensors.{field}", value, right)


@dataclass(kw_only=True, slots=True)
class Imu:
    """The mount of the inertial measurement unit: a site, or a pose on a body; rigid to the base.

    Attributes:
        site: the site; empty: the robot's own ``imu_site``, or the base's frame if it has none.
        body: a body to mount it on instead of a site.
        pos: position on ``body`` [m].
        quat_wxyz: orientation on ``body``: from the unit's frame to the body's.
        delay_s: (lo, hi) [s]: each world's delay of the accelerometer, drawn at every reset, to the physics step: by
            MuJoCo's own sensor delay.
    """

    site: str = ""
    body: str = ""
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat_wxyz: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    delay_s: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        _require(not (self.site and self.body), "imu.site", self.site, f"leave it or imu.body={self.body!r} empty")
        _require(are_numbers(self.pos, 3), "imu.pos", self.pos, "must be 3 numbers [m]")
        _require(are_numbers(self.quat_wxyz, 4), "imu.quat_wxyz", self.quat_wxyz, "must be 4 numbers")
        length = math.hypot(*self.quat_wxyz)
        _require(abs(length - 1.0) < 1e-3, "imu.quat_wxyz", self.quat_wxyz, f"its length is {length:g}, must be 1")
        moved = any(self.pos) or tuple(self.quat_wxyz) != (1.0, 0.0, 0.0, 0.0)
        right = "imu.pos and imu.quat_wxyz place the unit on a body; name it (a site has a pose of its own)"
        _require(bool(self.body) or not moved, "imu.body", self.body, right)
        fits = are_numbers(self.delay_s, 2) and 0.0 <= self.delay_s[0] <= self.delay_s[1] <= 0.5
        _require(fits, "imu.delay_s", self.delay_s, "must be (lo, hi) with 0 <= lo <= hi <= 0.5 s")


@dataclass(kw_only=True, slots=True)
class HeightScan:
    """A grid of points around the base, rotated with its heading, at which the ground's height is read.

    Attributes:
        size: extent along x (forward) and y [m].
        resolution: distance between points [m].
        offset: of the grid's middle from the base's origin, along x and y [m].
        source: "map": from the terrain's own height map; "rays": by the engine's rays against the ground.
        max_distance: bound on the magnitude of a reading [m].
    """

    size: tuple[float, float] = (1.6, 1.0)
    resolution: float = 0.1
    offset: tuple[float, float] = (0.0, 0.0)
    source: str = "map"
    max_distance: float = 5.0

    def __post_init__(self) -> None:
        fits = are_numbers(self.size, 2) and min(self.size) >= 0
        _require(fits, "height_scan.size", self.size, "must be (x, y) >= 0 m")
        _require(are_numbers(self.offset, 2), "height_scan.offset", self.offset, "must be (x, y) [m]")
        for name in ("resolution", "max_distance"):
            value = getattr(self, name)
            _require(is_number(value) and value > 0, f"height_scan.{name}", value, "must be a number > 0 [m]")
        sides = [side for side in self.size if side > 0]
        right = f"must be at most {min(sides, default=0.0):g} m, the shortest side of size (one of 0 is a single row)"
        _require(all(self.resolution <= side for side in sides), "height_scan.resolution", self.resolution, right)
        right = f"must be one of {', '.join(SCAN_SOURCES)}"
        _require(self.source in SCAN_SOURCES, "height_scan.source", self.source, right)
        right = f"gives {self.count} points, at most {MAX_SCAN_POINTS}; take a coarser one or a smaller size"
        _require(self.count <= MAX_SCAN_POINTS, "height_scan.resolution", self.resolution, right)

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


@dataclass(kw_only=True, slots=True)
class FootForce:
    """How many physics steps of the feet's contact forces are kept.

    Attributes:
        substeps: so that a peak between two control steps is seen; 0: those of a control step.
    """

    substeps: int = 0

    def __post_init__(self) -> None:
        right = f"must be an int in [0, {MAX_FORCE_SUBSTEPS}]"
        fits = is_whole(self.substeps, 0, MAX_FORCE_SUBSTEPS)
        _require(fits, "foot_force.substeps", self.substeps, right)


@dataclass(kw_only=True, slots=True)
class Sensors:
    """A task's sensors; one that no term reads costs nothing."""

    imu: Imu = field(default_factory=Imu)
    height_scan: HeightScan = field(default_factory=HeightScan)
    foot_force: FootForce = field(default_factory=FootForce)


def used_sensors(task: Any) -> frozenset[str]:
    """Return the sensors that a task's terms read: "imu", "imu_acc", "encoders", "foot_forces", "height_scan"."""
    groups = [
        group.terms for group in (*task.observations.values(), *task.messages.values()) if hasattr(group, "terms")
    ]
    terms = [term for group in groups for term in group.values() if hasattr(term, "params")]
    return frozenset(name for term in terms for name in term.info.source.uses)
