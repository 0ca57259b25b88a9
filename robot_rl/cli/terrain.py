"""Draw a terrain, from above and in perspective, and list its parts.

usage: robot-rl terrain NAME [key=value ...]      robot-rl terrain list

{Options}

Any setting of the terrain can be set by name, such as terrain.tiles.stairs_up.step_height=[0.05,0.2],
terrain.num_columns=4 or terrain.resolution=0.05.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.cli.options import MAX_SEED, option, read
from robot_rl.cli.table import two_columns
from robot_rl.errors import UserError, as_user_error, suggest
from robot_rl.runs.outputs import IMAGE, check_output, save_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from robot_rl_envs.terrain import Terrain, TerrainCfg

MAX_WIDTH = 8192


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of robot-rl terrain."""

    name: str = option("", "a kind of ground such as stairs, the mixture rough, a task with a terrain, or list")
    seed: int | None = option(None, "seed of its random parts; the terrain's own by default", least=0, most=MAX_SEED)
    rows: int | None = option(None, "levels of difficulty; the terrain's own by default", least=1)
    form: str = option("", "hfield or boxes; the terrain's own by default")
    level: int | None = option(None, "row to look at; about the last but one by default", least=0)
    column: int | None = option(None, "column to look at; the first of two, or in the middle, by default", least=0)
    distance: float = option(0.0, "from there to the camera [m]; 1.2 tiles or more by default", least=0, most=1000)
    robot: str = option("unitree_go2", "robot that is drawn for scale, or none")
    spawns: bool = option(True, "mark where robots start")
    size: int = option(1400, "width of the image [px]; the height is half of it", least=200, most=MAX_WIDTH)
    out: str = option("", "the .png; a temporary file by default")


@dataclass(kw_only=True, slots=True)
class _Ground:
    """A holder of a terrain's settings, as a task is one."""

    terrain: Any


