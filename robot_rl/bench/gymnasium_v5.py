"""``robot-rl bench gymnasium``: ours in Gymnasium's environments, beside the rivals that were run once.

Ours trains in many worlds on our own engine, the rivals in one of Gymnasium's. Two measures are the same for all: the
return while training (:class:`robot_rl.bench.rivals.episodes.EpisodeLog`), and the final deterministic policy in
Gymnasium's own environment (:func:`robot_rl.bench.rivals.episodes.evaluate`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.bench.gymnasium_rivals import RIVALS, ROOT, read_runs
from robot_rl.bench.rivals.episodes import EpisodeLog, evaluate
from robot_rl.errors import UserError
from robot_rl.machine import git_state, machine_facts, package_versions

if TYPE_CHECKING:
    from robot_rl_envs.env import Env

    from robot_rl.learn.algorithms.ppo.config import PPOLearnerCfg

TASKS = {
    "HalfCheetah-v5": "half_cheetah_v5",
    "Walker2d-v5": "walker2d_v5",
    "Hopper-v5": "hopper_v5",
    "Ant-v5": "ant_v5",
    "Humanoid-v5": "humanoid_v5",
}
COMMITTED = ROOT / "benchmarks" / "gymnasium_rivals.json"
SPEEDS = "gymnasium_rivals_speed.json"
"""Beside the rivals' file: shorter trainings of theirs, alone on the machine, for the wall-clock."""
TIME_SHARE = 0.35
"""Share of the better rival's wall-clock that ours may take."""


