"""The evaluation itself: fresh worlds, random commands, seeds of their own, for both forms of a policy.

Randomization and pushes are on as in training; observation noise is off for both, so that the two policies see the
same numbers and can be compared on the same recorded states.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.evaluate.controllers import BundleController, Controller, Shadow, TorchController, TorchPolicy
from robot_rl.evaluate.meter import EpisodeMeter, summarize
from robot_rl.files import write_atomic

EVALUATION_SEED = 20_261_103
EPISODES = 100
SECONDS = 10.0
ACTION_BOUND = 1e-4

Summary = dict[str, dict[str, float] | None]


def evaluation_task(task: Any) -> Any:
    """A copy of a task as it is evaluated: without observation noise for the actor, all else as in training.

    Args:
        task: A task with observation groups by name.

    Returns:
        A copy; the task given is left as it is.
    """
    changed = copy.copy(task)
    changed.observations = dict(task.observations)
    changed.observations["actor"] = copy.copy(task.observations["actor"])
    changed.observations["actor"].noise = False
    return changed


def evaluate(env: Any, controller: Controller, *, seconds: float = SECONDS, shadow: Shadow | None = None) -> Summary:
    """Let a policy act in every world of an environment for one episode each.

    Args:
        env: The environment, one world an episode; it is reset first.
        controller: Who acts.
        seconds: Length of an episode at most [s].
        shadow: A bundle to compare with on the same states.

    Returns:
        Metric -> {"mean", "std"} over episodes, for the metrics of `robot_rl.evaluate.meter.METRICS` that the task
        has; None where no episode was long enough.
    """
    import torch

    obs = env.reset()
    meter = EpisodeMeter(env, env.describe_policy())
    everywhere = torch.ones_like(meter.alive)
    for watcher in (controller, shadow):
        if watcher is not None:
            watcher.reset(everywhere)
    for _ in range(round(seconds / env.step_dt)):
        action = controller.act(env, obs)
        if shadow is not None:
            shadow.compare(env, obs, action)
        meter.before_step()
        obs, reward, done, extras = env.step(action)
        done = done.bool()
        meter.after_step(action, reward, done, extras["time_outs"].bool())
        for watcher in (controller, shadow):
            if watcher is not None:
                watcher.reset(done)
    return summarize(meter.episodes())


def evaluate_run(
    make_env: Callable[[], Any], *, policy: TorchPolicy | None, bundle: Path | None, seconds: float = SECONDS
) -> dict[str, Any]:
    """Evaluate the torch policy, its bundle, and whether they agree.

    Args:
        make_env: Builds the environment, one world an episode; called once for each policy and always to the same
            result: `evaluation_task`, a seed of its own.
        policy: The torch policy, from observation groups to mean actions; None to evaluate the bundle alone.
        bundle: Directory of the bundle; None to evaluate the torch policy alone.
        seconds: Length of an episode at most [s].

    Returns:
        What eval.json holds: "torch" and "onnx" (metric -> {"mean", "std"}), "episodes", "seconds" and, with both
        policies, "agreement": "action_error" and "observation_error" on the same recorded states, "action_bound",
        "actions" and "metrics" (whether they agree) and "differences" (metric -> difference of the means and its
        bound of two standard errors).

    Raises:
        ValueError: There is nothing to evaluate.
        ContractError: The bundle is damaged or does not fit the environment.
    """
    if policy is None and bundle is None:
        raise ValueError("policy and bundle are None; give at least one to evaluate")
    result: dict[str, Any] = {}
    shadow = None
    if policy is not None:
        env = make_env()
        try:
            shadow = None if bundle is None else Shadow(BundleController(bundle, env))
            result["torch"] = evaluate(env, TorchController(policy), seconds=seconds, shadow=shadow)
            result["episodes"] = env.num_envs
        finally:
            env.close()
    if bundle is not None:
        env = make_env()
        try:
            result["onnx"] = evaluate(env, BundleController(bundle, env), seconds=seconds)
            result["episodes"] = env.num_envs
        finally:
            env.close()
    result["seconds"] = seconds
    if shadow is not None:
        result["agreement"] = agreement(shadow, result["torch"], result["onnx"], result["episodes"])
    return result


def agreement(shadow: Shadow, torch_summary: Summary, onnx_summary: Summary, episodes: int) -> dict[str, Any]:
    """Judge whether two forms of a policy are the same policy.

    Args:
        shadow: What the bundle would have done on the torch policy's states.
        torch_summary: Metrics of the torch policy.
        onnx_summary: Metrics of the bundle.
        episodes: Number of episodes of each.

    Returns:
        The block "agreement" of eval.json; see `evaluate_run`.
    """
    differences = compare_metrics(torch_summary, onnx_summary, episodes)
    return {
        "action_error": shadow.action_error,
        "observation_error": shadow.observation_error,
        "action_bound": ACTION_BOUND,
        "actions": shadow.action_error <= ACTION_BOUND,
        "metrics": all(item["difference"] <= item["bound"] for item in differences.values()),
        "differences": differences,
    }


def compare_metrics(first: Summary, second: Summary, episodes: int) -> dict[str, dict[str, float]]:
    """Differences of the means, and two standard errors of the difference as their bound.

    Args:
        first: Metrics of one policy.
        second: Metrics of the other.
        episodes: Number of episodes of each.

    Returns:
        Metric -> {"difference", "bound"}. A bound is at least 1e-6 of the value: equal episodes leave no spread.
    """
    differences = {}
    for name, mine in first.items():
        other = second.get(name)
        if mine is None or other is None:
            continue
        error = math.sqrt((mine["std"] ** 2 + other["std"] ** 2) / episodes)
        floor = 1e-6 * max(abs(mine["mean"]), abs(other["mean"]))
        differences[name] = {"difference": abs(mine["mean"] - other["mean"]), "bound": max(2 * error, floor)}
    return differences


def write_evaluation(path: Path, result: Mapping[str, Any]) -> None:
    """Write eval.json whole or not at all.

    Args:
        path: The file; a device or pipe is written to directly.
        result: What `evaluate_run` gave; a number that is not finite is written as null.

    Raises:
        OSError: It cannot be written; an older file is as before.
    """
    write_atomic(path, json.dumps(_finite(dict(result)), indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
