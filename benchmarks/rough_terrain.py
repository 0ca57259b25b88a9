"""How far a policy gets on rough ground in 20 minutes of training: its terrain level over time, and what it crosses.

    python benchmarks/rough_terrain.py out=benchmarks/rough_terrain.json tasks=go2_rough,go2_rough_blind minutes=20

Trains each task once with its CPU preset; iterations=N takes another number than the task's (its learning rate falls to
zero at the last one). The curve is what training logged: the mean level of all worlds, in which every world that
crosses the last row starts again in a row drawn at random, so that the mean stays below the number of rows for good.
Then the policy of the last checkpoint written within the time is tried on every row and kind of ground: 0.8 m/s ahead,
without observation noise, randomization and pushes on; a try counts as crossed where the robot gets 4 m away from where
it started (off its tile of 8 m) within 10 s and without a fall. A flat tile is as hard in every row.

out=FILE.json also writes FILE.svg: the curves, and the share crossed by kind and row.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import make_result, write
from plot import Plot, svg
from robot_rl_envs.make import make_env
from robot_rl_tasks.registry import get_task
from words import read_words, run_script

from robot_rl.evaluation.rollout import evaluation_task
from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg
from robot_rl.learn.checkpoints.checkpoint import load_checkpoint
from robot_rl.learn.make_trainer import make_trainer
from robot_rl.learn.policy import make_policy
from robot_rl.settings import apply_overrides

SPEED, AWAY, SECONDS, TRIES = 0.8, 4.0, 10.0, 12
"""Command [m/s], distance that counts as crossed [m], time for it [s], tries for every tile of a kind and row."""
TONES = ("#1769aa", "#c2571a")
KNOWN = {"tasks": "go2_rough,go2_rough_blind", "minutes": "20", "iterations": "", "seed": "1", "keep": "", "out": ""}


def train(name: str, directory: Path, settings: dict[str, Any], seed: int) -> None:
    """Train once, with a checkpoint every 20 iterations."""
    task = get_task(name)
    cfg = apply_overrides(
        PPOLearnerCfg(), {**task.learner, **task.learner_cpu, "save_interval": 20, "keep_checkpoints": 0, **settings}
    )
    env = make_env(task, num_envs=task.num_envs[0], seed=seed)
    make_trainer(env, cfg, run_dir=directory, seed=seed).train()
    env.close()


def curve(directory: Path) -> list[dict[str, float]]:
    """Return the rows that training logged, one per iteration."""
    keys = {"iteration": "iteration", "time_s": "time_s", "env_steps": "env_steps"}
    keys |= {"terrain_level": "tracking/terrain_level", "lin_vel_error": "tracking/lin_vel_error"}
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{short: row[name] for short, name in keys.items()} for row in rows]


def checkpoint_at(directory: Path, seconds: float) -> Path:
    """The last checkpoint written within so much training time."""
    known = [(load_checkpoint(path)[1]["time_s"], path) for path in (directory / "checkpoints").iterdir()]
    return max(item for item in known if item[0] <= seconds)[1]


def crossed(name: str, policy: Any, seed: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Share of tries that crossed a tile, and share that fell, for every kind of ground, row by row."""
    task = evaluation_task(get_task(name))
    task.curricula = {}
    terrain = task.terrain
    count = terrain.num_rows * terrain.num_columns * TRIES
    env = make_env(task, num_envs=count, seed=seed)
    worlds = torch.arange(count)
    env.state.terrain_level.copy_(worlds // TRIES % terrain.num_rows)
    env.state.terrain_column.copy_(worlds // TRIES // terrain.num_rows)
    env.set_command((SPEED, 0.0, 0.0))
    obs = env.reset()
    away, fell, running = (torch.zeros(count, dtype=torch.bool) for _ in range(3))
    running |= True
    for _ in range(round(SECONDS / env.step_dt)):
        obs, _, done, extras = env.step(policy(obs))
        done = done.bool()
        policy.reset(done)
        path = (env.state.base_pos_w - env.state.env_origin_w)[:, :2].norm(dim=1)
        away |= running & ~done & (path >= AWAY)
        running &= ~away
        fell |= running & done & ~extras["time_outs"].bool()
        running &= ~done
    kinds = env.scene.terrain.kinds
    env.close()
    shares: list[dict[str, list[float]]] = []
    for hits in (away, fell):
        grid = hits.float().reshape(terrain.num_columns, terrain.num_rows, TRIES).mean(dim=2)
        by_kind = {kind: [k for k, own in enumerate(kinds) if own == kind] for kind in dict.fromkeys(kinds)}
        shares.append({kind: [round(v, 3) for v in grid[ks].mean(dim=0).tolist()] for kind, ks in by_kind.items()})
    return shares[0], shares[1]


def main(arguments: list[str]) -> None:
    """Train, try, write the JSON and the plot."""
    options = read_words(arguments, KNOWN, whole=("minutes", "seed"))
    minutes, seed = float(options["minutes"]), int(options["seed"])
    settings = {"max_iterations": int(options["iterations"])} if options["iterations"] else {}
    notes: dict[str, Any] = {"minutes": minutes, "seed": seed, "command_m_s": SPEED, "distance_m": AWAY, "tasks": {}}
    values: dict[str, list[float]] = {}
    for name in options["tasks"].split(","):
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(options["keep"] or scratch) / name
            if not (directory / "metrics.jsonl").exists():
                train(name, directory, settings, seed)
            rows = [row for row in curve(directory) if row["time_s"] <= 60 * minutes]
            path = checkpoint_at(directory, 60 * minutes)
            away, fell = crossed(name, make_policy(directory, path), 10_000 + seed)
        notes["tasks"][name] = {
            "num_envs": get_task(name).num_envs[0],
            "level": rows[-1]["terrain_level"],
            "iterations": int(rows[-1]["iteration"]),
            "time_s": rows[-1]["time_s"],
            "env_steps": rows[-1]["env_steps"],
            "crossed": away,
            "fell": fell,
            "curve": rows[:: max(len(rows) // 200, 1)],
        }
        values[name] = [rows[-1]["terrain_level"]]
        print(
            name, {key: notes["tasks"][name][key] for key in ("level", "iterations", "time_s", "crossed")}, flush=True
        )
    if options["out"]:
        write(options["out"], make_result("level reached on rough ground", values, unit="terrain level", notes=notes))
        Path(options["out"]).with_suffix(".svg").write_text(plot(notes))


def plot(notes: dict[str, Any]) -> str:
    """The curves of all tasks and, for each, the share crossed by kind and row, as SVG."""
    curves = {name: task["curve"] for name, task in notes["tasks"].items()}
    span = max(row["time_s"] for rows in curves.values() for row in rows) / 60
    high = math.ceil(max(row["terrain_level"] for rows in curves.values() for row in rows) + 0.5)
    height = 340 + 24 * max(len(task["crossed"]) for task in notes["tasks"].values())
    plot = Plot((900, height), x=(0.0, span), y=(0.0, high), left=60, right=20, top=40, bottom=height - 260)
    title = "Mean terrain level of all worlds over training time"
    plot.axes(range(0, math.floor(span) + 1, 5), range(high + 1), "min", title)
    for k, (name, task) in enumerate(notes["tasks"].items()):
        tone, left, top = TONES[k % 2], 60 + 430 * k, 300
        rows = task["curve"]
        plot.line([row["time_s"] / 60 for row in rows], [row["terrain_level"] for row in rows], tone)
        plot.text(80 + 220 * k, 54, f"{name}: level {task['level']:.2f}", fill=tone)
        plot.text(left, top + 14, f"{name}: share crossed, by row", fill=tone)
        for r, (kind, shares) in enumerate(task["crossed"].items()):
            y = top + 28 + 24 * r
            plot.text(left + 100, y + 16, kind, "end")
            for c, share in enumerate(shares):
                green = f"rgb({255 - int(170 * share)},{235 - int(60 * share)},{220 - int(120 * share)})"
                x = left + 108 + 29 * c
                plot.parts.append(f'<rect x="{x}" y="{y}" width="28" height="22" fill="{green}"/>')
                plot.text(x + 14, y + 15, f"{share:.2f}", "middle", font_size=10)
    return svg([plot])


if __name__ == "__main__":
    run_script(main)
