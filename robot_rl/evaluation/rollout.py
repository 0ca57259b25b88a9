"""Evaluation of a policy: its metrics, the return of whole episodes, a recording of its motion.

Randomization and pushes are on as in training. Observation noise is off, so that the torch policy and its bundle get
the same numbers and can be compared on the same states.
"""

import contextlib
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.errors import UserError
from robot_rl.evaluation.meter import EpisodeMeter, describe_metrics, summarize
from robot_rl.evaluation.policies import ExportedPolicy, Loadable, Policy, load_policy
from robot_rl.evaluation.shadow import Bound, Shadow
from robot_rl.files import finite, write_atomic

EVALUATION_SEED = 20_261_103
SECONDS = 10.0
PROGRESS_S = 10.0
"""Period of the progress lines of `evaluate_episodes` [s]."""
MAX_STEPS = 10_000
"""Longest episode of an environment without a time limit."""

WHOLE_EPISODES = {
    "return": {"unit": "1", "meaning": "sum of the rewards of an episode", "better": "larger"},
    "length": {"unit": "steps", "meaning": "length of an episode", "better": ""},
}
"""What `evaluate_episodes` measures."""

Summary = dict[str, dict[str, float] | None]


def evaluation_task(task: Any) -> Any:
    """Return a copy of a task without observation noise for the actor, of the same kernels."""
    changed = copy.copy(task)
    changed.observations = dict(task.observations)
    changed.observations["actor"] = copy.copy(task.observations["actor"])
    changed.observations["actor"].muted = True
    return changed


def evaluate(
    env: Any,
    policy: Policy,
    *,
    seconds: float = SECONDS,
    shadow: Shadow | None = None,
    disturb: Callable[[Any, int], None] | None = None,
) -> Summary:
    """Run one episode in every world of an environment, which is reset first.

    Args:
        env: The environment; of a team each robot has an episode, and of several roles each its own metrics.
        policy: Computes the actions.
        seconds: Maximum length of an episode [s].
        shadow: A bundle to compare with on the same states.
        disturb: Called with the environment and the number of each step before it.

    Returns:
        Each metric of `robot_rl.evaluation.meter.describe_metrics` that applies -> {"mean", "std"} over episodes, or
        None if no episode has it.
    """
    return summarize(measure(env, policy, seconds=seconds, shadow=shadow, disturb=disturb))


def measure(
    env: Any,
    policy: Policy,
    *,
    seconds: float = SECONDS,
    shadow: Shadow | None = None,
    disturb: Callable[[Any, int], None] | None = None,
) -> dict[str, Tensor]:
    """Return metric -> (N,) of the episodes of `evaluate`, by `EpisodeMeter.episodes`."""
    obs = env.reset()
    meters = make_meters(env)
    watchers = [watcher for watcher in (policy, shadow) if watcher is not None]
    for watcher in watchers:
        watcher.reset(torch.ones(env.num_envs, dtype=torch.bool, device=env.device))
    for step in range(max(1, round(seconds / env.step_dt))):
        if disturb is not None:
            disturb(env, step)
        action = policy(obs)
        if shadow is not None:
            shadow.compare(obs, action)
        obs, reward, done, extras = env.step(action)
        done = done.bool()
        acted = extras.get("acted")
        for meter, rows, width in meters.values():
            row = (reward[rows], done[rows], extras["time_outs"].bool()[rows], extras["valid"][rows])
            meter.after_step(action[rows][:, :width], *row, acted=None if acted is None else acted[rows])
        for watcher in watchers:  # A robot that joins late begins as if it had been reset.
            watcher.reset(done if acted is None else done | ~acted)
    return {
        f"{role}.{name}" if role else name: values
        for role, (meter, _, _) in meters.items()
        for name, values in meter.episodes().items()
    }


