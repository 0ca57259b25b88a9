"""All tiles of a terrain in one height map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from robot_rl_assets.robot import Robot

from robot_rl_envs.terrain.cfg import TerrainCfg
from robot_rl_envs.terrain.tiles import Tile

LEVEL = 0.01
"""Ground counts as level if it differs by no more than this [m]."""
MAX_BOXES = 20_000
STEEP = 1.0
"""Rise over run from which a cell counts as steep (45 degrees)."""


@dataclass(kw_only=True, eq=False)
class Terrain:
    """One height map with its middle at the world's origin; rows of difficulty along x, columns of kinds along y.

    `heights[row, column]` is the ground at x = x0 + column * resolution, y = y0 + row * resolution. As a height field
    the ground between is linear on two triangles a cell, split by the diagonal from the lower to the higher indices. As
    boxes each number is a level square of one cell around its point.

    Attributes:
        heights: (ny, nx) float32 [m].
        x0, y0: of `heights[0, 0]`, world frame [m].
        resolution: distance between points [m].
        origins: (rows, columns, 3) float32 spawn points, z on the highest ground within the footprint [m].
        kinds: name of each column's kind of ground.
        difficulty: (rows, columns) of each tile, in [0, 1].
        boxes: (k, 5) first row, row behind the last, first column, column behind the last, height; None as a height
            field.
    """

    cfg: TerrainCfg
    heights: np.ndarray
    x0: float
    y0: float
    resolution: float
    origins: np.ndarray
    kinds: tuple[str, ...]
    difficulty: np.ndarray
    boxes: np.ndarray | None = None

    @property
    def stepped(self) -> bool:
        """Whether each height is a level square, as with boxes."""
        return self.boxes is not None

    @property
    def grid(self) -> tuple[float, float, float]:
        """X of column 0, y of row 0 [m], and 1 / resolution [1/m], for the lookup."""
        return self.x0, self.y0, 1.0 / self.resolution

    @cached_property
    def steep_share(self) -> float:
        """Share of cells, without the border, over which the ground rises or falls by 45 degrees or more."""
        edge = self.cfg.border_cells
        ny, nx = self.heights.shape
        ground = self.heights[edge : ny - edge, edge : nx - edge]
        rise = np.maximum(
            np.abs(np.diff(ground, axis=0, append=ground[-1:])), np.abs(np.diff(ground, axis=1, append=ground[:, -1:]))
        )
        return float((rise >= STEEP * self.resolution - 1e-6).mean())

    def tile_at(self, row: int, column: int) -> tuple[int, int] | None:
        """Return the tile (its row of difficulty, its column) of a point of the map; None on the border."""
        cells, edge = self.cfg.cells, self.cfg.border_cells
        level, kind = (column - edge) // cells, (row - edge) // cells
        inside = 0 <= level < self.cfg.num_rows and 0 <= kind < self.cfg.num_columns
        return (level, kind) if inside else None


def build_terrain(cfg: TerrainCfg, robot: Robot | None = None) -> Terrain:
    """Build a terrain for ``robot``; the same cfg gives the same bits.

    A tile depends on seed, row, column and its own kind, not on its neighbors.

    Raises:
        ValueError: a tile lacks a spawn point, or cannot have that form; the line names the tile. Or the robot has a
            fixed base.
    """
    if robot is not None and robot.base_body is None:
        raise ValueError(f"terrain: robot {robot.name!r} has a fixed base, which starts on no tile; remove terrain")
    kinds = column_kinds(cfg)
    difficulty = _difficulties(cfg)
    cells, edge = cfg.cells, cfg.border_cells
    ny, nx = cfg.shape
    heights = np.zeros((ny, nx), dtype=np.float32)
    x0, y0 = -(nx - 1) / 2 * cfg.resolution, -(ny - 1) / 2 * cfg.resolution
    origins = np.zeros((cfg.num_rows, cfg.num_columns, 3), dtype=np.float32)
    for level in range(cfg.num_rows):
        for column in range(cfg.num_columns):
            place = f"terrain.tiles.{kinds[column]} (row {level}, column {column})"
            tile = cfg.tiles[kinds[column]]
            ground = _tile_heights(tile, cfg, float(difficulty[level, column]), (level, column), place)
            left, top = edge + level * cells, edge + column * cells
            heights[top : top + cells, left : left + cells] = ground
            x, y = x0 + (left + (cells - 1) / 2) * cfg.resolution, y0 + (top + (cells - 1) / 2) * cfg.resolution
            origins[level, column] = x, y, _spawn_height(ground, tile, cfg, place)
    terrain = Terrain(
        cfg=cfg,
        heights=heights,
        x0=x0,
        y0=y0,
        resolution=cfg.resolution,
        origins=origins,
        kinds=kinds,
        difficulty=difficulty,
    )
    if cfg.form == "boxes":
        terrain.boxes = _decompose(terrain)
    return terrain


def column_kinds(cfg: TerrainCfg) -> tuple[str, ...]:
    """Return the kind of each column: in the order of `cfg.tiles`, numbers by proportion, at least one each."""
    share = {name: tile.proportion for name, tile in cfg.tiles.items() if tile.proportion > 0}
    exact = {name: cfg.num_columns * value / sum(share.values()) for name, value in share.items()}
    count = {name: max(1, int(value)) for name, value in exact.items()}
    while (missing := cfg.num_columns - sum(count.values())) != 0:
        gap = {name: exact[name] - count[name] for name in count if missing > 0 or count[name] > 1}
        name = max(gap, key=gap.__getitem__) if missing > 0 else min(gap, key=gap.__getitem__)
        count[name] += 1 if missing > 0 else -1
    return tuple(name for name, columns in count.items() for _ in range(columns))


def _difficulties(cfg: TerrainCfg) -> np.ndarray:
    """Return the difficulty (rows, columns) of each tile: rising evenly by row, or drawn."""
    low, high = cfg.difficulty
    share = np.linspace(0.0, 1.0, cfg.num_rows)[:, None].repeat(cfg.num_columns, axis=1)
    if not cfg.curriculum:
        share = np.random.default_rng([cfg.seed, 0xD1FF]).uniform(size=share.shape)
    return low + (high - low) * share


def _tile_heights(tile: Tile, cfg: TerrainCfg, difficulty: float, index: tuple[int, int], place: str) -> np.ndarray:
    """Return the heights (n, n) float32 of a tile, checked since tiles may be a user's own."""
    rng = np.random.default_rng([cfg.seed, *index])
    try:
        ground = tile.heights(difficulty, cfg.tile_size, cfg.resolution, rng)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    n = cfg.cells
    if np.shape(ground) != (n, n):
        raise ValueError(f"{place}: its ground has shape {np.shape(ground)}, must be ({n}, {n})")
    if not np.isfinite(ground).all():
        raise ValueError(f"{place}: its ground is not finite")
    # Equal heights must be equal numbers, regardless of how they were summed.
    return np.round(ground, 5).astype(np.float32) + np.float32(0.0)


