"""One definition of a return, for ours and for the rivals: finished episodes while training, and after it.

Needs the standard library and, to evaluate, Gymnasium: a rival's own Python imports it without robot_rl.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

LAST = 100
"""Finished episodes over which the return while training is averaged."""
POINTS = 100
"""Points of a curve, about."""
EVALUATED = 20
"""Episodes of the evaluation after training."""


class EpisodeLog:
    """Takes in finished training episodes and keeps the curve of their mean return.

    The return is the undiscounted sum of Gymnasium's own rewards, of the stochastic policy that trains, averaged over
    the last :data:`LAST` episodes that finished, in whichever world.

    Attributes:
        curve: "steps" (control steps over all worlds), "seconds" since :meth:`begin`, "return" (None before the first
            finished episode).
    """

    def __init__(self, steps: int, rollout: int, say: Callable[[dict[str, Any]], None] = lambda _: None):
        """Prepare for a training.

        Args:
            steps: requested control steps, over all worlds.
            rollout: control steps of a rollout, over all worlds; training takes as many whole ones as fit.
            say: called with every point of the curve as {"step", "seconds", "return"}.
        """
        self.steps, self._say = steps // rollout * rollout, say
        self._every = self._due = max(1, steps // POINTS)
        self._last: deque[tuple[float, int]] = deque(maxlen=LAST)
        self.curve: dict[str, list[Any]] = {"steps": [], "seconds": [], "return": []}
        self._finished = 0
        self._begun = self._cpu = 0.0

    def begin(self) -> None:
        """Start the clock: training begins now."""
        self._begun, self._cpu = time.perf_counter(), time.process_time()

    def add(self, episode_return: float, length: int) -> None:
        """Take in a finished episode: its return, and its length in control steps."""
        self._last.append((float(episode_return), int(length)))
        self._finished += 1

    def tick(self, step: int) -> None:
        """Report how many control steps are done, after the episodes that they finished."""
        while step >= self._due:
            self._point(self._due)
            self._due += self._every

    def finish(self) -> dict[str, Any]:
        """Stop the clock.

        Returns:
            "return" and "length" (means over the last episodes, None without one), "last" (how many those are),
            "episodes" (all), "train_s" (wall-clock), "cpu_s" (of this process, all its threads), "curve".
        """
        seconds, cpu = time.perf_counter() - self._begun, time.process_time() - self._cpu
        count = len(self._last)
        if self.curve["steps"][-1:] != [self.steps]:
            self._point(self.steps)
        return {
            "steps": self.steps,
            "return": self._mean(),
            "length": round(sum(length for _, length in self._last) / count, 1) if count else None,
            "last": count,
            "episodes": self._finished,
            "train_s": round(seconds, 2),
            "cpu_s": round(cpu, 2),
            "curve": self.curve,
        }

    def _mean(self) -> float | None:
        return round(sum(value for value, _ in self._last) / len(self._last), 2) if self._last else None

    def _point(self, step: int) -> None:
        point = {"step": step, "seconds": round(time.perf_counter() - self._begun, 2), "return": self._mean()}
        self.curve["steps"].append(step)
        self.curve["seconds"].append(point["seconds"])
        self.curve["return"].append(point["return"])
        self._say(point)


def evaluate(env_id: str, act: Callable[[Any], Any], *, episodes: int = EVALUATED, seed: int = 0) -> list[float]:
    """Run a policy in Gymnasium's own environment.

    Args:
        env_id: such as "HalfCheetah-v5".
        act: observation (D,) float64 -> action (A,), which is clipped to the action space.
        episodes: how many.
        seed: of the training; the same seed meets the same starts, whoever's policy it is.

    Returns:
        The return of every episode.
    """
    import gymnasium
    import numpy as np

    env = gymnasium.make(env_id)
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    returns = []
    for k in range(episodes):
        obs, _ = env.reset(seed=10_000 + 1_000 * seed + k)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(np.clip(act(obs), low, high))
            total += float(reward)
            over = terminated or truncated
        returns.append(round(total, 2))
    env.close()
    return returns
