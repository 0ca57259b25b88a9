"""The steps of a robot that ran: its log has observations and actions of the policy, its plant their results.

Both are joined by the sequence number of the state that a control step began with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

POLICY = "POLICY"
"""Name of the phase in which the policy commands the robot."""
PATIENCE = 200
"""So many states after that of a step, the log has nothing more about it."""


@dataclass(kw_only=True, slots=True)
class Step:
    """A control step under the policy.

    Attributes:
        sequence: Of the state that it began with.
        version: Of the policy that acted.
        observation: (D,) of the policy.
        action: (A,) sent to the joints, after the safety layer, as the policy's raw action.
        is_limited: Whether the policy requested another one.
        critic: (C,) the critic's observation before it.
        after: (C,) and after it; of an episode that ended, in its last state.
        reward: Of the step.
        ended: An episode ended with it.
        timed_out: It was cut short.
        errors: Tracking errors [m/s, rad/s] by name; empty while a new command settles.
    """

    sequence: int
    version: int
    observation: np.ndarray
    action: np.ndarray
    is_limited: bool
    critic: np.ndarray
    after: np.ndarray
    reward: float
    ended: bool
    timed_out: bool
    errors: Mapping[str, float]


@dataclass(kw_only=True, slots=True)
class Joiner:
    """Joins the events of a robot's log with the rows of its plant.

    Attributes:
        read_action: From targets (J,) [rad or m], speeds, efforts (J,) and the command to a raw action (A,).
        version_of: The version of the policy in each bundle, by its identity.
        identity: The bundle that acts.
        read_log: Returns the events that the log has since the last call.
        tolerance: An action that differs by more from the requested one was limited.
        skipped: Omitted rows: not under the policy, or without a step in the log.
    """

    read_action: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    version_of: dict[str, int]
    identity: str
    read_log: Callable[[], Iterable[Mapping[str, Any]]] = list
    tolerance: float = 1e-4
    skipped: int = 0
    _acted: dict[int, dict[str, Any]] = field(default_factory=dict)
    _rows: deque[Mapping[str, Any]] = field(default_factory=deque)
    _newest: int = 0

    def add_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take events of the log, in its order (`robot_rl_runtime.LogTail`)."""
        for event in events:
            if event["topic"] == "/policy":
                step = {"version": self.version_of[self.identity], **event}
                self._acted[int(event["state_sequence"])] = step
            elif event["topic"] == "/command" and event["from_policy"]:
                self._sent(event)
            elif "bundle" in event:
                self.identity = str(event["bundle"])

    def _sent(self, event: Mapping[str, Any]) -> None:
        """Note the action that was sent of the policy's step; its record comes right before that of its command."""
        sequence = int(event["state_sequence"])
        self._newest = max(self._newest, sequence)
        if (step := self._acted.get(sequence)) is not None and "sent" not in step:
            step["sent"] = self.read_action(event["q"], event["dq"], event["tau"], step["command"])

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Take a row of the plant (`robot_rl.sim2sim.adapt.robot`)."""
        self._rows.append(row)

    def take(self) -> list[Step]:
        """Read the log, and return the steps that are complete, in order."""
        self.add_events(self.read_log())
        steps = []
        while self._rows:
            row = self._rows[0]
            step = self._acted.get(row["sequence"])
            if (step is None or "sent" not in step) and self._newest < row["sequence"] + PATIENCE:
                break
            self._rows.popleft()
            for sequence in [known for known in self._acted if known <= row["sequence"]]:
                del self._acted[sequence]
            if step is None or "sent" not in step or not step["ok"] or row["phase"] != POLICY or not row["valid"]:
                self.skipped += 1
                continue
            steps.append(self._join(row, step))
        return steps

    def _join(self, row: Mapping[str, Any], step: Mapping[str, Any]) -> Step:
        return Step(
            sequence=row["sequence"],
            version=step["version"],
            observation=step["observation"],
            action=step["sent"],
            is_limited=bool(np.abs(step["sent"] - step["action"]).max() > self.tolerance),
            critic=np.array(row["critic"], np.float32),
            after=np.array(row["after"], np.float32),
            reward=row["reward"],
            ended=row["ended"],
            timed_out=row["timed_out"],
            errors=row["errors"],
        )
