"""Kinds of ground. Each turns a difficulty in [0, 1] into a square of heights, level in its middle and at its edge.

A tile is a square of cells; `heights[row, column]` is the ground [m] at the middle of a cell, rows along y, columns
along x, around the tile's center. In the middle is the platform, where robots start; at the edge a rim of height 0,
so that neighboring tiles meet level and a robot can always walk on. A pair of values is (at difficulty 0, at 1).

Dimensions are for a quadruped with legs of 0.3 m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from robot_rl_envs.terms.checks import are_numbers, is_number, require

Pair = tuple[float, float]


@dataclass(kw_only=True, slots=True)
class Tile:
    """One kind of ground; a new kind is a subclass with its own `ground`.

    Attributes:
        proportion: share of the terrain's columns, relative to the other tiles'; 0 omits it.
        platform: side of the level square in the middle [m].
        rim: width of the level ground at height 0 along the edge [m].
    """

    proportion: float = 1.0
    platform: float = 2.0
    rim: float = 0.5

    stepped: ClassVar[bool] = False
    """Whether the ground consists of level pieces with vertical sides, so that boxes can stand for it."""
    limits: ClassVar[dict[str, tuple[float, float, str]]] = {}
    """Lowest and highest value, and the unit, of each of the kind's own numbers."""

    def __post_init__(self) -> None:
        common = {"proportion": (0.0, 1e6, ""), "platform": (0.0, 100.0, "m"), "rim": (0.0, 100.0, "m")}
        for field in fields(self):
            if field.name not in common | self.limits:
                continue
            low, high, unit = (common | self.limits)[field.name]
            value = getattr(self, field.name)
            right = f"must be in [{low:g}, {high:g}]{' ' * bool(unit)}{unit}"
            if isinstance(field.default, tuple):
                right = f"must be two numbers, each in [{low:g}, {high:g}]{' ' * bool(unit)}{unit}"
                ok = are_numbers(value, 2) and all(low <= v <= high for v in value)
                require(ok, field.name, value, right)
            else:
                require(is_number(value) and low <= value <= high, field.name, value, right)

    def heights(self, difficulty: float, size: float, resolution: float, rng: np.random.Generator) -> np.ndarray:
        """Return the tile's ground: (n, n) heights above the rim [m], n = size / resolution.

        ``size`` and ``resolution`` are the sides of the tile and of a cell [m]; ``rng`` draws the tile's random
        values.
        """
        room = size / 2 - self.platform / 2 - self.rim
        if room <= 0:
            raise ValueError(
                f"platform={self.platform:g}: with a rim of {self.rim:g} m on either side it does not fit a tile of "
                f"{size:g} m; make it smaller than {max(size - 2 * self.rim, 0.0):g} m"
            )
        return self.ground(difficulty, Grid(size, resolution, self.platform, self.rim), rng)

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Return the heights (n, n) [m] on a grid, level on the platform and 0 on the rim; each kind has its own."""
        raise NotImplementedError


class Grid:
    """The cells of a tile.

    Attributes:
        n: cells on a side.
        resolution: side of a cell [m].
        x, y: (n, n) middle of each cell, from the tile's center [m].
        beyond: (n, n) distance from the platform's edge outwards [m], negative on the platform; squares, not circles.
        room: from the platform's edge to the rim [m].
        inside: (n, n) how far inside the rim [m], negative on it.
    """

    def __init__(self, size: float, resolution: float, platform: float, rim: float):
        self.n, self.resolution = round(size / resolution), resolution
        middle = (np.arange(self.n) + 0.5) * resolution - size / 2
        self.x, self.y = np.meshgrid(middle, middle)
        square = np.maximum(np.abs(self.x), np.abs(self.y))
        self.beyond = square - platform / 2
        self.inside = size / 2 - rim - square
        self.room = size / 2 - platform / 2 - rim

    def cells(self, length: float) -> int:
        """Return the number of cells nearest to a length [m]; at least one."""
        return max(1, round(length / self.resolution))

    @property
    def between(self) -> np.ndarray:
        """(n, n) bool: neither on the platform nor on the rim."""
        return (self.beyond > 0) & (self.inside > 0)

    def fade(self, width: float) -> np.ndarray:
        """Return weights (n, n): 0 on platform and rim, rising to 1 over `width` [m]."""
        return np.clip(np.minimum(self.beyond, self.inside) / width, 0.0, 1.0)


def between(pair: Pair, difficulty: float) -> float:
    """Return the value of a pair (at difficulty 0, at difficulty 1)."""
    return pair[0] + difficulty * (pair[1] - pair[0])


def rough(grid: Grid, amplitude: float, grain: float, rng: np.random.Generator) -> np.ndarray:
    """Draw uniform noise in [-amplitude, amplitude] [m] every `grain` [m], linear in between; (n, n)."""
    count = math.ceil(grid.n * grid.resolution / grain) + 1
    drawn = rng.uniform(-amplitude, amplitude, size=(count, count))
    at = (np.arange(grid.n) + 0.5) * grid.resolution / grain
    low = np.minimum(at.astype(int), count - 2)
    share = at - low
    rows = drawn[low] * (1 - share)[:, None] + drawn[low + 1] * share[:, None]
    return rows[:, low] * (1 - share) + rows[:, low + 1] * share


@dataclass(kw_only=True, slots=True)
class Flat(Tile):
    """Level ground."""

    stepped: ClassVar[bool] = True

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Zeros."""
        return np.zeros((grid.n, grid.n))


