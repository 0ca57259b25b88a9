"""Uneven ground: kinds of tiles, one height map of them, and its height under a point inside a kernel."""

from robot_rl_envs.terrain.build import Terrain, build_terrain
from robot_rl_envs.terrain.cfg import PRESETS, TerrainCfg, rough_terrains
from robot_rl_envs.terrain.geoms import add_ground
from robot_rl_envs.terrain.tiles import Flat, Gaps, Obstacles, RandomRough, Slope, Stairs, SteppingStones, Tile, Waves

__all__ = [
    "PRESETS",
    "Flat",
    "Gaps",
    "Obstacles",
    "RandomRough",
    "Slope",
    "Stairs",
    "SteppingStones",
    "Terrain",
    "TerrainCfg",
    "Tile",
    "Waves",
    "add_ground",
    "build_terrain",
    "rough_terrains",
]