def train_ours(
    make_env: Callable[[], Env],
    cfg: PPOLearnerCfg,
    env_id: str,
    *,
    seed: int,
    steps: int,
    say: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Train ours once and evaluate the policy in Gymnasium's environment.

    Args:
        make_env: builds our environment, with the same seed.
        cfg: the learner's configuration; its number of iterations is replaced by what ``steps`` allow.
        env_id: Gymnasium's name of the environment.
        seed: of everything.
        steps: control steps over all worlds, rounded down to whole rollouts.
        say: takes the points of the curve.

    Returns:
        The training in the form of the file of rivals.

    Raises:
        UserError: fewer steps than one rollout.
    """
    from robot_rl.learn.make import make_runner

    env = make_env()
    rollout = env.num_envs * cfg.num_steps
    if steps < rollout:
        raise UserError(f"steps={steps}: must be at least one rollout, {rollout} steps ({env.num_envs} worlds)")
    log = EpisodeLog(steps, rollout, say)
    count_episodes(env, log)
    runner = make_runner(env, cfg, seed=seed)
    log.begin()
    runner.learn(log.steps // rollout)
    result = log.finish()
    returns = evaluate(env_id, make_act(runner.actor), seed=seed)
    curve = result.pop("curve")
    where = {"load": "alone", "machine": machine_facts(), "versions": package_versions(), "git": git_state()}
    found = {"num_envs": env.num_envs, "threads": torch.get_num_threads(), "evaluation": returns}
    env.close()
    return {"env": env_id, "rival": "ours", "seed": seed, "who": "robot-rl", **result, **found, **where, "curve": curve}


def count_episodes(env: Env, log: EpisodeLog) -> None:
    """Make an environment tell a log of every step and of every finished episode.

    An episode that the training cut short of the time limit at its start (so that worlds do not run out in step) is
    left out, and so is one whose world broke.
    """
    step = env.step
    totals, lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
    done_steps = 0

    def counted(actions: torch.Tensor) -> Any:
        nonlocal done_steps
        result = step(actions)
        _, reward, done, extras = result
        totals[:] += reward.numpy(force=True).reshape(-1)
        lengths[:] += 1
        done_steps += env.num_envs
        ended = done.numpy(force=True).reshape(-1).astype(bool)
        if ended.any():
            whole = np.ones_like(ended)
            if "time_outs" in extras:
                out_of_time = extras["time_outs"].numpy(force=True).reshape(-1).astype(bool)
                whole &= ~(out_of_time & (lengths < env.max_episode_length))
            if "valid" in extras:
                whole &= extras["valid"].numpy(force=True).reshape(-1).astype(bool)
            for i in np.flatnonzero(ended & whole):
                log.add(totals[i], lengths[i])
            totals[ended], lengths[ended] = 0.0, 0
        log.tick(done_steps)
        return result

    env.step = counted  # type: ignore[method-assign]


def make_act(actor: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a trained actor's action without noise (A,) at an observation (D,) of Gymnasium's."""
    actor.eval()
    device = next(actor.parameters()).device

    @torch.no_grad()
    def act(obs: np.ndarray) -> np.ndarray:
        return actor.mean(torch.as_tensor(obs, dtype=torch.float32, device=device)[None])[0].numpy(force=True)

    return act


def read_whole_runs(path: Path) -> list[dict[str, Any]]:
    """Return the trainings in a file, each with the figures that the table and the curves are made of.

    Raises:
        UserError: the file is damaged.
    """
    runs = read_runs(path)
    for run in runs:
        job = f"{run['env']}:{run['rival']}:{run['seed']}"
        try:
            columns = [run["curve"][key] for key in ("steps", "seconds", "return")]
            returns = [value for value in (run["return"], *columns[2]) if value is not None]
            numbers = [run["steps"], run["train_s"], *run["evaluation"], *columns[0], *columns[1], *returns]
            whole = all(map(math.isfinite, numbers)) and len(set(map(len, columns))) == 1
            whole = whole and bool(columns[0] and run["evaluation"] and run["load"] and run["machine"]["cpu"])
            whole = whole and run["steps"] > 0 and run["train_s"] > 0
        except (KeyError, TypeError) as error:
            raise UserError(f"{path}: damaged ({job}: {error}); remove it, or take it from git") from None
        if not whole:
            raise UserError(f"{path}: damaged ({job}: figures are missing); remove it, or take it from git")
    return runs


def summary(runs: Sequence[dict[str, Any]], speeds: Sequence[dict[str, Any]] = ()) -> dict[str, Any] | None:
    """Return means and spreads (standard deviations) over the seeds of one contestant; None without a run.

    The wall-clock is the median of the runs that were alone on the machine; where none was, that of shorter ones that
    were (``speeds``), for as many steps; where there are none either, of all runs.
    """
    finished = [run for run in runs if run["return"] is not None]
    if not finished:
        return None
    alone = [run for run in finished if run["load"] == "alone"]
    steps = finished[0]["steps"]
    short = [] if alone else [run for run in speeds if run["load"] == "alone"]
    timed = alone or short or finished

    def mean_spread(values: list[float]) -> tuple[float, float]:
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    value, spread = mean_spread([run["return"] for run in finished])
    evaluated, evaluated_spread = mean_spread([statistics.fmean(run["evaluation"]) for run in finished])
    return {
        "return": round(value, 1),
        "spread": round(spread, 1),
        "evaluation": round(evaluated, 1),
        "evaluation_spread": round(evaluated_spread, 1),
        "seeds": sorted(run["seed"] for run in finished),
        "train_s": round(statistics.median(run["train_s"] * steps / run["steps"] for run in timed), 1),
        "timed_alone": bool(alone or short),
        "timed_steps": timed[0]["steps"],
        "cpu": sorted({run["machine"]["cpu"] for run in timed}),
    }


def compare(
    env_id: str,
    ours: Sequence[dict[str, Any]],
    rivals: Sequence[dict[str, Any]],
    speeds: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return one row of the table.

    Returns:
        "env", "ours" and the rivals' names with :func:`summary` of each, "better" (the rival with the higher return,
        None without one), "ratio" of the returns, "reached" (ours is at least the better's mean less its spread),
        "reached_evaluation" (the same by the evaluation), "time_ratio", "quick" (at most :data:`TIME_SHARE`),
        "same_cpu", "met" (reached and quick; None, and nothing before it, where ours or the rivals are missing).
    """
    row: dict[str, Any] = {"env": env_id, "ours": summary([run for run in ours if run["env"] == env_id])}
    for name in RIVALS:
        row[name] = summary(
            *([run for run in all_ if (run["env"], run["rival"]) == (env_id, name)] for all_ in (rivals, speeds))
        )
    there = [name for name in RIVALS if row[name]]
    mine = row["ours"]
    better = row["better"] = max(there, key=lambda name: row[name]["return"]) if there else None
    if better is None or not mine:
        return row | {"met": None}
    best = row[better]
    evaluated = max((row[name] for name in there), key=lambda one: one["evaluation"])
    time_ratio = mine["train_s"] / best["train_s"]
    reached = mine["return"] >= best["return"] - best["spread"]
    return row | {
        "ratio": round(mine["return"] / best["return"], 3) if best["return"] > 0.0 else None,
        "reached": reached,
        "reached_evaluation": mine["evaluation"] >= evaluated["evaluation"] - evaluated["evaluation_spread"],
        "time_ratio": round(time_ratio, 3),
        "quick": time_ratio <= TIME_SHARE,
        "same_cpu": mine["cpu"] == best["cpu"],
        "met": reached and time_ratio <= TIME_SHARE,
    }


def make_table_result(
    envs: Iterable[str],
    ours: Sequence[dict[str, Any]],
    committed: Sequence[dict[str, Any]],
    live: Sequence[dict[str, Any]],
    speeds: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the benchmark's result.

    Args:
        envs: Gymnasium's names.
        ours: our trainings.
        committed: the rivals' of the file.
        live: the rivals' of the same run; where an environment has them, ours is compared with these.
        speeds: shorter trainings of the rivals' alone on the machine.

    Returns:
        "name", "machine", "versions", "rows" (who, value, unit, spread, repeats, as every benchmark), "ratio" (the
        smallest of the table), "notes", "table" (:func:`compare`), "runs" (ours), "live".
    """
    table, rows = [], []
    for env_id in envs:
        beside = [run for run in live if run["env"] == env_id]
        row = compare(env_id, ours, beside or committed, () if beside else speeds)
        table.append(row | {"live": bool(beside)})
        for name in ("ours", *RIVALS):
            if one := row[name]:
                who = f"{env_id} {'robot-rl' if name == 'ours' else RIVALS[name]}"
                figures = {"value": one["return"], "unit": "return", "spread": one["spread"]}
                rows.append({"who": who, **figures, "repeats": len(one["seeds"])})
    return {
        "name": "gymnasium v5",
        "machine": machine_facts(),
        "versions": package_versions(),
        "rows": rows,
        "ratio": min((row["ratio"] for row in table if row.get("ratio")), default=None),
        "notes": {
            "return": "mean of the last 100 finished training episodes, stochastic policy, Gymnasium's rewards",
            "evaluation": "20 episodes of the final deterministic policy in Gymnasium's own environment",
            "spread": "standard deviation over seeds",
            "reached": "ours is at least the better rival's mean less its spread",
            "time_share": TIME_SHARE,
        },
        "table": table,
        "runs": list(ours),
        "live": list(live),
    }
