"""MAPPO on MaMuJoCo's divided robots, against the returns that HARL publishes for its MAPPO; an hour or two.

    python benchmarks/mamujoco.py out=benchmarks/bench_mamujoco.json

Ours trains in our vectorized worlds, in a run of its own that is continued where it was ended. Two measures: the return
while training, and that of the final policy without noise in Gymnasium-Robotics' own environment. Any setting of
robot-rl train changes the trainings; the curves are written next to the file, as SVG. ``--help`` lists the options.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import facts, run_bench, say
from plot import Plot, svg, ticks
from tensordict import TensorDict
from words import run_script

from robot_rl.cli.options import MAX_SEED, option
from robot_rl.errors import UserError, suggest
from robot_rl.files import write_atomic
from robot_rl.learn.policy import make_policy
from robot_rl.runs import training
from robot_rl.runs.outputs import CURVES, MARK, check_output
from robot_rl.runs.settings import change, default_tree, resolve
from robot_rl.view.chart import BLUE, FAINT, ORANGE

PUBLISHED: dict[str, float] = {"Ant-4x2": 5800.0, "HalfCheetah-2x3": 6800.0, "Walker2d-2x3": 5000.0}
"""Return of HARL's MAPPO after `PUBLISHED_STEPS`, read from the curves of arXiv 2304.09870."""
PUBLISHED_STEPS = 10_000_000
EPISODE = 1000
"""Steps of an episode."""
LAST = 100
"""Finished episodes over which the return while training is averaged."""
EVALUATED = 20
"""Episodes of the final policy."""
POINTS = 100
"""Points of a curve, about."""


@dataclass(kw_only=True, slots=True)
class Options:
    """Options of the script."""

    divisions: str = option("Ant-4x2,HalfCheetah-2x3", "robots and how they are divided, as in mamujoco:<division>")
    steps: int = option(0, "steps of the robot in each training; 0: as many as HARL's, 10 M", least=0)
    seed: int = option(1, "seed of training and evaluation", least=0, most=MAX_SEED)
    root: str = option("runs", "where runs are written; one that was ended is continued")
    out: str = option("", "file for the figures as JSON; the curves are next to it, as SVG")


