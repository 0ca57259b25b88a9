"""Rollouts that are simulated here, one after the other with the updates."""

from __future__ import annotations

from robot_rl.learn.rollout import Rollout
from robot_rl.learn.rollouts.source import RolloutSource


class LocalRollouts(RolloutSource):
    """Lets the current policy act in the worlds."""

    def next(self, last_iteration: int) -> Rollout:
        """Simulate a rollout."""
        trainer = self.trainer
        trainer.watch.start()
        rollout = trainer.collect()
        trainer.watch.lap("other")
        return rollout

    def measured(self, learn_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the environment's metrics, and the times of the collector."""
        return self.trainer.pop_metrics(), self.trainer.watch.read()
