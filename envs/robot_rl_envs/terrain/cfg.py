"""The configuration of a terrain: its tiles, rows of difficulty, and its form in the physics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from robot_rl_envs.terms.checks import is_number, require
from robot_rl_envs.terrain.tiles import Tile

FORMS = ("hfield", "boxes")
MAX_CELLS = 16_000_000
INIT_LEVEL = 5
"""The highest row in which worlds start, where the terrain does not say another."""
"""Cells of a map at most: 64 MB of heights."""


@dataclass(kw_only=True, slots=True)
class TerrainCfg:
    """A terrain: `num_rows` levels of difficulty along x, `num_columns` along y, one kind of ground a column.

    Attributes:
        tiles: name -> kind of ground.
        num_rows: levels of difficulty.
        num_columns: columns; each kind gets its share, and at least one.
        difficulty: of the first and the last row, in [0, 1].
        curriculum: rows of rising difficulty; False draws each tile's difficulty at random.
        max_init_level: the highest row in which worlds start, counted from 0; None uses 5, or the last row if there
            are fewer.
        tile_size: side of a tile [m]; whole cells.
        resolution: side of a cell [m].
        border: width of the level ground around all tiles [m]; whole cells.
        footprint: radius around a spawn point that must be level and free [m]: the robot, and how far events move it.
        form: "hfield", one height field, which can be any ground, or "boxes", exact vertical sides, for stepped kinds.
        friction: sliding friction; None uses `sim.floor_friction`.
    """

    tiles: dict[str, Tile] = field(default_factory=dict)
    num_rows: int = 10
    num_columns: int = 20
    difficulty: tuple[float, float] = (0.0, 1.0)
    curriculum: bool = True
    max_init_level: int | None = None
    tile_size: float = 8.0
    resolution: float = 0.1
    border: float = 10.0
    footprint: float = 0.8
    seed: int = 0
    form: str = "hfield"
    friction: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        self._check_tiles()
        for name, least, most in (("num_rows", 1, 1000), ("num_columns", 1, 1000)):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
            _require(ok, name, value, f"must be a whole number in [{least}, {most}]")
        level = self.max_init_level
        ok = level is None or (isinstance(level, int) and not isinstance(level, bool) and 0 <= level < self.num_rows)
        right = f"must be a row in [0, {self.num_rows - 1}] of num_rows={self.num_rows}, or null"
        _require(ok, "max_init_level", level, right)
        ok = isinstance(self.seed, int) and not isinstance(self.seed, bool) and self.seed >= 0
        _require(ok, "seed", self.seed, "must be a whole number of at least 0")
        _require(isinstance(self.curriculum, bool), "curriculum", self.curriculum, "must be true or false")
        _require(self.form in FORMS, "form", self.form, f"must be one of {', '.join(FORMS)}")
        ok = isinstance(self.difficulty, tuple | list) and len(self.difficulty) == 2
        ok = ok and all(is_number(value) and 0 <= value <= 1 for value in self.difficulty)
        _require(ok, "difficulty", self.difficulty, "must be two numbers in [0, 1]")
        self._check_lengths()
        if self.friction is not None:
            ok = is_number(self.friction) and 0 <= self.friction <= 10
            _require(ok, "friction", self.friction, "must lie in [0, 10], or be null")
        used = [name for name, tile in self.tiles.items() if tile.proportion > 0]
        _require(bool(used), "tiles", sorted(self.tiles), "needs a tile with a proportion above 0")
        right = f"{len(used)} kinds of tile need a column each: at least {len(used)}, or proportion=0 for some of them"
        _require(self.num_columns >= len(used), "num_columns", self.num_columns, right)

    def _check_tiles(self) -> None:
        ok = isinstance(self.tiles, dict) and bool(self.tiles)
        _require(ok, "tiles", self.tiles, "must be a dict of at least one name and tile")
        for name, tile in self.tiles.items():
            _require(str(name).isidentifier(), "tiles", name, "a tile's name must be letters, digits and _")
            _require(isinstance(tile, Tile), f"tiles.{name}", tile, "must be a Tile")

    def _check_lengths(self) -> None:
        bounds = {
            "resolution": (0.01, 1.0),
            "tile_size": (1.0, 100.0),
            "border": (0.0, 200.0),
            "footprint": (0.0, 10.0),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            _require(is_number(value) and low <= value <= high, name, value, f"must lie in [{low:g}, {high:g}] m")
        for name in ("tile_size", "border"):
            cells = getattr(self, name) / self.resolution
            right = f"must be a whole number of cells of {self.resolution:g} m"
            _require(abs(cells - round(cells)) < 1e-6 * max(cells, 1), name, getattr(self, name), right)
        right = f"must be at most half of tile_size={self.tile_size:g} m"
        _require(self.footprint <= self.tile_size / 2, "footprint", self.footprint, right)
        rows, columns = self.shape
        right = f"{rows} x {columns} cells; at most {MAX_CELLS}: take fewer tiles, a narrower border or larger cells"
        _require(rows * columns <= MAX_CELLS, "resolution", self.resolution, right)

    @property
    def init_levels(self) -> int:
        """Number of rows that worlds start in, from row 0 on."""
        level = INIT_LEVEL if self.max_init_level is None else self.max_init_level
        return min(level + 1, self.num_rows)

    @property
    def cells(self) -> int:
        """Cells on a side of a tile."""
        return round(self.tile_size / self.resolution)

    @property
    def border_cells(self) -> int:
        """Cells across the border."""
        return round(self.border / self.resolution)

    @property
    def shape(self) -> tuple[int, int]:
        """(ny, nx) of the whole map: columns of tiles lie along y, rows of difficulty along x."""
        around = 2 * self.border_cells
        return self.num_columns * self.cells + around, self.num_rows * self.cells + around


def _require(ok: bool, field: str, value: Any, right: str) -> None:
    require(ok, f"terrain.{field}", value, right)
