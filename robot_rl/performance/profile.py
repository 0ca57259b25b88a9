"""The time that single methods take, by stage, and the stages of one environment's control step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from robot_rl_envs.env import Env

PHYSICS, MIRRORS = "physics", "float32 mirrors"
REST = "rest (Python between the stages)"


def _watched(env: Env) -> AbstractContextManager[dict[str, float]]:
    """Time every stage of ``env``."""
    watch, rows = StageWatch(env.device), env.only
    batch = getattr(env.engine, "batch", None)
    kernels = {
        "act kernel": [rows._act],
        "actuator kernels": list(rows.actuate or ()),
        "after-physics and observe kernels": [rows._after_and_observe, rows._after, rows._observe],
    }
    for name, stages in kernels.items():
        for stage in stages:
            watch.watch(stage, "launch", name)
    for method in ("finish", "observe"):
        watch.watch(rows.torch_terms, method, "torch terms")
    watch.watch(env.engine, "step", PHYSICS if batch is None else MIRRORS)
    if batch is not None:
        watch.watch(batch, "step", PHYSICS)
    watch.watch(env.engine, "write_back", "write-back of resets and events")
    watch.watch(env._results, "fill", "results handed out")
    if rows._scan:
        watch.watch(rows._scan, "look", "rays")
    if rows._images.sensors:
        watch.watch(rows._images, "update", "cameras")
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


class StageWatch:
    """Adds up the time spent in methods of single objects, or of all objects of a class, while they are watched.

    The time of a stage within another counts only for itself, unless the other counts as a whole.

    Args:
        device: Device of the work; on a GPU each stage is waited for.
        label: Name the stages in a trace of torch's profiler, and wait for nothing.

    Attributes:
        spent: Seconds by stage.
    """

    def __init__(self, device: str | torch.device, *, label: bool = False) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        waits = torch.device(device).type == "cuda" and not label
        self._synchronize = torch.cuda.synchronize if waits else None
        self._label = label
        self._watched: list[tuple[Any, str, Any]] = []
        self._inside: list[tuple[str, bool]] = []

    def watch(self, owner: Any, method: str, stage: str, *, whole: bool = False) -> None:
        """Time `owner.method` under the name `stage`, until `release`.

        Args:
            owner: An object, or a class.
            method: The method's name.
            stage: The name of its time.
            whole: Stages within it count as it.
        """
        run = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside and self._inside[-1][1]:
                return run(*args, **kwargs)
            outer = self._inside[-1][0] if self._inside else None
            self._inside.append((stage, whole))
            begin = time.perf_counter()
            try:
                with torch.profiler.record_function(stage) if self._label else nullcontext():
                    result = run(*args, **kwargs)
                if self._synchronize:
                    self._synchronize()
            finally:
                self._inside.pop()
            seconds = time.perf_counter() - begin
            self.spent[stage] += seconds
            if outer is not None:
                self.spent[outer] -= seconds
            return result

        self._watched.append((owner, method, vars(owner).get(method) if isinstance(owner, type) else None))
        setattr(owner, method, timed)

    def release(self) -> None:
        """Remove every timer."""
        for owner, method, before in reversed(self._watched):
            if before is None:
                delattr(owner, method)
            else:
                setattr(owner, method, before)
        self._watched.clear()


@contextmanager
def watching(watch: StageWatch) -> Iterator[dict[str, float]]:
    """Yield the seconds by stage, and remove the timers of a watch at the end."""
    try:
        yield watch.spent
    finally:
        watch.release()
