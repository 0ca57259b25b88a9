"""A frozen policy that an actor of Ray evaluates: a reference, or a teacher, that is apart from the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robot_rl.cluster.ray_runs.cluster import make_actor
from robot_rl.cluster.ray_runs.simulators import to_tensors
from robot_rl.errors import UserError
from robot_rl.learn.auxiliaries.frozen import FrozenPolicy, FrozenService
from robot_rl.metrics.rows import to_stderr

WAIT_S = 60.0
"""A line is printed each time a service was waited for so long [s]."""
MOST_FAILURES = 3
"""How often a service may be lost without having evaluated anything."""


class ServiceProcess:
    """Evaluates a frozen policy; each method is called by a learner through Ray."""

    def __init__(self, policy: Any, field: str, threads: int) -> None:
        """Take a `robot_rl.learn.policy.TrainedPolicy`, the name of its settings, and threads to evaluate it by."""
        torch.set_num_threads(threads)
        self._frozen = FrozenPolicy(policy, policy.actor.layout, field)
        self._device = next(policy.actor.parameters()).device
        if torch.cuda.is_available():
            self._device = torch.device("cuda")
            policy.actor.to(self._device)

    def labels(self, obs: np.ndarray) -> np.ndarray:
        """Return the labels (T, N, L) of raw observations (T, N, D)."""
        batch = to_tensors({"obs": obs})["obs"].to(self._device)
        starts = torch.zeros(batch.shape[0] + 1, batch.shape[1], dtype=torch.bool, device=self._device)
        return self._frozen.labels(batch, None, starts).cpu().numpy()


class RayService(FrozenService):
    """A service that is an actor. It ends with the learner that started it."""

    def __init__(self, frozen: FrozenPolicy, name: str, need: Mapping[str, float]) -> None:
        """Start it wherever there is room; nothing is waited for.

        Args:
            frozen: The policy, a copy of which it gets.
            name: Of the settings, "reference" or "teacher".
            need: Its resources by Ray's names; 0 cores: one that is not reserved.
        """
        self._frozen, self._name, self._need, self._failures = frozen, name, need, 0
        self._obs: Any = None
        self._ref: Any = None
        self._actor = self._start()

    def _start(self) -> Any:
        cpus = int(self._need.get("CPU", 0.0))
        # With as many threads as here, if it is not given cores: then the bits are those of this process.
        threads = cpus or torch.get_num_threads()
        actor = make_actor(ServiceProcess, cpus, self._need.get("GPU", 0.0), threads)
        return actor.remote(_on_cpu(self._frozen.policy), self._name, threads)

    def begin(self, obs: Tensor) -> None:
        """Begin to evaluate raw observations (T, N, D)."""
        import ray

        self._obs = ray.put(obs.detach().cpu().numpy())
        self._ref = self._actor.labels.remote(self._obs)

    def take(self) -> Tensor:
        """Wait for the labels (T, N, L); if the service was lost, for those of another one.

        Raises:
            UserError: It was lost too often, or cannot be built.
        """
        import ray
        from ray import exceptions

        while True:
            try:
                while not ray.wait([self._ref], timeout=WAIT_S)[0]:
                    to_stderr(f"waits for the service of the {self._name}, or for room for it")
                labels = ray.get(self._ref)
                self._failures = 0
                return torch.from_numpy(np.array(labels))
            except exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except exceptions.RayError as error:
                self._failures += 1
                if self._failures > MOST_FAILURES:
                    line = f"roles.{self._name}=apart: it was lost {self._failures} times ({type(error).__name__})"
                    raise UserError(line) from None
                to_stderr(f"the service of the {self._name} was lost ({type(error).__name__}); another one begins")
                self._actor = self._start()
                self._ref = self._actor.labels.remote(self._obs)

    def close(self) -> None:
        """End the process."""
        import ray

        ray.kill(self._actor)


def _on_cpu(policy: Any) -> Any:
    """Return a policy with a copy of its network on the CPU."""
    import copy

    copied = copy.copy(policy)
    copied.actor = copy.deepcopy(policy.actor).cpu()
    return copied