def make_meters(env: Any) -> dict[str, tuple[EpisodeMeter, Any, int]]:
    """Return a meter for each kind of robot in an environment, its rows and the width of its actions.

    There is one, called "", but for a team of several roles.
    """
    parts = env.parts() if hasattr(env, "parts") else {}
    if len(parts) < 2:
        return {"": (EpisodeMeter(env), slice(None), env.num_actions)}
    return {role: (EpisodeMeter(crew), rows, crew.num_actions) for role, (crew, rows) in parts.items()}


FALLS_AT = 1 / 3
"""Share of an evaluation after which a robot drops out, to see the loss of the team."""


def evaluate_team(make_env: Callable[[], Any], policy: Policy, seconds: float) -> dict[str, Any]:
    """Return the metrics of each robot of a team, also if another one drops out, or messages are late.

    Args:
        make_env: As of `evaluate_run`.
        policy: Computes the actions of all robots.
        seconds: Maximum length of an episode [s].

    Returns:
        "robots" (robot -> summary of its episodes) and "without" (robot -> summary of the other robots' episodes, from
        which it drops out a third of the time in); of robots that send messages "late" (summary of all robots'
        episodes with messages as late as they may be).
    """
    with contextlib.closing(make_env()) as env:
        agents, worlds = list(env.agents), env.num_worlds
        robots = _by_robot(measure(env, policy, seconds=seconds), agents, env)
        without = {}
        for lost in agents:
            after = round(FALLS_AT * seconds / env.step_dt)

            def fall(env: Any, step: int, lost: str = lost, after: int = after) -> None:
                if step == after:
                    env.drop(lost)

            rows = _by_robot(measure(env, policy, seconds=seconds, disturb=fall), agents, env)
            others = [row for name, row in rows.items() if name != lost]
            names = dict.fromkeys(name for row in others for name in row)
            pooled = {name: torch.cat([row[name] for row in others if name in row]) for name in names}
            without[lost] = summarize(pooled)
        robots = {name: summarize(row) for name, row in robots.items()}
        result: dict[str, Any] = {"robots": robots, "without": without, "worlds": worlds}
        late = [(crew, crew.cfg.late_messages()) for crew, _ in env.parts().values()]
        for crew, changes in late:
            for path, seconds_late in changes.items():
                crew.set_param(path, seconds_late)
        if any(changes for _, changes in late):
            result["late"] = summarize(measure(env, policy, seconds=seconds))
    return result


def _by_robot(episodes: Mapping[str, Tensor], agents: list[str], env: Any) -> dict[str, dict[str, Tensor]]:
    """Return robot -> metric -> (N,) of the episodes that `measure` returned."""
    parts, by_robot = env.parts(), {agent: {} for agent in agents}
    for role, (_, rows) in parts.items():
        members = [agents[place] for place in rows.view(env.num_worlds, -1)[0].tolist()]
        prefix = f"{role}." if len(parts) > 1 else ""
        for name, values in episodes.items():
            if name.startswith(prefix):
                for agent, episode_values in zip(members, values.view(env.num_worlds, -1).unbind(1), strict=True):
                    by_robot[agent][name.removeprefix(prefix)] = episode_values
    return by_robot


