"""The evaluator of a run's policy while it is trained: an actor of Ray with its own worlds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robot_rl.cluster.ray_runs.cluster import last_line, make_actor, result
from robot_rl.cluster.ray_runs.roles import EvaluatorCfg
from robot_rl.cluster.ray_runs.simulators import to_arrays, to_tensors
from robot_rl.runs.evaluations import Evaluator, EvaluatorLostError, Request


class EvaluatorProcess:
    """Evaluates policies in its own process; its methods are called by the learner through Ray."""

    def __init__(self, run: str, episodes: int, cpus: int, *, trust: bool) -> None:
        """Read the settings of a run."""
        import torch

        from robot_rl.runs.run_dir import RunDir
        from robot_rl.runs.settings import load

        torch.set_num_threads(cpus)
        self._run_dir = RunDir(Path(run))
        self._cfg = dataclasses.replace(
            load(self._run_dir, {"device": "cpu", "engine": "auto"}, trust=trust), num_threads=cpus
        )
        self._episodes = episodes

    def evaluate(self, weights: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> dict[str, float]:
        """Return the mean of each metric over the episodes, as `robot-rl eval` finds it for the torch policy."""
        from robot_rl.evaluation import EVALUATION_SEED
        from robot_rl.learn.policy import build_policy
        from robot_rl.runs.policies import PolicySource
        from robot_rl.sources.protocol import EvaluationCfg

        cfg = self._cfg
        state = {name: tensor.clone() for name, tensor in to_tensors(weights).items()}
        policy = build_policy(cfg.learner, dict(meta), state, self._run_dir.path, cfg.device)
        how = EvaluationCfg(episodes=self._episodes, seed=EVALUATION_SEED, form="torch")
        source = PolicySource(cfg=cfg, run_dir=self._run_dir, bundle=None, live=policy)
        summary = cfg.source.evaluate(cfg.task, cfg.worlds(), source, how)["torch"]
        return {name: value["mean"] for name, value in summary.items() if value is not None}


class RayEvaluator(Evaluator):
    """An evaluator that is an actor. It ends with the learner that started it."""

    def __init__(self, cfg: EvaluatorCfg, run: str, *, trust: bool) -> None:
        """Start it, wherever there is room; nothing is waited for.

        Args:
            cfg: The number of episodes, and the resources that it needs.
            run: The run's directory, which its machine also sees.
            trust: Whether the code that the settings name may be imported.
        """
        self._cfg, self._run, self._trust = cfg, run, trust
        self._ref: Any = None
        self._actor = self._start()

    def _start(self) -> Any:
        cpus = max(1, self._cfg.cpus)
        actor = make_actor(EvaluatorProcess, self._cfg.cpus, 0, cpus)
        return actor.remote(self._run, self._cfg.episodes, cpus, trust=self._trust)

    def begin(self, request: Request) -> None:
        """Begin an evaluation."""
        self._ref = self._actor.evaluate.remote(to_arrays(request.weights), dict(request.meta))

    def poll(self) -> dict[str, float] | None:
        """Return the means of the metrics; None while it runs."""
        import ray

        return result(self._ref, _lost) if ray.wait([self._ref], timeout=0.0)[0] else None

    def replace(self) -> None:
        """Start another one."""
        self._actor = self._start()

    def close(self) -> None:
        """End the process."""
        import ray

        ray.kill(self._actor)


def _lost(error: Exception) -> EvaluatorLostError:
    return EvaluatorLostError(last_line(error) if getattr(error, "actor_init_failed", False) else type(error).__name__)
