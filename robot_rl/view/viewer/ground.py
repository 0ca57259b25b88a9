"""An image of a terrain: its shaded map from above, and a view of it with a robot for scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from robot_rl_assets.robot import Robot
    from robot_rl_envs.terrain import Terrain

INK, FAINT, BACK, SPAWN = (20, 24, 28), (92, 102, 112), (250, 251, 252), (26, 115, 230)
MAP_SHARE = 0.42
"""Width of the map, as a share of the image's."""
EDGE_M = 1.0
"""Width of the border on the map [m]."""


@dataclass(kw_only=True, slots=True)
class GroundView:
    """Settings of the image.

    Attributes:
        title: above the map.
        width: of the image [px], twice its height.
        spawns: mark the spawn points.
        level, column: of the tile in the center of the view.
        elevation, azimuth: of the line of sight [deg]; azimuth 0 looks along +x.
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
    """Return a `PIL.Image.Image` of a terrain, with the robot if there is one on the tile in the center of the view.

    Raises:
        NoGLError: OpenGL is not available.
    """
    from PIL import Image

    height = view.width // 2
    left = round(MAP_SHARE * view.width)
    image = Image.new("RGB", (view.width, height), BACK)
    image.paste(Image.fromarray(_perspective(terrain, robot, view, (view.width - left, height))), (left, 0))
    _draw_map(image, terrain, view, left)
    return image


def shaded_map(terrain: Terrain) -> np.ndarray:
    """Return the map (rows, columns, 3) uint8 of the tiles and a meter of border, one pixel per point.

    x points to the right and y up; the light comes from the upper left.
    """
    from robot_rl_envs.terrain.geoms import color, shade

    trim = max(0, terrain.cfg.border_cells - round(EDGE_M / terrain.resolution))
    ny, nx = terrain.heights.shape
    ground = terrain.heights[trim : ny - trim, trim : nx - trim]
    rgb = color(ground) * shade(ground, terrain.resolution)[..., None]
    return np.clip(rgb, 0, 255).astype(np.uint8)[::-1]


def _perspective(terrain: Terrain, robot: Robot | None, view: GroundView, size: tuple[int, int]) -> np.ndarray:
    from robot_rl_envs.render import Arrow, CameraCfg, Renderer

    origin = terrain.origins[view.level, view.column].astype(np.float64)
    model, qpos = _model(terrain, robot, origin)
    distance = view.distance or 1.2 * terrain.cfg.tile_size
    camera = CameraCfg(distance=distance, azimuth=view.azimuth, elevation=view.elevation, follow=0.0)
    pins = [Arrow(start=o, vector=np.array([0.0, 0.0, 0.7])) for o in terrain.origins.reshape(-1, 3)]
    # A pin in the robot's back would hide the robot.
    pins = [pin for pin in pins if robot is None or np.linalg.norm(pin.start - origin) > 0.5] if view.spawns else []
    with Renderer(model, *size, camera) as renderer:
        renderer.look_at(origin)
        return renderer.frame(qpos, arrows=pins)


def _model(terrain: Terrain, robot: Robot | None, origin: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the model of the scene, and the positions of the robot standing at `origin` in it."""
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


def _draw_map(image: Any, terrain: Terrain, view: GroundView, width: int) -> None:
    """Draw the map, with the rows' difficulty along x and the columns' kinds along y."""
    from PIL import Image, ImageDraw, ImageFont

    draw = ImageDraw.Draw(image)
    unit = image.height / 100
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
    image.paste(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS), (x, y))
    cell = scale / terrain.resolution
    ny, nx = pixels.shape[:2]

    def place(point: np.ndarray) -> tuple[float, float]:
        """Return the pixel of a point of the world."""
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
    if image.height - below > 30 * unit:
        _draw_section(
            draw, terrain, view, (4 * unit, below + 10 * unit, width - 4 * unit, image.height - 4 * unit), small
        )


def _draw_scale(draw: Any, terrain: Terrain, place: tuple[float, float, float], font: Any) -> None:
    """Draw a bar of one tile below the map, and the range of difficulty; `place` is x, y and pixels per meter."""
    x, y, meter = place
    tile = terrain.cfg.tile_size
    draw.line((x, y, x + tile * meter, y), fill=INK, width=2)
    draw.line((x, y - 3, x, y + 3), fill=INK, width=2)
    draw.line((x + tile * meter, y - 3, x + tile * meter, y + 3), fill=INK, width=2)
    low, high = float(terrain.difficulty.min()), float(terrain.difficulty.max())
    way = "rising to the right" if terrain.cfg.curriculum else "drawn at random"
    text = f"{tile:g} m; difficulty {low:.2g} to {high:.2g}, {way}"
    draw.text((x, y + 5), text, fill=FAINT, font=font)


def _draw_section(
    draw: Any, terrain: Terrain, view: GroundView, box: tuple[float, float, float, float], font: Any
) -> None:
    """Draw the section of the ground along x near the spawn point, to scale; `box` is left, top, right, bottom [px]."""
    left, top, right, bottom = box
    cells, edge = terrain.cfg.cells, terrain.cfg.border_cells
    first, start = edge + view.column * cells, edge + view.level * cells
    tile = terrain.heights[first : first + cells, start : start + cells]
    ground = tile[_section_row(tile, terrain.resolution)]
    along = np.arange(cells) * terrain.resolution
    if terrain.stepped:
        along, ground = np.repeat(along, 2) + np.tile([-0.5, 0.5], cells) * terrain.resolution, np.repeat(ground, 2)
    line = float(font.getbbox("8")[3]) + 4
    low, high = min(float(ground.min()), 0.0), max(float(ground.max()), 0.0)
    meter = min((right - left) / terrain.cfg.tile_size, (bottom - top - 2 * line) / max(high - low, 0.5))
    base = top + line + high * meter
    points = [(left + (a - along[0]) * meter, base - h * meter) for a, h in zip(along, ground, strict=True)]
    floor = base - low * meter + line
    draw.polygon([(points[0][0], floor), *points, (points[-1][0], floor)], fill=(214, 219, 224))
    draw.line(points, fill=INK, width=2)
    text = f"section of row {view.level}, difficulty {terrain.difficulty[view.level, view.column]:.2g}, to scale"
    draw.text((left, top - line), text, fill=FAINT, font=font)


def _section_row(tile: np.ndarray, resolution: float) -> int:
    """Return the row, within a meter of a tile's middle, in which the ground changes most often."""
    middle, reach = len(tile) // 2, round(1.0 / resolution)
    rows = sorted(range(max(0, middle - reach), min(len(tile), middle + reach)), key=lambda row: abs(row - middle))
    changes = [np.count_nonzero(np.abs(np.diff(tile[row])) > 1e-3) for row in rows]
    return rows[int(np.argmax(changes))]