def evaluate_run(
    make_env: Callable[[], Any], *, policy: Loadable | None, bundle: Path | None, seconds: float = SECONDS
) -> dict[str, Any]:
    """Evaluate the torch policy, its bundle, and whether they agree.

    Args:
        make_env: Builds the environment, one world per episode; called once for each policy and always with the same
            result: `evaluation_task`, its own seed.
        policy: The torch policy, from observation groups to mean actions; None to evaluate only the bundle.
        bundle: Directory of the bundle; None to evaluate only the torch policy.
        seconds: Maximum length of an episode [s].

    Returns:
        The content of eval.json: "torch" and "onnx" (metric -> {"mean", "std"}), "metrics" (metric -> description, see
        `robot_rl.metrics.description`), "episodes", "seconds" and, with both policies, "agreement":
        "action_error" and "observation_error" on the same states, "action_bound", "actions" and "metrics" (whether they
        agree) and "differences" (metric -> difference of the means and its bound of two standard errors); of a torch
        policy for a team also "team", see `evaluate_team`.

    Raises:
        ValueError: Both are None.
        ContractError: The bundle is damaged or does not fit the environment.
    """
    if policy is None and bundle is None:
        raise ValueError("policy and bundle are None; give at least one to evaluate")
    result: dict[str, Any] = {}
    shadow, is_team, worlds = None, False, 0
    if policy is not None:
        with contextlib.closing(make_env()) as env:
            is_team = hasattr(env, "drop") and bool(env.agents)
            shadow = None if bundle is None else Shadow(ExportedPolicy(bundle, env), action_bounds(policy))
            result["torch"] = evaluate(env, load_policy(policy, env), seconds=seconds, shadow=shadow)
            result |= _about(env, seconds)
    if bundle is not None:
        with contextlib.closing(make_env()) as env:
            worlds = getattr(env, "num_worlds", env.num_envs)  # The robots of a world are one try.
            result["onnx"] = evaluate(env, load_policy(bundle, env), seconds=seconds)
            result |= _about(env, seconds)
    measured = {name for kind in ("torch", "onnx") for name in result.get(kind, ())}
    result["metrics"] = {name: row for name, row in result["metrics"].items() if name in measured}
    if shadow is not None:
        result["agreement"] = agreement(shadow, result["torch"], result["onnx"], worlds)
    if policy is not None and is_team:
        result["team"] = evaluate_team(make_env, load_policy(policy, None), seconds)
    return result


def action_bounds(policy: Any) -> dict[str, Bound | None]:
    """Return how far the actions of a policy's exported form may be off, by its arithmetic, for `Shadow`.

    A policy in float32 has none.
    """
    actor: Any = getattr(policy, "actor", None)
    names = getattr(actor, "names", ("",))
    bounds: dict[str, Bound | None] = {}
    for name, each in zip(names, actor.each() if hasattr(actor, "each") else (actor,), strict=True):
        module = each.export_module() if getattr(each, "is_quantized", False) else None
        bounds[name] = None if module is None or module.precision is None else module.action_error
    return bounds


def _about(env: Any, seconds: float) -> dict[str, Any]:
    """Return the metrics of an evaluation in an environment, and the number and length [s] of episodes."""
    longest = env.max_episode_length * env.step_dt or seconds
    return {"metrics": describe_metrics(env), "episodes": env.num_envs, "seconds": round(min(seconds, longest), 6)}


def agreement(shadow: Shadow, torch_summary: Summary, onnx_summary: Summary, episodes: int) -> dict[str, Any]:
    """Return the block "agreement" of eval.json, see `evaluate_run`, for two summaries of so many worlds each."""
    differences = compare_metrics(torch_summary, onnx_summary, episodes)
    return {
        "action_error": shadow.action_error,
        "observation_error": shadow.observation_error,
        "action_bound": shadow.action_bound,
        "actions": shadow.are_within,
        "metrics": all(item["difference"] <= item["bound"] for item in differences.values()),
        "differences": differences,
    }


def compare_metrics(first: Summary, second: Summary, episodes: int) -> dict[str, dict[str, float]]:
    """Return metric -> {"difference" of the means, "bound" of two standard errors} of two summaries.

    A bound is at least 1e-6 of the value: equal episodes are without spread.
    """
    differences = {}
    for name, value in first.items():
        other = second.get(name)
        if value is None or other is None:
            continue
        error = math.sqrt((value["std"] ** 2 + other["std"] ** 2) / episodes)
        floor = 1e-6 * max(abs(value["mean"]), abs(other["mean"]))
        differences[name] = {"difference": abs(value["mean"] - other["mean"]), "bound": max(2 * error, floor)}
    return differences


