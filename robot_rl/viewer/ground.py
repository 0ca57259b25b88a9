"""A terrain as a picture: the map from above, shaded, beside a view of it with a robot for scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot
    from robot_rl_envs.terrain import Terrain

INK, FAINT, BACK, SPAWN = (20, 24, 28), (92, 102, 112), (250, 251, 252), (26, 115, 230)
MAP_SHARE = 0.42
"""Share of the picture's width that the map takes."""
EDGE_M = 1.0
"""How much of the border the map shows [m]."""


@dataclass(kw_only=True, slots=True)
class GroundView:
    """What to show.

    Attributes:
        title: over the map.
        width: of the picture [px]; half as high.
        spawns: mark where robots start.
        level: row of the tile that the view looks at.
        column: column of that tile.
        elevation: angle of the line of sight above the horizon [deg].
        azimuth: direction of the line of sight [deg]; 0 looks along +x.
        distance: from that tile's spawn point [m]; 1.2 tiles by default.
    """

    title: str
    width: int = 1400
    spawns: bool = True
    level: int = 0
    column: int = 0
    elevation: float = -30.0
    azimuth: float = 55.0
    distance: float | None = None


def draw_ground(terrain: Terrain, robot: Robot | None, view: GroundView) -> Any:
    """Draws a terrain.

    Args:
        terrain: the ground.
        robot: stands on the tile that is looked at; None leaves the ground alone.
        view: what to show.

    Returns:
        A `PIL.Image.Image`.

    Raises:
        NoGLError: there is no OpenGL to render with.
    """
    from PIL import Image

    height = view.width // 2
    left = round(MAP_SHARE * view.width)
    picture = Image.new("RGB", (view.width, height), BACK)
    picture.paste(Image.fromarray(_perspective(terrain, robot, view, (view.width - left, height))), (left, 0))
    _draw_map(picture, terrain, view, left)
    return picture


def shaded_map(terrain: Terrain) -> np.ndarray:
    """The map from above, x to the right and y up, lit from the upper left.

    Args:
        terrain: the ground.

    Returns:
        (rows, columns, 3) uint8, a pixel a point, of the tiles and a metre of border.
    """
    from robot_rl_envs.terrain.geoms import colour, shade

    trim = max(0, terrain.cfg.border_cells - round(EDGE_M / terrain.resolution))
    ny, nx = terrain.heights.shape
    ground = terrain.heights[trim : ny - trim, trim : nx - trim]
    rgb = colour(ground) * shade(ground, terrain.resolution)[..., None]
    return np.clip(rgb, 0, 255).astype(np.uint8)[::-1]


def _perspective(terrain: Terrain, robot: Robot | None, view: GroundView, size: tuple[int, int]) -> np.ndarray:
    from robot_rl_envs.render import Arrow, CameraCfg, Renderer

    origin = terrain.origins[view.level, view.column].astype(np.float64)
    model, qpos = _model(terrain, robot, origin)
    distance = view.distance or 1.2 * terrain.cfg.tile_size
    camera = CameraCfg(distance=distance, azimuth=view.azimuth, elevation=view.elevation, follow=0.0)
    pins = [Arrow(start=o, vector=np.array([0.0, 0.0, 0.7])) for o in terrain.origins.reshape(-1, 3)]
    # A pin in the robot's back would hide what is there for scale.
    pins = [pin for pin in pins if robot is None or np.linalg.norm(pin.start - origin) > 0.5] if view.spawns else []
    with Renderer(model, *size, camera) as renderer:
        renderer.look_at(origin)
        return renderer.frame(qpos, arrows=pins)


def _model(terrain: Terrain, robot: Robot | None, origin: np.ndarray) -> tuple[Any, np.ndarray]:
    """The scene to draw, and the robot standing at `origin` in it."""
    from robot_rl_envs.entity.scene import Scene, add_surroundings
    from robot_rl_envs.task import Actions, Sim
    from robot_rl_envs.terrain import add_ground

    if robot is not None:
        scene = Scene(robot, Sim(), Actions(), terrain)
        qpos = scene.default_qpos.copy()
        qpos[:3] += origin
        return scene.render_model, qpos
    import mujoco

    spec = mujoco.MjSpec()
    add_surroundings(spec)
    add_ground(terrain, spec, textured=True)
    return spec.compile(), np.zeros(0)


