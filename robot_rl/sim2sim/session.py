"""A session in real time: the robot hangs on a gantry, stands, walks; what goes wrong is noted and put right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError
from robot_rl.sim2sim.commands import Commands, Fixed

if TYPE_CHECKING:
    from robot_rl.sim2sim.exchange import RealTime
    from robot_rl.sim2sim.link import Link
    from robot_rl.sim2sim.plant import Plant

ASK_EVERY_S = 0.1
"""A request is repeated that often until it is granted [s]."""
SETTLING_S = 1.0
"""The tracking error counts from so long after the policy took over, or after a change of the command [s]."""
START_S = 30.0
"""The policy has to be at work by then, in simulated time [s]."""


@dataclass(kw_only=True, slots=True)
class SessionCfg:
    """What a session is to be.

    Attributes:
        seconds: Simulated time under the policy [s]; 0: no end.
        stand_s: Time that the binary takes to stand up [s], as in its settings.
        recover: After a fault or a fall, hang the robot up and begin again; else the session ends.
        watch_s: How long to look on after a fault that ends the session [s].
        again_s: A robot that walked and does not get to walk again ends the session so long after the time that
            standing up takes [s].
    """

    seconds: float = 10.0
    stand_s: float = 2.0
    recover: bool = True
    watch_s: float = 1.0
    again_s: float = math.inf


@dataclass(slots=True)
class Tracking:
    """Sums of the tracking error over control steps."""

    steps: int = 0
    linear: float = 0.0
    yaw: float = 0.0
    since: int = 0
    command: np.ndarray = field(default_factory=lambda: np.zeros(3))


class Session:
    """The operator's part and the book-keeping of a session; see `run`."""

    def __init__(
        self,
        plant: Plant,
        link: Link,
        exchange: RealTime,
        operate: Callable[[str, np.ndarray | None], None],
        *,
        cfg: SessionCfg,
        commands: Commands | None = None,
    ) -> None:
        """Takes over a plant that no one commands yet.

        Args:
            plant: The robot.
            link: Its end of the protocol.
            exchange: The clock.
            operate: Sends a message of the operator: request and command.
            cfg: What to do.
            commands: Where the command comes from; the task's own draw where None.
        """
        self.plant, self.link, self.exchange, self.cfg = plant, link, exchange, cfg
        self.commands = commands or Fixed()
        self._operate = operate
        self._tracking, self._idle_since = Tracking(), plant.time_s
        self.phase, self._phase_since, self._asked_at = "", 0.0, -1.0
        self._has_fault, self._is_over, self._is_halted = False, False, False
        self.policy_s, self.falls, self.stayed_damped = 0.0, 0, ""
        self.phases: list[dict[str, Any]] = []
        self.faults: list[dict[str, Any]] = []
        self.on_step: Callable[[], None] | None = None
        plant.connect(exchange)
        plant.hold(True)
        self._zeros = torch.zeros(1, plant.env.num_actions)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Simulates until the time is over, an unrecovered fault, or `should_stop`.

        Returns:
            The report; see `report`.

        Raises:
            PeerError: The policy never came to work.
        """
        env = self.plant.env
        while not self._is_over and not should_stop():
            self._steer()
            before = env.state.command[0].cpu().numpy().copy() if self._tracks else np.zeros(3)
            done = bool(env.step(self._zeros)[2][0])
            self._note_phase()
            if done:
                self._fell()
            elif self.phase == "POLICY":
                self._track(before)
            if self.on_step is not None:
                self.on_step()
            self._judge()
        return self.report()

    def go_on(self, is_over: Callable[[], bool], seconds: float = 2.0) -> None:
        """Simulates on without an operator, for that long at most, so that the binary can end in peace."""
        for _ in range(round(seconds / self.plant.env.step_dt)):
            if is_over():
                return
            if bool(self.plant.env.step(self._zeros)[2][0]):
                self.plant.was_reset()

    @property
    def _tracks(self) -> bool:
        return getattr(self.plant.env.state, "command", torch.zeros(1, 0)).shape[1] == 3

    # -- the operator ------------------------------------------------------------------------------------------------

    def _steer(self) -> None:
        """Tells the binary the command, and asks it for the next phase."""
        command = self.commands.command(self.policy_s)
        if command is not None and self._tracks:
            self.plant.env.set_command(torch.from_numpy(command))
        told = self.plant.env.state.command[0].cpu().numpy() if self._tracks else None
        asked = self.commands.take_request()
        if asked:
            self._is_halted = asked == "damp"
        request = asked or ("" if self._is_halted else self._wish())
        if request:
            self._asked_at = self.plant.time_s
        self._operate(request, told)

    def _wish(self) -> str:
        """The request that brings the robot to walk, repeated until it is granted."""
        if self.plant.time_s - self._asked_at < ASK_EVERY_S:
            return ""
        if self.phase == "DAMPING":
            if self._has_fault and not self.cfg.recover:
                return ""
            return "damp" if self._needs_clearing() else "stand"
        if self.phase == "STAND" and self.plant.time_s - self._phase_since > self.cfg.stand_s + ASK_EVERY_S:
            self.plant.hold(False)
            return "policy"
        return ""

    def _needs_clearing(self) -> bool:
        """Whether a fault is latched that the operator has to clear first."""
        return self.link.fault not in ("none", "operator_stop")

    # -- what happened -----------------------------------------------------------------------------------------------

    def _note_phase(self) -> None:
        phase, fault = self.link.phase, self.link.fault
        if phase == self.phase:
            return
        now = self.plant.time_s
        self.phases.append({"time_s": round(now, 4), "phase": phase, "fault": fault})
        if phase == "DAMPING" and self.phase in ("STAND", "POLICY"):
            self._has_fault = True
            self.faults.append({"time_s": round(now, 4), "policy_s": round(self.policy_s, 4), "fault": fault})
        elif phase == "POLICY":
            self._has_fault = False
            self._tracking.since = 0
        self.phase, self._phase_since = phase, now

    def _fell(self) -> None:
        """The environment put the robot back where it starts: it hangs on the gantry again."""
        self.plant.was_reset()
        self.plant.hold(True)
        if self.phase == "POLICY" or self._has_fault:
            self.falls += 1
        if self.phase == "POLICY":
            self._operate("damp", None)

    def _track(self, command: np.ndarray) -> None:
        """Adds a step to the tracking error; `command` is what the step was to follow."""
        tracking, state, step_dt = self._tracking, self.plant.env.state, self.plant.env.step_dt
        self.policy_s += step_dt
        if not self._tracks:
            return
        if not np.array_equal(command, tracking.command):
            tracking.command, tracking.since = command, 0
        tracking.since += 1
        if tracking.since * step_dt <= SETTLING_S:
            return
        velocity = state.base_lin_vel_b[0, :2].cpu().numpy()
        tracking.steps += 1
        tracking.linear += float(np.linalg.norm(command[:2] - velocity))
        tracking.yaw += abs(float(command[2] - state.base_ang_vel_b[0, 2]))

    def _judge(self) -> None:
        """Decides whether the session is over."""
        cfg, now = self.cfg, self.plant.time_s
        if cfg.seconds and self.policy_s >= cfg.seconds:
            self._is_over = True
        if self._has_fault and not cfg.recover and now - self._phase_since > cfg.watch_s:
            self._is_over = True
        if self.phase == "POLICY" or self._is_halted:
            self._idle_since = now
        if self._has_fault and self.policy_s and now - self._idle_since > cfg.again_s + cfg.stand_s:
            self._is_over, self.stayed_damped = True, self.link.fault
        if now - self._idle_since > START_S + cfg.stand_s:
            raise PeerError(
                f"robot-rl-infer did not walk for {now - self._idle_since:.0f} s: "
                f"phase {self.phase}, fault {self.link.fault}"
            )

    def report(self) -> dict[str, Any]:
        """What happened: time under the policy, falls, faults, tracking error, what became of states and commands."""
        tracking, steps = self._tracking, max(1, self._tracking.steps)
        tracked = self._tracks and tracking.steps > 0
        return {
            "policy_s": round(self.policy_s, 4),
            "simulated_s": round(self.plant.time_s, 4),
            "falls": self.falls,
            "stayed_damped": self.stayed_damped,
            "faults": self.faults,
            "phases": self.phases,
            "lin_vel_error": tracking.linear / steps if tracked else None,
            "yaw_vel_error": tracking.yaw / steps if tracked else None,
            "late_ticks": self.exchange.late,
            "slipped_s": round(self.exchange.slipped_s, 4),
            "states": int(self.link.low.sequence),
            "commands": command_figures(self.link.notes),
            "notes": self.plant.notes,
        }


def command_figures(notes: list[Any]) -> dict[str, Any]:
    """What the notes of commands add up to: how many came, how many were lost, and how fast the policy's were [us]."""
    figures: dict[str, Any] = {"received": len(notes)}
    by_commander: dict[int, list[int]] = {}
    for note in notes:
        by_commander.setdefault(note.commander, []).append(note.sequence)
    figures["lost"] = sum(max(0, seen[-1] - seen[0] + 1 - len(set(seen))) for seen in by_commander.values())
    first: dict[int, int] = {}  # while states cannot be used, commands go on naming the last one that could
    for note in notes:
        if note.from_policy and note.answer_ns >= 0:
            first.setdefault(note.state_sequence, note.answer_ns)
    answers = np.array(list(first.values())) / 1e3
    figures["from_policy"] = len(answers)
    if len(answers):
        p50, p99, p999 = np.percentile(answers, [50, 99, 99.9])
        figures["state_to_command_us"] = {"p50": round(p50, 1), "p99": round(p99, 1), "p99.9": round(p999, 1)}
    return figures
