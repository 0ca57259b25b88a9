"""The same policy in other simulators: engines, and models of its robot that others made."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.certify.certify import CertifyCfg
from robot_rl.certify.margins import Point
from robot_rl.certify.models import with_model
from robot_rl.certify.peaks import peak_lines
from robot_rl.certify.worlds import Episodes, Peaks, find_goal
from robot_rl.errors import UserError, suggest
from robot_rl.evaluation.policies import load_policy
from robot_rl.evaluation.rollout import evaluation_task, measure
from robot_rl.metrics.intervals import wilson
from robot_rl.sim2sim.cross.table import Cell, merge

EPISODES = 32
"""Episodes in each engine and model, with the task's randomization."""
ENGINES = ("mujoco", "mujoco_warp")


def check_engines(names: Sequence[str]) -> None:
    """Raise UserError if one is not an engine in this process."""
    for name in names:
        if name not in ENGINES:
            raise UserError("engines", name, suggest(name, ENGINES))


def run_suite(
    policy: Any, cfg: CertifyCfg, engines: Sequence[str], models: Sequence[Path], say: Callable[[str], None]
) -> dict[str, Any]:
    """Return "engines" and "models": name -> figures of a policy there, of which "holds" is by the task's own bounds.

    Args:
        policy: A `robot_rl.runs.policies.PolicySource`.
        cfg: The settings of the certificate.
        engines: Names of engines.
        models: MJCF files of the robot.
        say: Gets lines of progress.

    Raises:
        UserError: A model is of another robot, or cannot be read.
    """
    task, home = policy.cfg.task, policy.cfg.engine
    found = {name: _run(policy, task, name, cfg) for name in dict.fromkeys((home, *engines) if engines else ())}
    for name, (row, _) in found.items():
        say(f"engine {name}: success {row['success']:.3f}")
    result = {"engines": {name: row for name, (row, _) in found.items()}, "models": {}}
    if len(found) > 1:
        table = merge([cell for _, cell in found.values()])
        for (_, name), cell in table.cells.items():
            if losses := table.losses(cell):
                result["engines"][name]["losses"] = losses
    with tempfile.TemporaryDirectory(prefix="robot-rl-") as folder:
        for path in models:
            row, _ = _run(policy, with_model(task, path, Path(folder)), home, cfg)
            result["models"][path.name] = row
            say(f"model {path.name}: success {row['success']:.3f}")
    return result


def _run(policy: Any, task: Any, engine: str, cfg: CertifyCfg) -> tuple[dict[str, Any], Cell]:
    """Return the figures of a policy in fresh worlds, and the cell for the table of engines."""
    source = policy.cfg
    worlds = replace(source.worlds(num_envs=EPISODES, seed=cfg.seed), engine=engine, num_threads=1)
    with contextlib.closing(source.source.make_env(evaluation_task(task), worlds)) as env:
        peaks, goal = Peaks(env), find_goal(task, env)
        acting = load_policy(policy.find_bundle(), env)
        seconds = min(cfg.seconds, env.max_episode_length * env.step_dt)
        found = measure(env, acting, seconds=seconds, disturb=lambda _, step: peaks.add(step))
        metric = found[goal.name].numpy() if goal else np.full(EPISODES, np.nan)
        episodes = Episodes(success=found["failure_rate"].numpy() == 0.0, metric=metric, **peaks.values())
        lines = peak_lines(episodes, env)
    point = Point.of(0.0, 0.0, episodes)
    lo, hi = wilson(point.successes, point.episodes)
    row: dict[str, Any] = {"episodes": EPISODES, "success": point.success, "lo": round(lo, 5), "hi": round(hi, 5)}
    row["metric"] = float(f"{point.mean:.5g}") if goal else None
    row["holds"] = point.slack(cfg.success, goal) >= 0
    row["peaks"] = {line.pop("name"): _short(line) for line in lines}
    known = {"name": "return", "unit": "1", "better": "larger"} if goal is None else {}
    about = known or {"name": goal.name, "unit": goal.unit, "better": goal.better}  # pyright: ignore
    cell = Cell(
        policy=policy.name,
        task=task.name,
        trained_on=policy.cfg.engine,
        engine=engine,
        kind="onnx",
        episodes=EPISODES,
        seconds=seconds,
        metric=about["name"],
        unit=about["unit"],
        better=about["better"],
        mean=row["metric"],
        std=float(point.metric.std(ddof=1)) if len(point.metric) > 1 else None,
        failure_rate=1.0 - point.success,
        file="",
    )
    return row, cell


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in ("joint", "value", "unit", "limit", "share", "holds") if key in line}
