"""Each kind of ground, measured on its heights."""

import numpy as np
import pytest
from robot_rl_envs.terrain import (
    PRESETS,
    Flat,
    Gaps,
    Obstacles,
    RandomRough,
    Slope,
    Stairs,
    SteppingStones,
    Waves,
)

KINDS = {name: tile for make in PRESETS.values() for name, tile in make[1]().tiles.items()}
MIDDLE = 40
"""A row through the middle of a tile of 80 cells."""


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("difficulty", [0.0, 0.6, 1.0])
def test_platform_is_level_and_rim_is_zero(ground, kind, difficulty):
    heights, grid = ground(KINDS[kind], difficulty)
    assert heights.shape == (80, 80)
    assert np.ptp(heights[grid.beyond <= 0]) < 1e-9
    assert np.abs(heights[grid.inside <= 0]).max() < 1e-9


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_same_draws_give_the_same_bits_and_others_differ_where_there_is_chance(ground, kind):
    first, _ = ground(KINDS[kind], 0.5, seed=1)
    assert np.array_equal(first, ground(KINDS[kind], 0.5, seed=1)[0])
    chance = kind in ("random_rough", "slope_up", "slope_down", "stepping_stones", "waves", "obstacles")
    assert np.array_equal(first, ground(KINDS[kind], 0.5, seed=2)[0]) != chance


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"flat", "stepping_stones", "gaps"}))
def test_difficulty_raises_the_ground_s_extremes(ground, kind):
    extremes = [np.abs(ground(KINDS[kind], d)[0]).max() for d in np.linspace(0, 1, 6)]
    assert (np.diff(extremes) > 0).all()


def test_difficulty_leaves_less_stone(ground):
    shares = [(ground(KINDS["stepping_stones"], d)[0][:, 12:20] > -0.5).mean() for d in (0.0, 0.5, 1.0)]
    assert shares[0] > shares[1] > shares[2]


def test_difficulty_widens_gaps(ground):
    for difficulty, cells in ((0.0, 1), (0.5, 3), (1.0, 5)):
        pit = ground(KINDS["gaps"], difficulty)[0][MIDDLE] < -0.5
        assert np.diff(np.flatnonzero(np.diff(pit)))[0] == cells


def test_flat_is_zero(ground):
    assert not ground(Flat(), 1.0)[0].any()


@pytest.mark.parametrize(("difficulty", "height"), [(0.0, 0.03), (0.5, 0.105), (1.0, 0.18)])
@pytest.mark.parametrize("up", [True, False])
def test_stairs_have_steps_of_the_requested_height_and_tread(ground, difficulty, height, up):
    heights, _ = ground(Stairs(up=up, step_height=(0.03, 0.18), tread=0.3), difficulty)
    # From the middle to the edge there are 10 cells of platform, 8 treads of 3 cells, and what is left of the rim.
    profile = heights[MIDDLE, MIDDLE:]
    rises = np.diff(profile)
    at = np.flatnonzero(rises)
    assert at.tolist() == list(range(9, 31, 3))
    assert rises[at] == pytest.approx(height if up else -height)
    assert profile[0] == pytest.approx(-8 * height if up else 8 * height)
    assert profile[-1] == 0.0


@pytest.mark.parametrize("up", [True, False])
def test_a_slope_rises_as_specified_and_its_platform_is_at_its_end(ground, up):
    heights, _ = ground(Slope(up=up, slope=(0.1, 0.4), noise=(0.0, 0.0)), 1.0)
    profile = heights[MIDDLE, MIDDLE:]
    # Between platform (1 m from the middle) and rim (3.5 m) the run is 2.5 m.
    assert profile[0] == pytest.approx(-1.0 if up else 1.0)
    assert np.diff(profile[11:34]) / 0.1 == pytest.approx(0.4 if up else -0.4)
    steepest = np.degrees(np.arctan(np.abs(np.diff(profile)).max() / 0.1))
    assert steepest == pytest.approx(21.80, abs=0.01)


@pytest.mark.parametrize(("difficulty", "width"), [(0.0, 0.2), (1.0, 0.5)])
def test_gaps_are_as_wide_and_as_deep_as_specified(ground, difficulty, width):
    heights, _ = ground(Gaps(width=(0.2, 0.5), ground_width=0.8, depth=0.7), difficulty)
    profile = heights[MIDDLE, MIDDLE:]
    runs = np.split(profile, np.flatnonzero(np.diff(profile)) + 1)
    # Platform, then trench and ground in turn, the rim last.
    assert len(runs[0]) == 10
    assert [round(len(run) * 0.1, 6) for run in runs[1::2]] == [width] * len(runs[1::2])
    assert [round(len(run) * 0.1, 6) for run in runs[2:-1:2]] == [0.8] * len(runs[2:-1:2])
    assert {run[0] for run in runs[1::2]} == {-0.7}
    assert len(runs[1::2]) == (3 if difficulty == 0.0 else 2)


