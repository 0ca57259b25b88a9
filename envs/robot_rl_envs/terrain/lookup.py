"""The ground's height at a point, as the physics has it: for clearances, height scans and spawn points."""

from typing import Any

import warp as wp


@wp.func
def terrain_height(s: Any, x: float, y: float) -> float:
    """Height of the ground at (x, y) [m], world frame; 0 on an endless plane.

    Inside a cell of the map the ground is two triangles that meet on its diagonal, as in a MuJoCo height field.
    """
    rows = s.terrain_heights.shape[0]
    columns = s.terrain_heights.shape[1]
    if columns == 1:
        return 0.0
    u = wp.clamp((x - s.terrain_grid[0]) * s.terrain_grid[2], 0.0, float(columns - 1) - 1.0e-3)
    v = wp.clamp((y - s.terrain_grid[1]) * s.terrain_grid[2], 0.0, float(rows - 1) - 1.0e-3)
    c = int(u)
    r = int(v)
    fu = u - float(c)
    fv = v - float(r)
    near = s.terrain_heights[r, c]
    far = s.terrain_heights[r + 1, c + 1]
    if fu > fv:
        corner = s.terrain_heights[r, c + 1]
        return near + fu * (corner - near) + fv * (far - corner)
    corner = s.terrain_heights[r + 1, c]
    return near + fv * (corner - near) + fu * (far - corner)