def run(arguments: Sequence[str]) -> int:
    """Write the image and print facts about the terrain."""
    options, changes = read(Options, arguments, first="name")
    from robot_rl_envs.terrain import PRESETS, build_terrain

    if options.name in ("", "list"):
        print("\n".join(kind_lines()))
        return 0
    cfg = find_terrain(options, changes)
    out = check_output("out", options.out, IMAGE, makes_folder=False) if options.out else None
    with as_user_error():
        terrain = build_terrain(cfg, _robot(options))
    level = _place("level", options.level, cfg.num_rows, round(0.75 * (cfg.num_rows - 1)))
    column = _place("column", options.column, cfg.num_columns, 0 if cfg.num_columns < 3 else cfg.num_columns // 2)
    text = PRESETS[options.name][0] if options.name in PRESETS else "the ground of a task"
    print(f"{options.name}: {text}")
    print("\n".join(facts(terrain)))
    image = _draw(terrain, options, level, column)
    out = out or Path(tempfile.mkdtemp(prefix="robot-rl-"), f"terrain_{options.name}.png")
    save_image(image, out)
    print(out)
    return 0


def kind_lines() -> list[str]:
    """Return a line for each named terrain and for each task that has one."""
    from robot_rl_envs.terrain import PRESETS
    from robot_rl_tasks import registry

    from robot_rl.sources.native import find_task

    lines = ["terrains:", two_columns([(name, text) for name, (text, _) in PRESETS.items()])]
    tasks = []
    for name in registry.list_tasks():
        with contextlib.suppress(UserError):  # A plug-in that cannot be used; `robot-rl list` says why.
            tasks += [name] if find_task(name).terrain is not None else []
    return [*lines, *(["tasks with a terrain:", *(f"  {name}" for name in tasks)] if tasks else [])]


def find_terrain(options: Options, changes: Mapping[str, Any]) -> "TerrainCfg":
    """Return the terrain that the options name, with settings changed by dotted name."""
    from robot_rl_envs.terrain import PRESETS
    from robot_rl_tasks import registry

    from robot_rl.settings import tree as trees
    from robot_rl.sources.native import find_task

    name = options.name
    if name in PRESETS:
        ground = _Ground(terrain=PRESETS[name][1]())
    elif name in registry.list_tasks() or ":" in name:
        ground = _Ground(terrain=find_task(name).terrain)
        if ground.terrain is None:
            raise UserError(
                "name", name, "this task's ground is an endless plane", "robot-rl terrain list shows others"
            )
    else:
        known = [*PRESETS, *registry.list_tasks()]
        raise UserError("name", name, "no terrain or task of this name", suggest(name, known))
    short = {"terrain.seed": options.seed, "terrain.num_rows": options.rows, "terrain.form": options.form}
    given = {key: value for key, value in short.items() if value not in (None, "")}
    for key, value in given.items():
        if key in changes:
            raise UserError(key, changes[key], f"is given twice, the other time as {value}", "leave one of them out")
    tree = trees.override(trees.task_tree(ground), {**changes, **given}, trees.named_parts(ground))
    return trees.apply_tree(ground, tree).terrain


def _place(name: str, value: int | None, count: int, default: int) -> int:
    if value is not None and value >= count:
        raise UserError(name, value, f"must be in [0, {count - 1}]")
    return default if value is None else value


def _robot(options: Options) -> Any:
    from robot_rl_assets.registry import get_robot

    if options.robot in ("", "none"):
        return None
    with as_user_error():
        return get_robot(options.robot)


def facts(terrain: "Terrain") -> list[str]:
    """Return facts about a terrain, one a line."""
    cfg = terrain.cfg
    rows = []
    for name in dict.fromkeys(terrain.kinds):
        tile, columns = cfg.tiles[name], terrain.kinds.count(name)
        own = ", ".join(_number(field.name, getattr(tile, field.name)) for field in dataclasses.fields(tile))
        rows.append((name, f"{columns} column{'s' * (columns != 1)}: {own}"))
    lines = [two_columns(rows)]
    order = "rising by row" if cfg.curriculum else "drawn at random"
    low, high = float(terrain.difficulty.min()), float(terrain.difficulty.max())
    lines.append(
        f"  {cfg.num_rows} rows x {cfg.num_columns} columns of {cfg.tile_size:g} m, difficulty {low:.3g} to "
        f"{high:.3g} {order}, seed {cfg.seed}"
    )
    ny, nx = terrain.heights.shape
    what = "height field" if terrain.boxes is None else f"{len(terrain.boxes)} boxes, from a map"
    lines.append(
        f"  {what} of {nx} x {ny} cells of {cfg.resolution:g} m, {nx * cfg.resolution:.4g} x "
        f"{ny * cfg.resolution:.4g} m, border {cfg.border:g} m"
    )
    bottom, top = float(terrain.heights.min()), float(terrain.heights.max())
    lines.append(
        f"  heights {bottom:.2f} to {top:.2f} m, {100 * terrain.steep_share:.1f} % of the cells steeper than 45 "
        f"degrees, {terrain.origins.shape[0] * terrain.origins.shape[1]} spawn points"
    )
    return lines


def _number(name: str, value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{name} {value[0]:g} to {value[1]:g}"
    return f"{name} {str(value).lower() if isinstance(value, bool) else f'{value:g}'}"


def _draw(terrain: "Terrain", options: Options, level: int, column: int) -> "Image":
    from robot_rl_envs.render import NoGLError

    from robot_rl.view.viewer.ground import GroundView, draw_ground

    tiles = 1.2 if len(set(terrain.kinds)) < 3 else 3.2
    view = GroundView(
        title=options.name.replace("_", " "),
        width=options.size,
        spawns=options.spawns,
        level=level,
        column=column,
        distance=options.distance or tiles * terrain.cfg.tile_size,
    )
    try:
        return draw_ground(terrain, _robot(options), view)
    except NoGLError as error:
        raise UserError(f"terrain: {error}") from None