@dataclass(kw_only=True, slots=True)
class RandomRough(Tile):
    """Ground that is uneven everywhere.

    Attributes:
        noise: largest height above or below 0 [m].
        grain: distance between independent heights [m].
    """

    noise: Pair = (0.01, 0.08)
    grain: float = 0.25

    limits: ClassVar[dict[str, tuple[float, float, str]]] = {"noise": (0.0, 2.0, "m"), "grain": (0.02, 10.0, "m")}

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Noise that fades out towards platform and rim."""
        return grid.fade(self.grain) * rough(grid, between(self.noise, difficulty), self.grain, rng)


@dataclass(kw_only=True, slots=True)
class Slope(Tile):
    """A pyramid: the robot leaves the platform uphill (an inverted pyramid, the platform in its pit) or downhill.

    Attributes:
        up: uphill from the platform, else downhill.
        slope: rise over run; 0.4 is 22 degrees.
        noise: largest height of noise on top [m].
    """

    up: bool = True
    slope: Pair = (0.0, 0.4)
    noise: Pair = (0.0, 0.02)

    limits: ClassVar[dict[str, tuple[float, float, str]]] = {"slope": (0.0, 2.0, ""), "noise": (0.0, 2.0, "m")}

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Four planes, at 0 along the rim, and the platform at their end."""
        depth = between(self.slope, difficulty) * (grid.room - np.clip(grid.beyond, 0.0, grid.room))
        noise = grid.fade(0.25) * rough(grid, between(self.noise, difficulty), 0.25, rng)
        return (-depth if self.up else depth) + noise


