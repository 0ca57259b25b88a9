"""A robot as the simulator of a training: its steps become segments, and weights reach it as checked bundles."""

from __future__ import annotations

import contextlib
import copy
import itertools
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robot_rl.files import write_atomic
from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.rollouts.source import StoppedError
from robot_rl.learn.simulators.pool import Source
from robot_rl.learn.simulators.simulator import Segment
from robot_rl.learn.simulators.weights import unpack
from robot_rl.sim2sim.adapt.robot import RobotProcess
from robot_rl.sim2sim.adapt.steps import Joiner, Step

POLL_S = 0.05
NEXT, REFUSED = "next", "refused"
"""Files of the binary's `--follow`: the bundle to take, and the last one that it refused."""


class RobotEndedError(RuntimeError):
    """The robot's time is over."""


class RobotSource(Source):
    """One robot, from which a rollout is its newest segments.

    A segment is a number of steps under the policy, one after the other; if steps are missing in between, such as
    those in which it stood up again, an episode is cut short. Each segment is learned from as often as there are
    segments in a rollout, each time with the weights of how old it is.

    Attributes:
        is_stopping: Asked, while nothing arrives, whether the training shall stop.
        limited: Steps so far in which the safety layer changed the requested action.
        steps: Steps so far.
    """

    def __init__(
        self,
        robot: RobotProcess,
        joiner: Joiner,
        *,
        actor: Actor,
        export: Callable[[Actor, int, Path], str],
        follow: Path,
        say: Callable[[str], None],
        num_steps: int,
        window: int,
    ) -> None:
        """Take a robot that runs.

        Args:
            robot: The robot.
            joiner: Joins its log and its plant.
            actor: A policy of the same architecture as the one that acts.
            export: Writes the bundle of a policy of a version to a folder, and returns the bundle's identity.
            follow: The folder that the binary follows.
            say: Called with a line for each bundle that the binary refused.
            num_steps: Steps of a segment.
            window: Segments of a rollout.
        """
        super().__init__(window)
        self._robot, self._joiner, self._export = robot, joiner, export
        self._actor = copy.deepcopy(actor).requires_grad_(False)
        self._follow, self._say, self._num_steps = follow, say, num_steps
        self._refused = ""
        self._policies: dict[int, Tensor] = {}
        self._steps: list[Step] = []
        self._newest: deque[Segment] = deque(maxlen=window)
        self._rows: queue.SimpleQueue[Mapping[str, Any] | BaseException] = queue.SimpleQueue()
        self._announced: dict[int, float] = {}
        self._taken_at = 0.0
        self._end: BaseException | None = None
        self.limited, self.steps = 0, 0
        self.is_stopping: Callable[[], bool] = bool
        threading.Thread(target=self._listen, name="robot-rl-robot", daemon=True).start()

    def _listen(self) -> None:
        """Take the rows of the robot's process as they come."""
        try:
            for row in self._robot.rows():
                self._rows.put(row)
            self._rows.put(RobotEndedError("the robot's process ended before its time"))
        except Exception as error:
            self._rows.put(error)

    def publish(self, version: int, weights: Tensor) -> None:
        """Write the bundle of newer weights, and announce it to the binary; that checks it, and takes it or not."""
        self._policies[version] = weights.clone()
        if version == 0:
            return  # It began with these.
        unpack(weights, self._actor)
        folder = self._follow / f"{version:06d}"
        self._joiner.version_of[self._export(self._actor, version, folder)] = version
        write_atomic(self._follow / NEXT, f"{folder}\n")
        self._look_for_refusals()
        self._announced[version] = time.time()

    def _look_for_refusals(self) -> None:
        """Report a bundle that the binary refused; the one before acts on."""
        with contextlib.suppress(FileNotFoundError):
            line = (self._follow / REFUSED).read_text().strip()
            if line != self._refused:
                self._refused = line
                self._say(f"the robot's binary refused a bundle, and continues with the one before: {line}")

    def take(self) -> list[Segment]:
        """Wait for the next segment, and return it with those before it, the newest last.

        Raises:
            RobotEndedError: The robot's time is over.
            UserError: Its process or binary ended.
        """
        while True:
            self._newest.append(self._receive())
            while (
                self._end is None and not self._rows.empty()
            ):  # A learner that is slower than the robot leaves none waiting.
                self._collect()
            if len(self._newest) == self.count and len(self._steps) < self._num_steps:
                return list(self._newest)

    def _receive(self) -> Segment:
        while len(self._steps) < self._num_steps:
            self._collect()
        steps, self._steps = self._steps[: self._num_steps], self._steps[self._num_steps :]
        for before in self._newest:
            before.metrics, before.taken_at = {}, 0.0
        return self._segment(steps)

    def _collect(self) -> None:
        """Wait for news of the robot, and take them; raise StoppedError if the training shall stop."""
        if self._end is not None:
            raise self._end
        if self.is_stopping():
            raise StoppedError(None, 0, signal.SIGINT, saved=False)
        try:
            row = self._rows.get(timeout=POLL_S)
        except queue.Empty:
            return
        if isinstance(row, BaseException):
            self._end = row
            return
        self._joiner.add_row(row)
        for step in self._joiner.take():
            self._steps.append(step)
            self.steps += 1
            self.limited += step.is_limited
            if step.version in self._announced:
                self._taken_at = time.time()
                for version in [known for known in self._announced if known <= step.version]:
                    del self._announced[version]

    def _segment(self, steps: list[Step]) -> Segment:
        """Return the segment of steps, with the log-probability of each action under the policy that acted."""
        tensors = fill(steps)
        out, log_prob, frozen = [], [], None
        versions = [step.version for step in steps]
        for version in sorted(set(versions)):
            unpack(self._policies[version], self._actor)
            rows = torch.tensor([index for index, acting in enumerate(versions) if acting == version])
            params = self._actor.params(tensors["actor_obs"][rows, 0])
            out.append((rows, params[0]))
            log_prob.append((rows, self._actor.distribution.log_prob(tensors["action"][rows, 0], params)))
            frozen = self._actor.distribution.snapshot()
        width = out[0][1].shape[1]
        tensors["out"], tensors["log_prob"] = torch.zeros(len(steps), 1, width), torch.zeros(len(steps), 1)
        for (rows, mean), (_, value) in zip(out, log_prob, strict=True):
            tensors["out"][rows, 0], tensors["log_prob"][rows, 0] = mean, value
        for version in [known for known in self._policies if known < min(versions)]:
            del self._policies[version]
        return Segment(
            index=0,
            tensors=tensors,
            frozen=frozen,
            has_final_obs=True,
            has_invalid=False,
            metrics=metrics_of(steps),
            taken_at=self._taken_at,
            busy_s=0.0,
        )

    def finish(self) -> dict[str, Any]:
        """Wait until the robot's process, which was requested to stop, has ended; return its report."""
        while self._end is None:
            if isinstance(row := self._rows.get(), BaseException):
                self._end = row
        if not isinstance(self._end, RobotEndedError):
            raise self._end
        self._look_for_refusals()
        return self._robot.report

    @property
    def present(self) -> list[int]:
        """Return the one robot."""
        return [0]

    def close(self) -> None:
        """End the robot's process, and read its log no more."""
        self._joiner.read_log = list
        self._robot.close()