def evaluate_episodes(env: Any, policy: Loadable, episodes: int, max_steps: int) -> dict[str, Any]:
    """Run whole episodes of a policy without exploration, for their return.

    Every world runs its share of them from the first on, so that short episodes do not displace long ones. An episode
    that ends in quarantine does not count.

    Args:
        env: An `rsl_rl.env.VecEnv`, just reset.
        policy: From observation groups to actions.
        episodes: Number of episodes.
        max_steps: Maximum length of an episode; a world stops after its share of them at that length.

    Returns:
        The content of eval.json: "torch" ("return", and "length" [steps], each {"mean", "std"} over episodes),
        "metrics" (their description), "episodes", the number that ended, and "max_steps".

    Raises:
        UserError: No episode ended.
    """
    device = env.device
    share = torch.full((env.num_envs,), episodes // env.num_envs, device=device)
    share[: episodes % env.num_envs] += 1
    played = torch.zeros_like(share)
    total = torch.zeros(env.num_envs, dtype=torch.float64, device=device)
    length = torch.zeros_like(total)
    finished: dict[str, list[Tensor]] = {"return": [], "length": []}
    policy, obs, shown = load_policy(policy, env), env.get_observations(), time.monotonic()
    policy.reset(torch.ones_like(share, dtype=torch.bool))
    for step in range((max_steps + 1) * int(share.max())):
        obs, reward, done, extras = env.step(policy(obs))
        counts = extras.get("valid", torch.ones_like(done))
        total += torch.where(counts, reward.double(), 0.0)
        length += counts
        ended = done & counts & (played < share)
        finished["return"].append(total[ended])
        finished["length"].append(length[ended])
        played += ended
        total.masked_fill_(done, 0.0)
        length.masked_fill_(done, 0.0)
        policy.reset(done)
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            sys.stderr.write(f"  {int(played.sum())} episodes after {step + 1} steps\n")
        if bool((played >= share).all()):
            break
    values = {name: torch.cat(parts).cpu() for name, parts in finished.items()}
    notices = getattr(env, "pop_notices", list)()
    if not len(values["return"]):
        raise UserError("steps", max_steps, "no episode ended within them", "; ".join(notices) or "give more")
    for line in notices:
        sys.stderr.write(f"robot-rl: {line}\n")
    result = {"torch": summarize(values), "metrics": dict(WHOLE_EPISODES)}
    return result | {"episodes": len(values["return"]), "max_steps": max_steps}


def record_motion(env: Any, policy: Policy, seconds: float, group: str) -> tuple[Tensor, Tensor]:
    """Run a policy in every world of an environment, which is reset first, and keep its motion.

    Args:
        env: The environment.
        policy: Computes the actions.
        seconds: Duration [s].
        group: The observation group to keep.

    Returns:
        (F, D) frames, a control step apart, and (F,) bool, true for a frame that does not continue the one before it.
        Frames of quarantined worlds are omitted.
    """
    obs = env.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    policy.reset(starts)
    frames, begins, valid = [], [], []
    for _ in range(max(2, round(seconds / env.step_dt))):
        frames.append(obs[group].clone())
        begins.append(starts)
        obs, _, done, extras = env.step(policy(obs))
        valid.append(extras["valid"].clone())
        starts = done.bool() | ~valid[-1]
        policy.reset(starts)
    keep = torch.stack(valid, dim=1).flatten()  # (N, T): a world's frames side by side
    return torch.stack(frames, dim=1).flatten(0, 1)[keep], torch.stack(begins, dim=1).flatten()[keep]


def write_evaluation(path: Path, result: Mapping[str, Any]) -> None:
    """Write eval.json atomically, a device or pipe directly; a number that is not finite becomes null.

    Raises:
        OSError: It cannot be written; an older file is unchanged.
    """
    write_atomic(path, json.dumps(finite(result), indent=1, allow_nan=False) + "\n")