@dataclass(kw_only=True, slots=True)
class Stairs(Tile):
    """Square stairs around the platform, up (the platform at the bottom) or down (the platform on top).

    Attributes:
        up: upstairs from the platform, else downstairs.
        step_height: of one step [m].
        tread: depth of one step [m]; whole cells.
    """

    up: bool = True
    step_height: Pair = (0.03, 0.18)
    tread: float = 0.3

    stepped: ClassVar[bool] = True
    limits: ClassVar[dict[str, tuple[float, float, str]]] = {"step_height": (0.0, 1.0, "m"), "tread": (0.05, 5.0, "m")}

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """As many steps as fit between platform and rim, which is as wide as they leave it."""
        tread = grid.cells(self.tread)
        steps = int(grid.room / grid.resolution + 1e-6) // tread
        require(steps >= 1, "tread", self.tread, f"no step fits the {grid.room:g} m between platform and rim")
        # The step that a cell is on, counted from the platform: 0 on it, `steps` on the rim.
        step = np.clip(np.floor(grid.beyond / grid.resolution + 1e-6) // tread + 1, 0, steps)
        depth = (steps - step) * between(self.step_height, difficulty)
        return -depth if self.up else depth


@dataclass(kw_only=True, slots=True)
class SteppingStones(Tile):
    """Square stones in rows, with a pit between them. Stones and gaps are whole cells.

    Attributes:
        stone: side of a stone [m].
        gap: distance between stones [m].
        uneven: largest height of a stone above or below 0 [m].
        depth: of the pit [m].
    """

    stone: Pair = (0.8, 0.3)
    gap: Pair = (0.1, 0.3)
    uneven: Pair = (0.0, 0.05)
    depth: float = 1.0

    stepped: ClassVar[bool] = True
    limits: ClassVar[dict[str, tuple[float, float, str]]] = {
        "stone": (0.05, 5.0, "m"),
        "gap": (0.01, 3.0, "m"),
        "uneven": (0.0, 1.0, "m"),
        "depth": (0.05, 10.0, "m"),
    }

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Rows of stones, each row shifted at random."""
        stone, gap = grid.cells(between(self.stone, difficulty)), grid.cells(between(self.gap, difficulty))
        uneven = between(self.uneven, difficulty)
        heights = np.full((grid.n, grid.n), -self.depth)
        for top in range(0, grid.n, stone + gap):
            for left in range(-int(rng.integers(stone + gap)), grid.n, stone + gap):
                height = rng.uniform(-uneven, uneven)
                heights[top : top + stone, max(left, 0) : max(left + stone, 0)] = height
        heights[~grid.between] = 0.0
        return heights


@dataclass(kw_only=True, slots=True)
class Gaps(Tile):
    """Square trenches around the platform, one behind the other. Trenches and the ground between are whole cells.

    Attributes:
        width: of a trench [m].
        ground_width: of the ground between two trenches [m].
        depth: of a trench [m].
    """

    width: Pair = (0.1, 0.5)
    ground_width: float = 0.8
    depth: float = 1.0

    stepped: ClassVar[bool] = True
    limits: ClassVar[dict[str, tuple[float, float, str]]] = {
        "width": (0.01, 3.0, "m"),
        "ground_width": (0.05, 10.0, "m"),
        "depth": (0.05, 10.0, "m"),
    }

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Trenches as far as whole ones fit before the rim; the first begins at the platform."""
        width, ground = grid.cells(between(self.width, difficulty)), grid.cells(self.ground_width)
        room = int(grid.room / grid.resolution + 1e-6)
        require(width <= room, "width", self.width, f"no trench fits the {grid.room:g} m between platform and rim")
        trenches = (room - width) // (width + ground) + 1
        cell = np.floor(grid.beyond / grid.resolution + 1e-6).astype(int)
        trench, place = np.divmod(cell, width + ground)
        return np.where((cell >= 0) & (trench < trenches) & (place < width), -self.depth, 0.0)


@dataclass(kw_only=True, slots=True)
class Waves(Tile):
    """Smooth hills and hollows, a sine along x plus one along y.

    Attributes:
        amplitude: largest height above or below 0 [m].
        wavelength: from hill to hill [m].
    """

    amplitude: Pair = (0.03, 0.25)
    wavelength: float = 2.0

    limits: ClassVar[dict[str, tuple[float, float, str]]] = {
        "amplitude": (0.0, 5.0, "m"),
        "wavelength": (0.2, 100.0, "m"),
    }

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Waves of random phase, fading out towards platform and rim."""
        phase = rng.uniform(0.0, 2 * np.pi, size=2)
        turn = 2 * np.pi / self.wavelength
        sines = np.sin(turn * grid.x + phase[0]) + np.sin(turn * grid.y + phase[1])
        return grid.fade(self.wavelength / 4) * 0.5 * between(self.amplitude, difficulty) * sines


@dataclass(kw_only=True, slots=True)
class Obstacles(Tile):
    """Blocks scattered over level ground.

    Attributes:
        height: of the highest block [m]; the lowest has half of it.
        width: shortest and longest side of a block [m], at every difficulty.
        count: number of blocks; they may overlap.
    """

    height: Pair = (0.03, 0.25)
    width: Pair = (0.3, 1.2)
    count: int = 40

    stepped: ClassVar[bool] = True
    limits: ClassVar[dict[str, tuple[float, float, str]]] = {
        "height": (0.0, 3.0, "m"),
        "width": (0.05, 10.0, "m"),
        "count": (0, 10_000, ""),
    }

    def ground(self, difficulty: float, grid: Grid, rng: np.random.Generator) -> np.ndarray:
        """Blocks anywhere but on platform and rim."""
        height = between(self.height, difficulty)
        heights = np.zeros((grid.n, grid.n))
        for _ in range(self.count):
            rows, columns = (grid.cells(rng.uniform(min(self.width), max(self.width))) for _ in range(2))
            row, column = rng.integers(grid.n), rng.integers(grid.n)
            heights[row : row + rows, column : column + columns] = height * rng.uniform(0.5, 1.0)
        return np.where(grid.between, heights, 0.0)
