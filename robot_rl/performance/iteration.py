"""Where a training iteration's time goes: its parts, the stages of the environment's step and those of the update."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeGuard

import torch

from robot_rl.learn.algorithms.ppo.ppo import PPO
from robot_rl.learn.base_trainer import BaseTrainer
from robot_rl.learn.rollout import Batch
from robot_rl.learn.trainer import Trainer
from robot_rl.metrics.iteration import PARTS, limit, overlap_share, time_parts
from robot_rl.performance.profile import StageWatch, profile_env, watching
from robot_rl.performance.result import make_result

VALUES, GATHER, FORWARD, BACKWARD = "values and advantages", "minibatches gathered", "forward and loss", "backward"
REDUCE, STEP, NORMALIZERS = "mean over processes", "clip and Adam", "normalizers"
REST = "rest (Python between the stages)"
WARM_UP = 2
"""Iterations before those that count."""

Make = Callable[[Callable[[dict[str, float]], None]], BaseTrainer]
"""Builds the session, given an observer."""


def profile_iterations(make: Make, *, iterations: int = 5, trace: Path | None = None) -> dict[str, Any]:
    """Train for a few iterations and return how their time was spent.

    The stages are timed in further iterations and steps after those of the parts, and scaled to their part. On a
    GPU they run outside the CUDA graphs, each waited for: only their shares are meaningful.

    Args:
        make: Builds the session.
        iterations: Iterations that count; WARM_UP more go before.
        trace: File for a trace of one more iteration by torch's profiler, in Chrome's format.

    Returns:
        "iteration_ms", "steps_per_s", "parts" and "stages" (by part): name -> {"ms" an iteration, "share" of it},
        "overlap_share" and "limit" as of `robot_rl.metrics.iteration`, "notes", "machine", "versions", and the
        iterations a second in the form of `robot_rl.performance.result.make_result`.
    """
    rows: list[dict[str, float]] = []
    session = make(rows.append)
    session.train(WARM_UP + iterations)
    seen = [time_parts(row) for row in rows[WARM_UP:]]
    seconds = {part: sum(parts[part] for parts in seen) / len(seen) for part in PARTS}
    total = sum(seconds.values())
    stages: dict[str, dict[str, float]] = {}
    if _has_stages(session):
        stages["learn"] = _update_shares(session, iterations)
        if (found := _env_shares(session)) is not None:
            stages["simulate"] = found
    if trace is not None:
        write_trace(session, trace)
    rate = {"robot-rl": [1.0 / sum(parts.values()) for parts in seen]}
    return {
        **make_result("profile", rate, unit="iterations/s", notes=_notes(session)),
        "iteration_ms": round(1e3 * total, 3),
        "steps_per_s": round(session.cfg.num_steps * session.env.num_envs / total, 1),
        "parts": {part: _cell(value, total) for part, value in seconds.items()},
        "stages": {
            part: {stage: _cell(share * seconds[part], total) for stage, share in shares.items()}
            for part, shares in stages.items()
        },
        "overlap_share": round(overlap_share(seconds), 4),
        "limit": limit(seconds),
    }


def write_trace(session: BaseTrainer, path: Path) -> None:
    """Write a trace of one iteration to .json or .json.gz, for https://ui.perfetto.dev or chrome://tracing."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if session.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    watch = StageWatch(session.device, label=True)
    watch.watch(session.env, "step", "simulate")
    if _has_stages(session):
        watch.watch(session.actor, "act", "infer")
        watch.watch(session.algorithm, "update", "learn")
        _watch_update(watch, session)
    with watching(watch), profile(activities=activities) as profiler:
        session.train(session.iteration + 1)
    temporary = path.with_name(f".{path.name}" if path.suffix == ".gz" else f".{path.stem}.part.json")
    profiler.export_chrome_trace(str(temporary))
    os.replace(temporary, path)


def _update_shares(runner: Trainer, iterations: int) -> dict[str, float]:
    """Return the share of each stage in the update; they add up to 1."""
    algorithm = runner.algorithm
    graphed, algorithm.graphed = algorithm.graphed, None
    watch = StageWatch(runner.device)
    watch.watch(algorithm, "update", REST)
    try:
        with _watch_update(watch, runner) as spent:
            runner.train(runner.iteration + iterations)
    finally:
        algorithm.graphed = graphed
    total = sum(spent.values())
    names = [VALUES, GATHER, FORWARD, BACKWARD, REDUCE, STEP, NORMALIZERS]
    names += [stage for stage in spent if stage not in (*names, REST)]
    return {stage: spent[stage] / total for stage in (*names, REST) if spent.get(stage)}


def _watch_update(watch: StageWatch, runner: Trainer) -> AbstractContextManager[dict[str, float]]:
    algorithm = runner.algorithm
    watch.watch(algorithm, "make_batch", VALUES, whole=True)
    watch.watch(Batch, "rows", GATHER)
    watch.watch(algorithm, "loss", FORWARD)
    watch.watch(torch.Tensor, "backward", BACKWARD)
    if runner.ranks.size > 1:
        watch.watch(algorithm.optimizer, "reduce", REDUCE)
    watch.watch(algorithm, "improve", STEP)
    watch.watch(algorithm, "update_normalizers", NORMALIZERS)
    for auxiliary in algorithm.auxiliaries:
        watch.watch(auxiliary, "update", auxiliary.name, whole=True)
    return watching(watch)


def _has_stages(session: BaseTrainer) -> TypeGuard[Trainer]:
    """Return whether the stages of a session's update are known: those of PPO."""
    return isinstance(session, Trainer) and isinstance(session.algorithm, PPO)


def _env_shares(runner: Trainer) -> dict[str, float] | None:
    """Return the share of each stage in a step, with the actions of the last rollout; None if unknown."""
    from robot_rl_envs.env import Env

    if not isinstance(runner.env, Env):
        return None
    with torch.no_grad():
        actions = torch.stack([runner.actor.distribution.to_env(raw) for raw in runner.collector.rollout.action])
    stages: Mapping[str, Mapping[str, float]] = profile_env(runner.env, [actions])["stages"]
    return {name: stage["share"] for name, stage in stages.items()}


def _notes(session: BaseTrainer) -> dict[str, Any]:
    notes: dict[str, Any] = {
        "worlds": session.env.num_envs,
        "steps": session.cfg.num_steps,
        "device": str(session.device),
        "threads": torch.get_num_threads(),
        "actor.hidden": list(session.cfg.actor.hidden),
        "critic.hidden": list(session.cfg.critic.hidden),
        "epochs x minibatches": f"{session.cfg.ppo.epochs} x {session.cfg.ppo.minibatches}",
    }
    if _has_stages(session) and session.device.type == "cuda":
        recorded, graphed = session.collector.recorded, session.algorithm.graphed
        notes["cuda graphs"] = {
            "rollout": "no" if recorded is None else recorded.problem or "yes",
            "update": "no" if graphed is None else graphed.problem or "yes",
        }
    return notes


def _cell(seconds: float, total: float) -> dict[str, float]:
    return {"ms": round(1e3 * seconds, 4), "share": round(seconds / total, 4)}
