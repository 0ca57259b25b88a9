"""All tiles in one map: rows and columns, spawn points, what is refused."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from robot_rl_assets.registry import get_robot
from robot_rl_envs.terrain import (
    PRESETS,
    Flat,
    Gaps,
    Obstacles,
    Stairs,
    TerrainCfg,
    Tile,
    Waves,
    build_terrain,
    rough_terrains,
)
from robot_rl_envs.terrain.build import column_kinds


@dataclasses.dataclass(kw_only=True, slots=True)
class Staged(Tile):
    """Ground that another test's lines decide on."""

    what: str = "flat"
    stepped: ClassVar[bool] = True

    def ground(self, difficulty, grid, rng):
        heights = np.zeros((grid.n, grid.n))
        if self.what == "post" and difficulty > 0.5:
            heights[grid.n // 2 + 4, grid.n // 2] = 0.4
        if self.what == "hole" and difficulty > 0.5:
            heights[grid.n // 2 + 4, grid.n // 2] = -0.4
        if self.what == "nan":
            heights[0, 0] = np.nan
        return heights[1:] if self.what == "short" else heights


def test_every_ready_terrain_is_built_and_described():
    for name, (text, make) in PRESETS.items():
        terrain = build_terrain(dataclasses.replace(make(), num_rows=2, border=1.0))
        assert terrain.heights.dtype == np.float32
        assert terrain.heights.shape == terrain.cfg.shape
        assert set(terrain.kinds) == set(terrain.cfg.tiles), name
        assert len(text) > 5


def test_a_ready_terrain_is_a_new_object_each_time():
    for _, make in PRESETS.values():
        for name, tile in make().tiles.items():
            tile.platform = 0.5
            assert make().tiles[name].platform == 2.0


def test_the_same_seed_gives_the_same_bits_and_another_does_not(small):
    first, again, other = small("obstacles"), small("obstacles"), small("obstacles", seed=1)
    assert first.heights.tobytes() == again.heights.tobytes()
    assert first.origins.tobytes() == again.origins.tobytes()
    assert first.heights.tobytes() != other.heights.tobytes()


def test_a_tile_does_not_depend_on_how_many_are_around_it(small):
    # Without a curriculum's difficulty by row, the first tiles of a longer terrain are those of the shorter one.
    short = small("obstacles", num_rows=2, difficulty=(1.0, 1.0), border=0.0)
    long = small("obstacles", num_rows=4, difficulty=(1.0, 1.0), border=0.0)
    assert np.array_equal(short.heights, long.heights[:, :160])


def test_columns_are_along_y_and_rows_of_rising_difficulty_along_x(small):
    terrain = small("stairs", num_rows=3)
    assert terrain.kinds == ("stairs_up", "stairs_down")
    assert terrain.difficulty[:, 0].tolist() == [0.0, 0.5, 1.0]
    assert terrain.origins[:, 0, 0].tolist() == pytest.approx([-8.0, 0.0, 8.0], abs=1e-5)
    assert terrain.origins[0, :, 1].tolist() == pytest.approx([-4.0, 4.0], abs=1e-5)
    # Eight steps of 3, 10.5 and 18 cm, down to the platform in the one column, up to it in the other.
    assert terrain.origins[:, 0, 2].tolist() == pytest.approx([-0.24, -0.84, -1.44], abs=1e-5)
    assert terrain.origins[:, 1, 2].tolist() == pytest.approx([0.24, 0.84, 1.44], abs=1e-5)


def test_the_map_s_middle_is_the_world_s_origin_and_cells_have_their_points_in_the_middle(small):
    terrain = small("flat", num_rows=3, border=2.0)
    ny, nx = terrain.heights.shape
    assert (ny, nx) == (2 * 80 + 40, 3 * 80 + 40)
    assert terrain.x0 == pytest.approx(-(3 * 8 / 2 + 2) + 0.05)
    assert terrain.y0 == pytest.approx(-(2 * 8 / 2 + 2) + 0.05)
    assert terrain.grid == (terrain.x0, terrain.y0, pytest.approx(10.0))


def test_border_is_level(small):
    heights = small("obstacles", border=2.0).heights.copy()
    heights[20:-20, 20:-20] = 0.0
    assert not heights.any()


def test_columns_are_shared_out_by_proportion_and_each_kind_has_one():
    def kinds(columns, **proportions):
        tiles = {name: Flat(proportion=value) for name, value in proportions.items()}
        return column_kinds(TerrainCfg(tiles=tiles, num_columns=columns))

    assert kinds(4, a=1.0, b=1.0) == ("a", "a", "b", "b")
    assert kinds(10, a=0.7, b=0.3) == ("a",) * 7 + ("b",) * 3
    assert kinds(10, a=0.96, b=0.02, c=0.02) == ("a",) * 8 + ("b", "c")
    assert kinds(3, a=1.0, b=0.0, c=2.0) == ("a", "c", "c")
    assert len(column_kinds(rough_terrains())) == 20


def test_without_a_curriculum_difficulty_is_drawn_tile_by_tile():
    cfg = dataclasses.replace(PRESETS["stairs"][1](), curriculum=False, difficulty=(0.2, 0.8))
    difficulty = build_terrain(cfg).difficulty
    assert np.unique(difficulty).size == difficulty.size
    assert difficulty.min() >= 0.2
    assert difficulty.max() <= 0.8
    assert np.array_equal(difficulty, build_terrain(cfg).difficulty)


def test_init_levels_end_with_the_last_row(small):
    assert small("flat", num_rows=3).cfg.init_levels == 3
    assert small("flat", num_rows=3, max_init_level=0).cfg.init_levels == 1


def test_the_share_of_steep_cells(small):
    assert small("flat").steep_share == 0.0
    # 18 cm over a cell of 10 cm is steep, 3 cm is not; in the last of two rows 8 square rings of edges.
    terrain = small("stairs_up", num_rows=2, num_columns=1)
    assert 0.05 < terrain.steep_share < 0.2


@pytest.mark.parametrize(
    ("tile", "where", "what"),
    [
        (Staged(what="post"), "(row 1, column 0)", "something 0.40 m high stands within terrain.footprint=0.8 m"),
        (Staged(what="hole"), "(row 1, column 0)", "the ground falls by 0.40 m within terrain.footprint=0.8 m"),
        (Gaps(platform=1.0), "(row 0, column 0)", "the ground falls by 1.00 m"),
        (Stairs(platform=1.0), "(row 0, column 0)", "something 0.03 m high stands"),
        (Obstacles(platform=0.2, count=500), "(row 0, column 0)", "leaves no spawn point"),
        (Flat(platform=7.5), "(row 0, column 0)", "platform=7.5: with a rim of 0.5 m"),
        (Staged(what="nan"), "(row 0, column 0)", "its ground is not finite"),
        (Staged(what="short"), "(row 0, column 0)", "its ground has shape (79, 80), must be (80, 80)"),
    ],
)
def test_a_terrain_without_a_spawn_point_is_refused(single, tile, where, what):
    with pytest.raises(ValueError, match=r"terrain\.tiles\.own") as error:
        single(tile)
    line = str(error.value)
    assert line.startswith(f"terrain.tiles.own {where}: ")
    assert what in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tiles": {}}, "terrain.tiles={}: must be a dict of at least one"),
        ({"tiles": {"a-b": Flat()}}, "terrain.tiles='a-b': a tile's name"),
        ({"tiles": {"a": 3}}, "terrain.tiles.a=3: must be a Tile"),
        ({"tiles": {"a": Flat(proportion=0.0)}}, "terrain.tiles=['a']: needs a tile with a proportion above 0"),
        ({"num_rows": 0}, "terrain.num_rows=0: must be a whole number in [1, 1000]"),
        ({"num_rows": 2.0}, "terrain.num_rows=2.0: must be a whole number"),
        ({"num_columns": True}, "terrain.num_columns=True: must be a whole number"),
        (
            {"tiles": {"a": Flat(), "b": Flat()}, "num_columns": 1},
            "terrain.num_columns=1: 2 kinds of tile need a column",
        ),
        ({"max_init_level": -1}, "terrain.max_init_level=-1: must be a row in [0, 9] of num_rows=10, or null"),
        ({"max_init_level": 3, "num_rows": 3}, "terrain.max_init_level=3: must be a row in [0, 2] of num_rows=3"),
        ({"max_init_level": True}, "terrain.max_init_level=True: must be a row in [0, 9]"),
        ({"difficulty": (0.0, 1.5)}, "terrain.difficulty=(0.0, 1.5): must be two numbers in [0, 1]"),
        ({"difficulty": 0.5}, "terrain.difficulty=0.5: must be two numbers in [0, 1]"),
        ({"curriculum": 1}, "terrain.curriculum=1: must be true or false"),
        ({"form": "mesh"}, "terrain.form='mesh': must be one of hfield, boxes"),
        ({"seed": -1}, "terrain.seed=-1: must be a whole number of at least 0"),
        ({"resolution": 0.0}, "terrain.resolution=0.0: must be in [0.01, 1] m"),
        ({"resolution": 0.01, "num_rows": 100}, "terrain.resolution=0.01: "),
        ({"tile_size": 8.05}, "terrain.tile_size=8.05: must be a whole number of cells of 0.1 m"),
        ({"border": 0.25}, "terrain.border=0.25: must be a whole number of cells of 0.1 m"),
        ({"border": -1.0}, "terrain.border=-1.0: must be in [0, 200] m"),
        ({"footprint": 5.0}, "terrain.footprint=5.0: must be at most half of tile_size=8 m"),
        ({"friction": -0.1}, "terrain.friction=-0.1: must be in [0, 10], or be null"),
        ({"friction": "ice"}, "terrain.friction='ice': must be in [0, 10], or be null"),
    ],
)
def test_a_field_out_of_range_is_named(changes, line):
    with pytest.raises(ValueError, match="terrain") as error:
        TerrainCfg(**{"tiles": {"a": Flat()}, **changes})
    assert str(error.value).startswith(line)


def test_boxes_of_smooth_ground_are_refused(single):
    with pytest.raises(ValueError, match=r"terrain\.form='boxes': the ground of terrain\.tiles\.own is not made of"):
        single(Waves(), form="boxes")


def test_too_many_boxes_are_refused_with_the_kind_that_needs_most(monkeypatch, small):
    monkeypatch.setattr("robot_rl_envs.terrain.build.MAX_BOXES", 100)
    with pytest.raises(ValueError, match=r"more than 100 boxes, \d+ of them for terrain\.tiles\.stepping_stones"):
        small("stepping_stones", form="boxes")


def test_a_robot_bolted_down_has_no_terrain():
    with pytest.raises(ValueError, match="terrain: robot 'cartpole' has a fixed base"):
        build_terrain(PRESETS["flat"][1](), get_robot("cartpole"))
