"""Where a control step's time goes: the stages of one environment, timed one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from robot_rl.bench.stages import StageWatch, watching

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from robot_rl_envs.env import Env

PHYSICS, MIRRORS = "physics", "float32 mirrors"
REST = "rest (Python between the stages)"


def _watched(env: Env) -> AbstractContextManager[dict[str, float]]:
    """Time every stage of ``env``."""
    watch = StageWatch(env.device)
    batch = getattr(env.engine, "batch", None)
    kernels = {
        "act kernel": [env._act],
        "actuator kernels": list(env._actuate or ()),
        "after-physics and observe kernels": [env._after_and_observe, env._after, env._observe],
    }
    for name, stages in kernels.items():
        for stage in stages:
            watch.watch(stage, "launch", name)
    for method in ("finish", "observe"):
        watch.watch(env._torch_terms, method, "torch terms")
    watch.watch(env.engine, "step", PHYSICS if batch is None else MIRRORS)
    if batch is not None:
        watch.watch(batch, "step", PHYSICS)
    watch.watch(env.engine, "write_back", "write-back of resets and events")
    watch.watch(env._results, "fill", "results handed out")
    if env._scan:
        watch.watch(env._scan, "look", "rays")
    if env._images.sensors:
        watch.watch(env._images, "update", "cameras")
    return watching(watch)


def profile_env(env: Env, blocks: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Time the stages of a control step. On a GPU each is waited for, outside the graph, and so is slower there.

    Args:
        env: The environment; it is stepped.
        blocks: Actions, (steps, N, num_actions) each.

    Returns:
        ``step_ms`` [ms], and ``stages``: name -> {``share`` of the step, ``ms`` a step}; the shares add up to 1.
    """
    steps = sum(len(actions) for actions in blocks)
    with _watched(env) as spent:
        start = time.perf_counter()
        for actions in blocks:
            for action in actions:
                env._actions_torch.copy_(action)
                env._advance()
                env._results.fill(env.state)
        total = time.perf_counter() - start
    stages = {name: seconds for name, seconds in spent.items() if seconds > 0.0}
    stages[REST] = total - sum(stages.values())
    return {
        "step_ms": round(1e3 * total / steps, 3),
        "stages": {
            name: {"share": round(seconds / total, 4), "ms": round(1e3 * seconds / steps, 4)}
            for name, seconds in sorted(stages.items(), key=lambda stage: -stage[1])
        },
    }