def test_stones_have_the_requested_size_distance_and_height(ground):
    tile = SteppingStones(stone=(0.8, 0.3), gap=(0.1, 0.2), uneven=(0.0, 0.05), depth=0.9)
    heights, grid = ground(tile, 1.0)
    inner = grid.between[5 : 5 + 25]
    # Rows of 3 cells of stone and 2 of pit, whichever way a row is shifted.
    for top in range(10, 25, 5):
        row = heights[top, 8:72]
        edges = np.flatnonzero(np.diff(row < -0.5)) + 1
        lengths = np.diff(edges)
        stones = lengths[0::2] if row[edges[0]] > -0.5 else lengths[1::2]
        gaps = lengths[1::2] if row[edges[0]] > -0.5 else lengths[0::2]
        assert set(stones) == {3}
        assert set(gaps) == {2}
        assert (heights[top + 3, 8:72] == -0.9).all()
    stones = heights[grid.between & (heights > -0.5)]
    assert np.abs(stones).max() <= 0.05
    assert np.abs(stones).max() > 0.03
    assert inner.any()


def test_noise_fills_its_range_and_keeps_to_its_grain(ground):
    heights, grid = ground(RandomRough(noise=(0.0, 0.1), grain=0.5), 1.0)
    assert 0.07 < np.abs(heights).max() <= 0.1
    # Linear over 0.5 m: between two cells no more than a fifth of the whole range.
    inner = heights[grid.fade(0.5) == 1.0]
    assert np.abs(np.diff(heights, axis=1)).max() <= 2 * 0.1 * 0.2 * 1.5
    assert abs(inner.mean()) < 0.03


def test_waves_repeat_with_their_wavelength(ground):
    heights, grid = ground(Waves(amplitude=(0.0, 0.2), wavelength=1.0, platform=1.0), 1.0)
    assert 0.1 < np.abs(heights).max() <= 0.2
    whole = grid.fade(0.25) == 1.0
    same = whole[:, 10:] & whole[:, :-10]
    assert heights[:, 10:][same] == pytest.approx(heights[:, :-10][same])


def test_obstacles_are_no_higher_than_specified_and_half_as_high_at_least(ground):
    heights, _ = ground(Obstacles(height=(0.1, 0.3), count=30), 1.0)
    blocks = heights[heights > 0]
    assert blocks.size
    assert blocks.max() <= 0.3
    assert blocks.min() >= 0.15
    assert not ground(Obstacles(count=0), 1.0)[0].any()


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Stairs(step_height=(0.1, -0.2)), r"step_height=(0.1, -0.2): must be two numbers, each in [0, 1] m"),
        (lambda: Stairs(step_height=0.2), "step_height=0.2: must be two numbers"),
        (lambda: Stairs(step_height=(0.1, float("nan"))), "step_height=(0.1, nan): must be two numbers"),
        (lambda: Stairs(tread=0.0), "tread=0.0: must be in [0.05, 5] m"),
        (lambda: Stairs(tread="wide"), "tread='wide': must be in"),
        (lambda: Slope(slope=(0.0, 3.0)), "slope=(0.0, 3.0): must be two numbers, each in [0, 2]"),
        (lambda: Waves(wavelength=0.1), "wavelength=0.1: must be in [0.2, 100] m"),
        (lambda: Gaps(depth=0.0), "depth=0.0: must be in [0.05, 10] m"),
        (lambda: Obstacles(count=-1), "count=-1: must be in [0, 10000]"),
        (lambda: SteppingStones(gap=(0.0, 0.1)), "gap=(0.0, 0.1): must be two numbers"),
        (lambda: RandomRough(grain=0.0), "grain=0.0: must be in [0.02, 10] m"),
        (lambda: Flat(proportion=-1.0), "proportion=-1.0: must be in"),
        (lambda: Flat(platform=True), "platform=True: must be in"),
        (lambda: Flat(rim=-0.1), "rim=-0.1: must be in"),
    ],
)
def test_a_number_out_of_range_is_named(make, line):
    with pytest.raises(ValueError, match="must") as error:
        make()
    assert str(error.value).startswith(line)


@pytest.mark.parametrize(
    ("tile", "line"),
    [
        (Flat(platform=7.5), "platform=7.5: with a rim of 0.5 m on either side it does not fit a tile of 8 m"),
        (Stairs(tread=3.0), "tread=3.0: no step fits the 2.5 m between platform and rim"),
        (Gaps(width=(2.6, 2.6)), "width=(2.6, 2.6): no trench fits"),
    ],
)
def test_a_tile_without_room_is_refused(ground, tile, line):
    with pytest.raises(ValueError, match="fit") as error:
        ground(tile, 0.5)
    assert str(error.value).startswith(line)


def test_whole_cells_are_kept_at_another_resolution(ground):
    heights, _ = ground(Stairs(tread=0.3), 1.0, resolution=0.05)
    at = np.flatnonzero(np.diff(heights[80, 80:]))
    assert set(np.diff(at)) == {6}
    assert at[0] == 19
