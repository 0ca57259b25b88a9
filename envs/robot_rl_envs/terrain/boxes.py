"""A stepped height map as few axis-aligned boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Found = Callable[[int, int], None]


def find_boxes(heights: np.ndarray, found: Found | None = None) -> np.ndarray:
    """Return boxes with the map as their upper sides: the highest box over a cell has the cell's height.

    Boxes reach down to a common level, so one may extend below higher ground: a pyramid of k steps needs k boxes, each
    step's square on the next lower one's. Greedy, height after height: from the first cell that has no box yet, the
    rectangle over ground that is nowhere lower, grown right then down or down then right, whichever covers more.

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