def _draw_map(picture: Any, terrain: Terrain, view: GroundView, width: int) -> None:
    """The map with its rows' difficulty along x and its columns' kinds along y."""
    from PIL import Image, ImageDraw, ImageFont

    draw = ImageDraw.Draw(picture)
    unit = picture.height / 100
    large, small = (
        ImageFont.load_default(size=round(4.2 * unit)),
        ImageFont.load_default(size=max(9, round(2.6 * unit))),
    )
    draw.text((4 * unit, 4 * unit), view.title, fill=INK, font=large)
    names = [name.replace("_", " ") for name in terrain.kinds]
    margin = max(draw.textlength(name, font=small) for name in names) + 6 * unit
    pixels = shaded_map(terrain)
    scale = min((width - margin - 4 * unit) / pixels.shape[1], 80 * unit / pixels.shape[0])
    size = (max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale)))
    x, y = round(margin), round(13 * unit)
    picture.paste(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS), (x, y))
    cell = scale / terrain.resolution
    ny, nx = pixels.shape[:2]

    def place(point: np.ndarray) -> tuple[float, float]:
        """Pixel of a point of the world."""
        return x + point[0] * cell + nx * scale / 2, y - point[1] * cell + ny * scale / 2

    radius = max(1.5, 0.3 * unit)
    for origin in terrain.origins.reshape(-1, 3) if view.spawns else ():
        u, v = place(origin)
        draw.ellipse((u - radius, v - radius, u + radius, v + radius), fill=SPAWN)
    for first in (k for k, name in enumerate(names) if k == 0 or names[k - 1] != name):
        count = names[first:].count(names[first])
        v = (place(terrain.origins[0, first])[1] + place(terrain.origins[0, first + count - 1])[1]) / 2
        draw.text((x - 2 * unit, v), names[first], fill=FAINT, font=small, anchor="rm")
    below = y + size[1] + 2 * unit
    _draw_scale(draw, terrain, (x, below, cell), small)
    if picture.height - below > 30 * unit:
        _draw_section(
            draw, terrain, view, (4 * unit, below + 10 * unit, width - 4 * unit, picture.height - 4 * unit), small
        )


def _draw_scale(draw: Any, terrain: Terrain, place: tuple[float, float, float], font: Any) -> None:
    """Under the map: a bar of one tile, and how the difficulty goes. `place` is x, y and pixels a metre."""
    x, y, metre = place
    tile = terrain.cfg.tile_size
    draw.line((x, y, x + tile * metre, y), fill=INK, width=2)
    draw.line((x, y - 3, x, y + 3), fill=INK, width=2)
    draw.line((x + tile * metre, y - 3, x + tile * metre, y + 3), fill=INK, width=2)
    low, high = float(terrain.difficulty.min()), float(terrain.difficulty.max())
    way = "rising to the right" if terrain.cfg.curriculum else "drawn at random"
    text = f"{tile:g} m; difficulty {low:.2g} to {high:.2g}, {way}"
    draw.text((x, y + 5), text, fill=FAINT, font=font)


def _draw_section(
    draw: Any, terrain: Terrain, view: GroundView, box: tuple[float, float, float, float], font: Any
) -> None:
    """The ground along x close to the spawn point that is looked at, lengths and heights to the same scale.

    `box` is left, top, right and bottom [px].
    """
    left, top, right, bottom = box
    cells, edge = terrain.cfg.cells, terrain.cfg.border_cells
    first, start = edge + view.column * cells, edge + view.level * cells
    tile = terrain.heights[first : first + cells, start : start + cells]
    ground = tile[_telling_row(tile, terrain.resolution)]
    along = np.arange(cells) * terrain.resolution
    if terrain.stepped:
        along, ground = np.repeat(along, 2) + np.tile([-0.5, 0.5], cells) * terrain.resolution, np.repeat(ground, 2)
    line = float(font.getbbox("8")[3]) + 4
    low, high = min(float(ground.min()), 0.0), max(float(ground.max()), 0.0)
    metre = min((right - left) / terrain.cfg.tile_size, (bottom - top - 2 * line) / max(high - low, 0.5))
    base = top + line + high * metre
    points = [(left + (a - along[0]) * metre, base - h * metre) for a, h in zip(along, ground, strict=True)]
    floor = base - low * metre + line
    draw.polygon([(points[0][0], floor), *points, (points[-1][0], floor)], fill=(214, 219, 224))
    draw.line(points, fill=INK, width=2)
    text = f"section of row {view.level}, difficulty {terrain.difficulty[view.level, view.column]:.2g}, to scale"
    draw.text((left, top - line), text, fill=FAINT, font=font)


def _telling_row(tile: np.ndarray, resolution: float) -> int:
    """The row within a metre of a tile's middle where the ground changes most often: through stones, not between."""
    middle, reach = len(tile) // 2, round(1.0 / resolution)
    rows = sorted(range(max(0, middle - reach), min(len(tile), middle + reach)), key=lambda row: abs(row - middle))
    changes = [np.count_nonzero(np.abs(np.diff(tile[row])) > 1e-3) for row in rows]
    return rows[int(np.argmax(changes))]
