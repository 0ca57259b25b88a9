"""The configuration of a terrain: its tiles, rows of difficulty, its form in the physics; and presets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from robot_rl_envs.terms.checks import are_numbers, is_number, is_whole, require
from robot_rl_envs.terrain.tiles import Flat, Gaps, Obstacles, RandomRough, Slope, Stairs, SteppingStones, Tile, Waves

FORMS = ("hfield", "boxes")
MAX_CELLS = 16_000_000
"""Cells of a map at most: 64 MB of heights."""
MAX_SEED = 2**31 - 1
INIT_LEVEL = 5
"""Default of the highest row in which worlds start."""


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
        seed: of the tiles: the same seed makes the same ground.
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
        self._check_tiles()
        for name in ("num_rows", "num_columns"):
            value = getattr(self, name)
            _require(is_whole(value, 1, 1000), name, value, "must be a whole number in [1, 1000]")
        level = self.max_init_level
        right = f"must be a row in [0, {self.num_rows - 1}] of num_rows={self.num_rows}, or null"
        _require(level is None or is_whole(level, 0, self.num_rows - 1), "max_init_level", level, right)
        _require(
            is_whole(self.seed, 0, MAX_SEED),
            "seed",
            self.seed,
            f"must be a whole number of at least 0 and at most {MAX_SEED}",
        )
        _require(isinstance(self.curriculum, bool), "curriculum", self.curriculum, "must be true or false")
        _require(self.form in FORMS, "form", self.form, f"must be one of {', '.join(FORMS)}")
        ok = are_numbers(self.difficulty, 2) and all(0 <= value <= 1 for value in self.difficulty)
        _require(ok, "difficulty", self.difficulty, "must be two numbers in [0, 1]")
        self._check_lengths()
        if self.friction is not None:
            ok = is_number(self.friction) and 0 <= self.friction <= 10
            _require(ok, "friction", self.friction, "must be in [0, 10], or be null")
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
            _require(is_number(value) and low <= value <= high, name, value, f"must be in [{low:g}, {high:g}] m")
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


def rough_terrains() -> TerrainCfg:
    """The mixture for blind or seeing locomotion: stairs, slopes, uneven ground and obstacles, 10 levels."""
    return TerrainCfg(
        tiles={
            "flat": Flat(proportion=0.05),
            "random_rough": RandomRough(proportion=0.2),
            "slope_up": Slope(up=True, proportion=0.1),
            "slope_down": Slope(up=False, proportion=0.1),
            "stairs_up": Stairs(up=True, proportion=0.2),
            "stairs_down": Stairs(up=False, proportion=0.15),
            "waves": Waves(proportion=0.1),
            "obstacles": Obstacles(proportion=0.1),
        },
        num_rows=10,
        num_columns=20,
    )


def _one_kind(name: str, kind: Callable[..., Tile], **fields: Any) -> Callable[[], TerrainCfg]:
    """Return a function that makes a terrain of one kind: five levels, two columns with different random draws."""
    return lambda: TerrainCfg(tiles={name: kind(**fields)}, num_rows=5, num_columns=2, border=5.0)


def _both(name: str, kind: Callable[..., Tile]) -> Callable[[], TerrainCfg]:
    """Return a function that makes a terrain of a kind that leads up in one column and down in the other."""

    def make() -> TerrainCfg:
        tiles = {f"{name}_up": kind(up=True), f"{name}_down": kind(up=False)}
        return TerrainCfg(tiles=tiles, num_rows=5, num_columns=2, border=5.0)

    return make


PRESETS: dict[str, tuple[str, Callable[[], TerrainCfg]]] = {
    "flat": ("level ground", _one_kind("flat", Flat)),
    "random_rough": ("uneven everywhere, up to 8 cm", _one_kind("random_rough", RandomRough)),
    "slope_up": ("uphill from the platform, up to 22 degrees", _one_kind("slope_up", Slope, up=True)),
    "slope_down": ("downhill from the platform, up to 22 degrees", _one_kind("slope_down", Slope, up=False)),
    "slopes": ("uphill and downhill", _both("slope", Slope)),
    "stairs_up": ("upstairs from the platform, steps of 3 to 18 cm", _one_kind("stairs_up", Stairs, up=True)),
    "stairs_down": ("downstairs from the platform, steps of 3 to 18 cm", _one_kind("stairs_down", Stairs, up=False)),
    "stairs": ("upstairs and downstairs", _both("stairs", Stairs)),
    "stepping_stones": (
        "stones of 80 to 30 cm, 10 to 30 cm apart over a pit",
        _one_kind("stepping_stones", SteppingStones),
    ),
    "gaps": ("trenches of 10 to 50 cm around the platform", _one_kind("gaps", Gaps)),
    "waves": ("hills and hollows, up to 25 cm", _one_kind("waves", Waves)),
    "obstacles": ("blocks of up to 25 cm", _one_kind("obstacles", Obstacles)),
    "rough": ("the mixture that robots learn to walk on", rough_terrains),
}
"""Name -> a description in one line, and a function that makes its cfg."""
