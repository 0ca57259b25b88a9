"""Boxes in place of a stepped map: rebuilt from them, it is the map."""

import numpy as np
import pytest
from robot_rl_envs.terrain.build import find_boxes


def rebuilt(boxes, shape):
    """The highest box over each cell."""
    heights = np.full(shape, -np.inf)
    for top, behind, left, right, height in boxes:
        area = heights[int(top) : int(behind), int(left) : int(right)]
        np.maximum(area, height, out=area)
    return heights


@pytest.mark.parametrize("kind", ["flat", "stairs", "stepping_stones", "gaps", "obstacles"])
def test_the_boxes_are_the_map(small, kind):
    terrain = small(kind, form="boxes")
    assert np.array_equal(rebuilt(terrain.boxes, terrain.heights.shape), terrain.heights.astype(np.float64))


def test_the_boxes_of_any_map_are_the_map():
    rng = np.random.default_rng(0)
    for _ in range(20):
        heights = rng.integers(0, 4, size=(rng.integers(1, 20), rng.integers(1, 20))) * 0.1
        assert np.array_equal(rebuilt(find_boxes(heights), heights.shape), heights)


def test_level_ground_is_one_box_and_a_pyramid_one_a_step():
    assert find_boxes(np.zeros((50, 30))).tolist() == [[0, 50, 0, 30, 0.0]]
    y, x = np.mgrid[-10:11, -10:11]
    pyramid = np.floor((10 - np.maximum(np.abs(x), np.abs(y))) / 2)
    assert len(find_boxes(pyramid)) == 6
    # A pit needs four boxes around each step, and one for its bottom.
    assert len(find_boxes(-pyramid)) == 5 * 4 + 1


def test_few_boxes_are_enough(small):
    assert len(small("flat", form="boxes").boxes) == 1
    # 3 tiles, 8 steps: a box a step on the way down from the platform, four and the bottom on the way up.
    assert len(small("stairs", form="boxes").boxes) < 3 * (8 + 8 * 4 + 2) + 30


def test_boxes_stand_where_the_map_has_them(small, compiled):
    terrain = small("gaps", form="boxes")
    model, _ = compiled(terrain)
    assert model.ngeom == len(terrain.boxes)
    tops = model.geom_pos[:, 2] + model.geom_size[:, 2]
    assert tops == pytest.approx(terrain.boxes[:, 4])
    bottoms = model.geom_pos[:, 2] - model.geom_size[:, 2]
    assert np.ptp(bottoms) < 1e-9
    assert model.geom(0).name == "floor"
    assert model.geom(1).name == "floor_1"