def _spawn_height(ground: np.ndarray, tile: Tile, cfg: TerrainCfg, place: str) -> float:
    """Return the highest ground within the footprint [m]; refuse ground that is not level there."""
    n = cfg.cells
    middle = (np.arange(n) + 0.5) * cfg.resolution - cfg.tile_size / 2
    near = np.hypot(*np.meshgrid(middle, middle)) <= max(cfg.footprint, cfg.resolution)
    around = ground[near]
    center = float(np.median(ground[n // 2 - 1 : n // 2 + 1, n // 2 - 1 : n // 2 + 1]))
    highest, lowest = float(around.max()), float(around.min())
    if highest - lowest > LEVEL:
        what = (
            f"something {highest - center:.2f} m high stands"
            if highest - center > LEVEL
            else f"the ground falls by {center - lowest:.2f} m"
        )
        raise ValueError(
            f"{place}: leaves no spawn point, {what} within terrain.footprint={cfg.footprint:g} m of its middle; its "
            f"ground must be level there: platform={tile.platform:g}, at least {2 * cfg.footprint:g} m is needed"
        )
    return highest


def _decompose(terrain: Terrain) -> np.ndarray:
    """Return the boxes of a stepped terrain; refuse ground that is not stepped, or needs too many boxes."""
    cfg = terrain.cfg
    for name in dict.fromkeys(terrain.kinds):
        if not cfg.tiles[name].stepped:
            raise ValueError(
                f"terrain.form='boxes': the ground of terrain.tiles.{name} is not made of level pieces; use "
                f"terrain.form=hfield, or terrain.tiles.{name}.proportion=0"
            )
    count: Counter[str] = Counter()

    def found(row: int, column: int) -> None:
        tile = terrain.tile_at(row, column)
        count[terrain.kinds[tile[1]] if tile is not None else "border"] += 1
        if count.total() > MAX_BOXES:
            most, boxes = count.most_common(1)[0]
            raise ValueError(
                f"terrain.form='boxes': needs more than {MAX_BOXES} boxes, {boxes} of them for terrain.tiles.{most}; "
                "use terrain.form=hfield, or fewer tiles"
            )

    return find_boxes(terrain.heights, found)


def find_boxes(heights: np.ndarray, found: Callable[[int, int], None] | None = None) -> np.ndarray:
    """Return boxes with the map as their upper sides: the highest box over a cell has the cell's height.

    Boxes reach down to a common level, so one may extend below higher ground: a pyramid of k steps needs k boxes, each
    step's square on the next lower one's. Greedy, height after height: from the first cell without a box, the
    rectangle over ground that is nowhere lower, extended right then down or down then right, whichever covers more.

    Args:
        heights: (ny, nx) map [m]; equal heights must be equal numbers.
        found: called with row and column of each box's first cell; may raise to stop.

    Returns:
        (k, 5) first row, row behind the last, first column, column behind the last, height.
    """
    order = np.argsort(heights, axis=None, kind="stable")
    starts = np.flatnonzero(np.diff(heights.ravel()[order], prepend=-np.inf))
    boxes: list[tuple[int, int, int, int, float]] = []
    done = np.zeros(heights.shape, dtype=bool)
    for group in np.split(order, starts[1:]):
        rows, columns = np.unravel_index(group, heights.shape)
        height = heights[rows[0], columns[0]]
        low, high = columns.min(), columns.max() + 1
        # What a box of this height could cover, as far as the height occurs.
        window = heights[rows[0] : rows[-1] + 1, low:high]
        allowed, wanted = window >= height, window == height
        finished = done[rows[0] : rows[-1] + 1, low:high]
        for row, column in zip(rows - rows[0], columns - low, strict=True):
            if finished[row, column]:
                continue
            if found is not None:
                found(int(row + rows[0]), int(column + low))
            area = _grow(allowed, wanted, finished, (row, column))
            finished[area] |= wanted[area]
            first, left = row + rows[0], area[1].start + low
            boxes.append((first, first + area[0].stop - row, left, area[1].stop + low, float(height)))
    return np.array(boxes, dtype=np.float64).reshape(-1, 5)


def _grow(allowed: np.ndarray, wanted: np.ndarray, finished: np.ndarray, cell: tuple[int, int]) -> tuple[slice, slice]:
    """Return the better of two rectangles within `allowed` from `cell` on: it newly covers more of `wanted`."""
    row, column = cell
    right = column + _run(allowed[row, column:])
    down = row + _run(allowed[row:, column])
    wide = (slice(row, row + _run(allowed[row:down, column:right].all(axis=1))), slice(column, right))
    tall = (slice(row, down), slice(column, column + _run(allowed[row:down, column:right].all(axis=0))))
    return max(wide, tall, key=lambda area: int(np.count_nonzero(wanted[area] & ~finished[area])))


def _run(flags: Any) -> int:
    """Return how many flags are set from the first on."""
    return int(flags.size if flags.all() else flags.argmin())
