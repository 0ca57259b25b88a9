"""A terrain as MuJoCo geoms, for physics and for images."""

from __future__ import annotations

from typing import Any

import numpy as np

from robot_rl_envs.terrain.build import Terrain

BELOW = 1.0
"""Solid ground below the lowest height [m], so that nothing falls through."""
MAX_TEXTURE = 4096
"""Pixels on a side of a texture at most; larger maps are painted coarser."""
COLORS = (
    (-1.0, (46, 66, 104)),
    (-0.45, (92, 126, 158)),
    (-0.12, (168, 190, 204)),
    (0.0, (222, 224, 222)),
    (0.12, (221, 205, 168)),
    (0.45, (196, 150, 96)),
    (1.0, (126, 78, 52)),
)
"""Height as a share of the scale, and its color: low is blue, 0 is light, high is brown."""


def add_ground(terrain: Terrain, spec: Any, *, friction: float = 1.0, textured: bool = False) -> None:
    """Add a terrain to a ``mujoco.MjSpec``: the geom "floor", or, as boxes, "floor", "floor_1" and so on.

    ``friction`` is used unless the terrain has its own; ``textured`` colors it by height, for images.
    """
    own = terrain.cfg.friction
    (_add_boxes if terrain.stepped else _add_hfield)(terrain, spec, friction if own is None else own, textured)


def _add_hfield(terrain: Terrain, spec: Any, friction: float, textured: bool) -> None:
    """Add the map as one height field."""
    import mujoco

    heights = terrain.heights.astype(np.float64)
    ny, nx = heights.shape
    lowest = float(heights.min())
    height = float(heights.max()) - lowest
    width, depth = (nx - 1) * terrain.resolution, (ny - 1) * terrain.resolution
    # MuJoCo keeps shares of the height; level ground has none.
    share = (heights - lowest) / height if height > 0 else np.zeros_like(heights)
    field = spec.add_hfield(name="floor", nrow=ny, ncol=nx, size=[width / 2, depth / 2, height or BELOW, BELOW])
    field.userdata = share.ravel()
    floor = spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="floor")
    floor.pos = [terrain.x0 + width / 2, terrain.y0 + depth / 2, lowest]
    _make_ground(floor, friction)
    if textured:
        step = max(1, -(-max(ny, nx) // MAX_TEXTURE))
        pixels = color(terrain.heights)[::-step, ::step]
        texture = spec.add_texture(name="terrain", type=mujoco.mjtTexture.mjTEXTURE_2D)
        texture.height, texture.width, texture.nchannel = pixels.shape
        texture.data = pixels.tobytes()
        material = spec.add_material(name="terrain", texrepeat=[1.0, 1.0], texuniform=False, specular=0.1)
        material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "terrain"
        floor.material = "terrain"


def _add_boxes(terrain: Terrain, spec: Any, friction: float, textured: bool) -> None:
    """Add the map as boxes that stand on a common level, each colored by its height."""
    import mujoco

    assert terrain.boxes is not None
    bottom = float(terrain.heights.min()) - BELOW
    rgb = color(terrain.boxes[:, 4], max(float(np.abs(terrain.heights).max()), 0.05)) / 255.0
    cell = terrain.resolution
    for k, (top, behind, left, right, height) in enumerate(terrain.boxes):
        box = spec.worldbody.add_geom(name=f"floor_{k}" if k else "floor", type=mujoco.mjtGeom.mjGEOM_BOX)
        box.size = [(right - left) * cell / 2, (behind - top) * cell / 2, (height - bottom) / 2]
        # A point of the map is the middle of its cell.
        x, y = terrain.x0 + ((left + right - 1) / 2) * cell, terrain.y0 + ((top + behind - 1) / 2) * cell
        box.pos = [x, y, (height + bottom) / 2]
        _make_ground(box, friction)
        if textured:
            box.rgba = [*rgb[k], 1.0]


def _make_ground(geom: Any, friction: float) -> None:
    """Set the contact bits of `robot_rl_assets.robot` for the ground, and its friction."""
    geom.contype, geom.conaffinity = 1, 0
    geom.friction = [friction, 0.005, 0.0001]


def color(heights: np.ndarray, scale: float | None = None) -> np.ndarray:
    """Return the color (..., 3) uint8 of each height (...) [m].

    ``scale`` is the height of the last color [m]; by default the largest height above or below 0, at least 5 cm.
    """
    if scale is None:
        scale = max(float(np.abs(heights).max(initial=0.0)), 0.05)
    at = np.clip(heights / scale, -1.0, 1.0)
    places = [place for place, _ in COLORS]
    channels = [np.interp(at, places, [rgb[k] for _, rgb in COLORS]) for k in range(3)]
    return np.round(np.stack(channels, axis=-1)).astype(np.uint8)


def shade(heights: np.ndarray, resolution: float, strength: float = 0.55) -> np.ndarray:
    """Return factors (ny, nx) for a map's colors in light from the upper left: 1 on level ground.

    ``heights`` (ny, nx) and ``resolution`` [m]; ``strength`` of the shadows in [0, 1].
    """
    along_y, along_x = np.gradient(heights.astype(np.float64), resolution)
    light = np.array([-0.5, 0.5, 0.9]) / np.linalg.norm([-0.5, 0.5, 0.9])
    bright = (light[2] - along_x * light[0] - along_y * light[1]) / np.sqrt(1 + along_x**2 + along_y**2)
    return np.clip(1 + strength * (bright - light[2]), 0.3, 1.12)
