"""Cost of the ground in the physics by its kind and its form: the table of docs/terrain.md.

    python benchmarks/terrain_cost.py num_envs=256 rounds=7 out=benchmarks/terrain_cost.json

Each ground holds a Go2 in every world, put down up to 3 m from the middle of a tile. Bare `mujoco.batch.Batch` steps
them (3 substeps a control step, random joint targets of +- 0.25 rad around the default pose) from the states that the
environment reached after half a second. The grounds take turns, block after block, and each block is compared with the
endless plane's of the same round, so that a busy machine slows them all alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from harness import in_turn, make_result, median_ratio, seconds, write
from robot_rl_envs.make import make_env
from robot_rl_envs.mdp import events
from robot_rl_envs.task import Event
from robot_rl_envs.terrain import (
    Flat,
    Gaps,
    Obstacles,
    RandomRough,
    Slope,
    Stairs,
    SteppingStones,
    TerrainCfg,
    Tile,
    Waves,
    rough_terrains,
)
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.performance.env import BareBatch

BLOCK_STEPS, SETTLE_STEPS, TARGET_RAD = 20, 25, 0.25
KNOWN = {"num_envs": "256", "rounds": "7", "out": ""}


def _one(kind: Tile, **changes: Any) -> TerrainCfg:
    return TerrainCfg(tiles={"tile": kind}, **({"num_rows": 5, "num_columns": 2, "border": 5.0} | changes))


def grounds() -> dict[str, TerrainCfg | None]:
    """The grounds by the names of the table; None is the infinite plane."""
    stairs = {"stairs_up": Stairs(up=True), "stairs_down": Stairs(up=False)}
    return {
        "endless plane": None,
        "flat, height field": _one(Flat()),
        "flat, 1 box": _one(Flat(), form="boxes"),
        "random rough, height field": _one(RandomRough()),
        "slope, height field": _one(Slope()),
        "stairs, height field": _one(Stairs()),
        "stairs, height field of 5 cm cells": _one(Stairs(), resolution=0.05),
        "stairs, boxes": _one(Stairs(), form="boxes"),
        "gaps, height field": _one(Gaps()),
        "gaps, boxes": _one(Gaps(), form="boxes"),
        "obstacles, height field": _one(Obstacles()),
        "obstacles, boxes": _one(Obstacles(), form="boxes"),
        "stepping stones, height field": _one(SteppingStones()),
        "stepping stones, boxes": _one(SteppingStones(), form="boxes"),
        "waves, height field": _one(Waves()),
        "`rough`, 200 tiles, height field": rough_terrains(),
        "stairs, 200 tiles, boxes": TerrainCfg(tiles=stairs, form="boxes"),
    }


def start(ground: TerrainCfg | None, num_envs: int) -> tuple[BareBatch, np.ndarray, int]:
    """A bare batch on a ground, states to start from, and the ground's geoms."""
    task = get_task("go2_flat" if ground is None else "go2_rough_blind")
    spread = {"base": Event(events.reset_base, xy=3.0, yaw=3.14, velocity=0.2)}
    task = dataclasses.replace(task, terrain=ground, curricula={}, events=spread)
    env = make_env(task, num_envs=num_envs, engine="mujoco")
    for _ in range(SETTLE_STEPS):
        env.step(torch.zeros(num_envs, env.num_actions))
    state, geoms = env.engine.get_state(), int((env.scene.model.geom_bodyid == 0).sum())
    bare = BareBatch(env)
    env.close()
    return bare, state, geoms


def main(arguments: list[str]) -> None:
    """Measure in turns, print the table, write the JSON."""
    options = read_words(arguments, KNOWN, whole=("num_envs", "rounds"))
    num_envs, rounds = int(options["num_envs"]), int(options["rounds"])
    built = {name: start(ground, num_envs) for name, ground in grounds().items()}
    draw = np.random.default_rng(0)

    def block(bare: BareBatch, state: np.ndarray) -> float:
        actions = draw.uniform(-1.0, 1.0, (BLOCK_STEPS, num_envs, bare.scale.shape[0]))
        run = bare.make_block(state, torch.from_numpy(TARGET_RAD / bare.scale * actions))
        return num_envs * BLOCK_STEPS / seconds(run)

    values = in_turn(built, lambda: (block(bare, state) for bare, state, _ in built.values()), rounds)
    plane = values["endless plane"]
    print("| ground | geoms | control steps/s | of the plane |\n|---|---|---|---|")
    for name, row in values.items():
        print(f"| {name} | {built[name][2]:,} | {np.median(row):,.0f} | {median_ratio(row, plane):.2f} |")
    notes = {"num_envs": num_envs, "block_steps": BLOCK_STEPS, "geoms": {k: v[2] for k, v in built.items()}}
    write(options["out"], make_result("physics by ground", values, unit="control steps/s", notes=notes))


if __name__ == "__main__":
    run_script(main)
