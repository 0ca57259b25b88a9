"""Figures of a session: the commands that arrived, the error of a robot that follows a velocity, a task's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from robot_rl.sim2sim.link import Note
    from robot_rl.sim2sim.plant import Body
    from robot_rl.view.viewer.command import CommandInfo

SETTLING_S = 1.0
"""The tracking error counts from this time after the policy started or the command changed [s]."""


class Figures:
    """Measures a robot in a session, control step by control step."""

    def before_step(self) -> None:
        """Note the command of the control step that follows."""

    def restart(self) -> None:
        """Note that the policy has started."""

    def after_step(self) -> None:
        """Add a control step under the policy."""
        raise NotImplementedError

    def report(self) -> dict[str, Any]:
        """Return the figures of all steps so far."""
        raise NotImplementedError


class TaskMetrics(Figures):
    """The task's metrics of a robot: their means since the policies started, and their values at the end."""

    def __init__(self, body: Body) -> None:
        """Measure a robot."""
        self._body, self._sum, self._steps = body, np.zeros(len(body.env.describe_metrics())), 0

    def after_step(self) -> None:
        """See `Figures`."""
        self._sum += self._values()
        self._steps += 1

    def report(self) -> dict[str, dict[str, dict[str, float]]]:
        """See `Figures`; "metrics": metric -> "mean" and "end"."""
        means, ends = (self._sum / max(self._steps, 1)).tolist(), self._values().tolist()
        rows = zip(self._body.env.describe_metrics(), means, ends, strict=True)
        return {"metrics": {name: {"mean": mean, "end": end} for name, mean, end in rows}}

    def _values(self) -> np.ndarray:
        return self._body.env.state.metric_values[self._body.row].cpu().numpy().astype(np.float64)


class Tracking(Figures):
    """Errors of a robot that is to follow a velocity; the report of any other has None, and the task's metrics.

    Attributes:
        newest: Errors of the last control step [m/s, rad/s] by name; empty while a new command settles.
    """

    NAMES = ("lin_vel_error", "yaw_vel_error")

    def __init__(self, body: Body, info: CommandInfo | None) -> None:
        """Measure a robot with such a command."""
        self._body, self._is_velocity = body, info is not None and info.is_velocity
        self._others = None if self._is_velocity else TaskMetrics(body)
        self._command, self._followed, self._followed_steps = np.zeros(3), np.zeros(3), 0
        self._sum, self._steps = np.zeros(2), 0
        self.newest: dict[str, float] = {}

    def before_step(self) -> None:
        """See `Figures`."""
        self.newest = {}
        if self._is_velocity:
            self._command = self._body.env.state.command[0, :3].cpu().numpy().copy()

    def restart(self) -> None:
        """See `Figures`."""
        self._followed_steps = 0

    def after_step(self) -> None:
        """See `Figures`."""
        if self._others is not None:
            self._others.after_step()
            return
        state, command = self._body.env.state, self._command
        if not np.array_equal(command, self._followed):
            self._followed, self._followed_steps = command, 0
        self._followed_steps += 1
        if self._followed_steps * self._body.env.step_dt <= SETTLING_S:
            return
        linear = np.linalg.norm(command[:2] - state.base_lin_vel_b[0, :2].cpu().numpy())
        errors = float(linear), abs(float(command[2] - state.base_ang_vel_b[0, 2]))
        self.newest = dict(zip(self.NAMES, errors, strict=True))
        self._sum += errors
        self._steps += 1

    def report(self) -> dict[str, Any]:
        """See `Figures`; the errors' means by name, and "metrics" as of `TaskMetrics`."""
        means = (self._sum / self._steps).tolist() if self._steps else (None, None)
        return dict(zip(self.NAMES, means, strict=True)) | (self._others.report() if self._others is not None else {})


def command_figures(notes: list[Note]) -> dict[str, Any]:
    """Return how many commands arrived, how many were lost, and the delays of the policy's answers [us]."""
    figures: dict[str, Any] = {"received": len(notes)}
    by_commander: dict[int, list[int]] = {}
    for note in notes:
        by_commander.setdefault(note.commander, []).append(note.sequence)
    figures["lost"] = sum(max(0, seen[-1] - seen[0] + 1 - len(set(seen))) for seen in by_commander.values())
    first: dict[int, int] = {}  # while states are unusable, commands still name the last usable one
    for note in notes:
        if note.from_policy and note.answer_ns >= 0:
            first.setdefault(note.state_sequence, note.answer_ns)
    answers = np.array(list(first.values())) / 1e3
    figures["from_policy"] = len(answers)
    if len(answers):
        p50, p99, p999 = np.percentile(answers, [50, 99, 99.9])
        figures["state_to_command_us"] = {"p50": round(p50, 1), "p99": round(p99, 1), "p99.9": round(p999, 1)}
    return figures
