"""Terrains that are ready to use: one for each kind of ground, and the mixture that a robot learns to walk on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robot_rl_envs.terrain.cfg import TerrainCfg
from robot_rl_envs.terrain.tiles import Flat, Gaps, Obstacles, RandomRough, Slope, Stairs, SteppingStones, Tile, Waves


def rough_terrains() -> TerrainCfg:
    """The mixture for blind or seeing locomotion: stairs, slopes, uneven ground and obstacles, 10 levels."""
    return TerrainCfg(
        tiles={
            "flat": Flat(proportion=0.05),
            "random_rough": RandomRough(proportion=0.2),
            "slope_up": Slope(up=True, proportion=0.1),
            "slope_down": Slope(up=False, proportion=0.1),
            "stairs_up": Stairs(up=True, proportion=0.2),
            "stairs_down": Stairs(up=False, proportion=0.15),
            "waves": Waves(proportion=0.1),
            "obstacles": Obstacles(proportion=0.1),
        },
        num_rows=10,
        num_columns=20,
    )


def _one_kind(name: str, kind: Callable[..., Tile], **fields: Any) -> Callable[[], TerrainCfg]:
    """Return a function that makes a terrain of one kind: five levels, two columns with different random draws."""
    return lambda: TerrainCfg(tiles={name: kind(**fields)}, num_rows=5, num_columns=2, border=5.0)


def _both(name: str, kind: Callable[..., Tile]) -> Callable[[], TerrainCfg]:
    """Return a function that makes a terrain of a kind that leads up in one column and down in the other."""

    def make() -> TerrainCfg:
        tiles = {f"{name}_up": kind(up=True), f"{name}_down": kind(up=False)}
        return TerrainCfg(tiles=tiles, num_rows=5, num_columns=2, border=5.0)

    return make


PRESETS: dict[str, tuple[str, Callable[[], TerrainCfg]]] = {
    "flat": ("level ground", _one_kind("flat", Flat)),
    "random_rough": ("uneven everywhere, up to 8 cm", _one_kind("random_rough", RandomRough)),
    "slope_up": ("uphill from the platform, up to 22 degrees", _one_kind("slope_up", Slope, up=True)),
    "slope_down": ("downhill from the platform, up to 22 degrees", _one_kind("slope_down", Slope, up=False)),
    "slopes": ("uphill and downhill", _both("slope", Slope)),
    "stairs_up": ("upstairs from the platform, steps of 3 to 18 cm", _one_kind("stairs_up", Stairs, up=True)),
    "stairs_down": ("downstairs from the platform, steps of 3 to 18 cm", _one_kind("stairs_down", Stairs, up=False)),
    "stairs": ("upstairs and downstairs", _both("stairs", Stairs)),
    "stepping_stones": (
        "stones of 80 to 30 cm, 10 to 30 cm apart over a pit",
        _one_kind("stepping_stones", SteppingStones),
    ),
    "gaps": ("trenches of 10 to 50 cm around the platform", _one_kind("gaps", Gaps)),
    "waves": ("hills and hollows, up to 25 cm", _one_kind("waves", Waves)),
    "obstacles": ("blocks of up to 25 cm", _one_kind("obstacles", Obstacles)),
    "rough": ("the mixture that robots learn to walk on", rough_terrains),
}
"""Name -> what it is in a line, and what makes its cfg, anew each time."""
