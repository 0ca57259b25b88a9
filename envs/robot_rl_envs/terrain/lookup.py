"""The ground under a point, read from the height map inside a kernel: the hit of a vertical ray.

`s` needs `terrain_heights` (2-D float32, rows along y, columns along x; shape (1, 1) on flat ground), `terrain_grid`
(vec3: x of column 0, y of row 0 [m], 1 / resolution [1/m]) and `terrain_stepped` (1 if the ground is made of boxes).
"""

from typing import Any

import warp as wp


@wp.func
def terrain_height(s: Any, x: float, y: float) -> float:
    """Height of the ground at (x, y), world frame [m]; 0 on flat ground.

    On a height field it uses MuJoCo's own two triangles of a cell, split by the diagonal from its lower to its higher
    indices; on boxes the level square around the nearest point of the map. Outside the map the ground continues as at
    its edge.
    """
    rows = s.terrain_heights.shape[0]
    columns = s.terrain_heights.shape[1]
    if rows < 2 or columns < 2:
        return 0.0
    u = wp.clamp((x - s.terrain_grid[0]) * s.terrain_grid[2], 0.0, float(columns - 1))
    v = wp.clamp((y - s.terrain_grid[1]) * s.terrain_grid[2], 0.0, float(rows - 1))
    if s.terrain_stepped != 0:
        return s.terrain_heights[int(v + 0.5), int(u + 0.5)]
    column = wp.min(int(u), columns - 2)
    row = wp.min(int(v), rows - 2)
    fu = u - float(column)
    fv = v - float(row)
    low = s.terrain_heights[row, column]
    high = s.terrain_heights[row + 1, column + 1]
    if fu > fv:
        corner = s.terrain_heights[row, column + 1]
        return low + fu * (corner - low) + fv * (high - corner)
    corner = s.terrain_heights[row + 1, column]
    return low + fv * (corner - low) + fu * (high - corner)