def fill(steps: list[Step]) -> dict[str, Tensor]:
    """Return the buffers of a rollout (T, 1, ...) of a world with these steps, but for "out" and "log_prob"."""
    gaps = [after.sequence - before.sequence for before, after in itertools.pairwise(steps)]
    is_break = torch.tensor([gap != min(gaps) for gap in gaps] + [False])
    ended = torch.tensor([step.ended for step in steps])
    cut = torch.tensor([step.timed_out for step in steps]) | (is_break & ~ended)

    def rows(values: list[Any]) -> Tensor:
        return torch.as_tensor(values)[:, None] if not hasattr(values[0], "shape") else _stack(values)

    critic = [step.critic for step in steps]
    return {
        "actor_obs": rows([step.observation for step in steps]),
        "critic_obs": rows([*critic, steps[-1].after]),
        "final_obs": rows([step.after for step in steps]),
        "action": rows([step.action for step in steps]),
        "noise": torch.zeros(len(steps), 1, len(steps[0].action)),
        "reward": torch.tensor([step.reward for step in steps], dtype=torch.float32)[:, None],
        "done": (ended | cut)[:, None],
        "time_out": cut[:, None],
        "valid": torch.ones(len(steps), 1, dtype=torch.bool),
        "version": torch.tensor([step.version for step in steps])[:, None],
    }


def _stack(values: list[Any]) -> Tensor:
    """Return arrays (D,) as a tensor (T, 1, D)."""
    return torch.stack([torch.tensor(value, dtype=torch.float32) for value in values])[:, None]


def metrics_of(steps: list[Step]) -> dict[str, float]:
    """Return the row of a segment: mean reward and tracking errors, falls, and steps that the safety layer changed."""
    row = {
        "robot/reward": sum(step.reward for step in steps) / len(steps),
        "robot/limited": sum(step.is_limited for step in steps) / len(steps),
        "robot/falls": float(sum(step.ended and not step.timed_out for step in steps)),
    }
    for name in {name for step in steps for name in step.errors}:
        values = [step.errors[name] for step in steps if name in step.errors]
        row[f"robot/{name}"] = sum(values) / len(values)
    return row