def plan(name: str, changes: Mapping[str, Any], *, steps: int, seed: int) -> Any:
    """Return the settings of a training, a `robot_rl.runs.settings.TrainCfg`.

    Args:
        name: Of the divided robot, such as "Ant-4x2".
        changes: Settings of `robot-rl train` by dotted name.
        steps: Steps of the robot, rounded up to whole rollouts.
        seed: Of the training and of the evaluation.

    Raises:
        UserError: A setting is unknown or invalid, or Gymnasium-Robotics is not installed.
    """
    tree = default_tree(f"mamujoco:{name}", "cpu", str(changes.get("learner", "")))
    for key in changes:
        if "." not in key and key not in (*tree, "run_id"):
            raise UserError(f"unknown key '{key}': {suggest(key, (*Options.__dataclass_fields__, *tree))}")
    tree = change(tree, {"run_id": f"bench-{name}-{seed}", "seed": seed, **changes})
    rollout, least = int(tree["num_envs"]) * int(tree["num_steps"]), int(tree["num_envs"]) * EPISODE
    if steps < least:
        line = f"no episode of {tree['num_envs']} worlds would end; must be at least {least}"
        raise UserError(f"steps={steps}: {line}")
    return resolve(tree | {"max_iterations": -(-steps // rollout)})


def train(name: str, cfg: Any) -> dict[str, Any]:
    """Train on one division of a robot, or go on with its run, and evaluate the policy.

    Returns:
        "who", "task", "seed", "steps", "minutes" (of the training), "curve" ("steps" and "return" of the last `LAST`
        episodes), "return" (its end), "at_published" (the return after `PUBLISHED_STEPS`; None where it trained less),
        "reached" (first steps at which it is the published one; None), "evaluation" (returns), "run", "settings".
    """
    rollout = cfg.num_envs * cfg.learner.num_steps
    run_dir = training.train(cfg)
    rows = [json.loads(line) for line in (run_dir.path / "metrics.jsonl").read_text().splitlines()]
    curve = returns_of(rows, rollout)
    return {
        "who": "robot-rl",
        "task": cfg.task.name,
        "seed": cfg.seed,
        "steps": rollout * rows[-1]["iteration"],
        "minutes": round(rows[-1]["time_s"] / 60, 2),
        "return": curve["return"][-1],
        "at_published": _at(curve, PUBLISHED_STEPS),
        "reached": _first(curve, PUBLISHED.get(name)),
        "evaluation": evaluate(name, run_dir.path, cfg.task.obsk, cfg.seed),
        "curve": curve,
        "run": str(run_dir.path),
        "settings": {key: cfg.tree[key] for key in ("num_envs", "num_steps", "obsk", "actor", "critic", "ppo")},
    }


def returns_of(rows: list[dict[str, Any]], rollout: int) -> dict[str, list[float]]:
    """Return the mean return of the last `LAST` finished episodes over the steps, of the rows of metrics.jsonl."""
    last: deque[tuple[float, float]] = deque()
    steps, values = [], []
    every = max(1, len(rows) // POINTS)
    for row in rows:
        if row.get("episodes"):
            last.append((row["episodes"], row["episode/return"]))
        while len(last) > 1 and sum(count for count, _ in last) - last[0][0] >= LAST:
            last.popleft()
        if last and (row["iteration"] % every == 0 or row is rows[-1]):
            steps.append(rollout * row["iteration"])
            values.append(round(sum(count * value for count, value in last) / sum(count for count, _ in last), 1))
    return {"steps": steps, "return": values}


def _at(curve: Mapping[str, list[float]], steps: int) -> float | None:
    if not curve["steps"] or curve["steps"][-1] < steps:
        return None
    return round(float(np.interp(steps, curve["steps"], curve["return"])), 1)


def _first(curve: Mapping[str, list[float]], value: float | None) -> float | None:
    pairs = zip(curve["steps"], curve["return"], strict=True)
    return None if value is None else next((step for step, found in pairs if found >= value), None)


def evaluate(name: str, run: Path, obsk: int, seed: int) -> list[float]:
    """Return the returns of the final policy, without noise, in Gymnasium-Robotics' own environment."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from gymnasium_robotics import mamujoco_v1

        scenario, division = name.split("-")
        env: Any = mamujoco_v1.parallel_env(scenario, division, agent_obsk=obsk)
    policy, agents = make_policy(run, device="cpu"), env.possible_agents
    width = max(env.observation_space(agent).shape[0] for agent in agents)
    sizes = [env.action_space(agent).shape[0] for agent in agents]
    found = []
    with contextlib.closing(env):
        for episode in range(EVALUATED):
            obs, _ = env.reset(seed=10_000 + 1_000 * seed + episode)
            total = 0.0
            while obs:
                rows = torch.zeros(len(agents), width)
                for k, agent in enumerate(agents):
                    rows[k, : len(obs[agent])] = torch.as_tensor(obs[agent], dtype=torch.float32)
                with torch.no_grad():
                    act = policy(TensorDict({"actor": rows, "critic": rows}, batch_size=[len(agents)])).numpy()
                given = {agent: np.clip(act[k, : sizes[k]], -1.0, 1.0) for k, agent in enumerate(agents)}
                obs, rewards, terminated, truncated, _ = env.step(given)
                total += float(rewards[agents[0]])
                if any(terminated.values()) or any(truncated.values()):
                    break
            found.append(round(total, 1))
    return found


def bench_mamujoco(options: Options, changes: dict[str, Any]) -> dict[str, Any]:
    """Train on each division; return "name", "machine", "versions", "rows", "ratio", "notes" and "runs" (see `train`).

    Raises:
        UserError: No division, one that is named twice, or as `plan`.
    """
    names = [name for name in options.divisions.split(",") if name]
    if not names:
        raise UserError(f"divisions={options.divisions}: name at least one, such as Ant-4x2")
    if len(set(names)) < len(names):
        raise UserError(f"divisions={options.divisions}: one is named twice")
    curves = check_output("out", str(Path(options.out).with_suffix(".svg")), CURVES) if options.out else None
    changes, steps = {"root": options.root, **changes}, options.steps or PUBLISHED_STEPS
    plans = {name: plan(name, changes, steps=steps, seed=options.seed) for name in names}
    runs = []
    for name, cfg in plans.items():
        say(f"robot-rl: {name}, seed {options.seed}")
        runs.append(train(name, cfg))
    result = facts("mamujoco") | summarize(names, runs)
    if curves is not None:
        write_atomic(curves, draw(result))
    return result


def summarize(names: list[str], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of the trainings, the smallest ratio to HARL's return, notes and the trainings."""
    rows = []
    for name, run in zip(names, runs, strict=True):
        spread = statistics.stdev(run["evaluation"])
        mean = statistics.fmean(run["evaluation"])
        found = [("while training", run["return"], 0.0, LAST), ("evaluated", mean, spread, EVALUATED)]
        found += [("HARL's MAPPO", PUBLISHED[name], 0.0, 1)] if name in PUBLISHED else []
        keys = ("who", "value", "spread", "repeats", "unit")
        rows += [dict(zip(keys, (f"{name} {who}", *rest, "return"), strict=True)) for who, *rest in found]
    ratios = [run["at_published"] / PUBLISHED[n] for n, run in zip(names, runs, strict=True) if run["at_published"]]
    notes = {
        "while training": f"mean of the last {LAST} finished episodes, stochastic policy",
        "evaluated": f"{EVALUATED} episodes without noise in Gymnasium-Robotics' own environment",
        "HARL's MAPPO": f"after {PUBLISHED_STEPS / 1e6:g} M steps, arXiv 2304.09870, Ant-v2 and HalfCheetah-v2",
        "ratio": "ours while training over HARL's, both after as many steps; the smallest",
    }
    return {"rows": rows, "ratio": round(min(ratios), 3) if ratios else None, "notes": notes, "runs": runs}


def draw(result: Mapping[str, Any]) -> str:
    """Return the curves as an SVG: the return while training over steps, and HARL's after its 10 M."""
    plots = []
    for run in result["runs"]:
        name = run["task"].removeprefix("mamujoco:")
        published = PUBLISHED.get(name)
        marks = ticks(0.0, max(*run["curve"]["return"], published or 0.0))
        most = max(run["steps"], PUBLISHED_STEPS) / 1e6
        plot = Plot((420, 240), x=(0.0, most), y=(0.0, marks[-1]))
        plot.axes(ticks(0.0, most)[:-1], marks, "M steps", name)
        plot.line([step / 1e6 for step in run["curve"]["steps"]], run["curve"]["return"], BLUE)
        if published is not None:
            plot.line((0.0, most), (published, published), ORANGE, width=1, dash="4 3")
            plot.dots((PUBLISHED_STEPS / 1e6,), (published,), 4, ORANGE)
            plot.text(54, plot.y(published) - 5, "HARL's MAPPO after 10 M", fill=FAINT)
        plots.append(plot)
    plots[0].text(46, 230, MARK, fill=BLUE)
    return svg(plots)


def main(arguments: list[str]) -> None:
    """Measure, print the table, write the figures."""
    run_bench(arguments, Options, bench_mamujoco, every=True)


if __name__ == "__main__":
    run_script(main)
