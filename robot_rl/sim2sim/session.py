"""A session in real time: the robot hangs on a gantry, stands and walks, under faults if there are any.

The simulated robot runs in this process, the robot's binary in another, and with faults a proxy in a third.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError
from robot_rl.sim2sim.binary import Binary, high_priority, load_runtime
from robot_rl.sim2sim.commands import Commands, make_commands
from robot_rl.sim2sim.faults import Fault, check_faults
from robot_rl.sim2sim.link import LOOPBACK, RealTime, free_ports, make_link, request_of
from robot_rl.sim2sim.plant import TICK_S, Plant
from robot_rl.sim2sim.proxy import ProxyProcess
from robot_rl.view.viewer.command import command_info

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

STAND_S = 2.0
"""Time that the binary takes to stand up by default [s]."""
AGAIN_S = 3.0
"""With a fault without an end, the robot has to walk again within this time after it stood up [s]."""
REPEAT_S = 0.1
"""Period at which a request is repeated until it is granted [s]."""
SETTLING_S = 1.0
"""The tracking error counts from this time after the policy started or the command changed [s]."""
START_S = 30.0
"""The policy has to start within this simulated time [s]."""


@dataclass(kw_only=True, slots=True)
class SessionCfg:
    """Settings of a session.

    Attributes:
        seconds: Time under the policy [s]; 0: no end.
        transport: "udp", "shm" or "dds".
        command: See `robot_rl.sim2sim.commands.make_commands`.
        faults: Faults that the proxy applies; without any there is no proxy.
        recover: After a fault or a fall, hang the robot up and begin again; else the session ends.
        tick_s: Physics step and period of the states [s].
        settings: Settings of the binary by name.
        log: Directory or file for the binary's log; empty: none.
        arguments: Further words of the binary's command line.
        watch_s: How long the session goes on after a fault that ends it [s].
    """

    seconds: float = 10.0
    transport: str = "udp"
    command: str = "task"
    faults: tuple[Fault, ...] = ()
    recover: bool = True
    seed: int = 0
    tick_s: float = TICK_S
    settings: dict[str, float] = field(default_factory=dict)
    log: str = ""
    arguments: tuple[str, ...] = ()
    watch_s: float = 1.0


class Session:
    """The processes of a session and the operator's part; `run` it, read its `report`, `close` it.

    Attributes:
        policy_s: Time under the policy so far [s].
        on_step: Called after each control step.
        stepped: What the environment's last `step` returned.
    """

    def __init__(self, task: Task, bundle: Path, cfg: SessionCfg, folder: Path) -> None:
        """Build the world and start the processes, which write their reports to a directory.

        Raises:
            UserError: Something requested is not available.
        """
        self._runtime, self.cfg = load_runtime(), cfg
        self._stand_s = cfg.settings.get("stand_s", STAND_S)
        self._again_s = AGAIN_S if any(math.isinf(fault.end_s) for fault in cfg.faults) else math.inf
        self.phase, self._phase_since, self._requested_at = "", 0.0, -1.0
        self._has_fault, self._is_over, self._is_halted = False, False, False
        self.policy_s, self.falls, self._stayed_damped = 0.0, 0, ""
        self._phases: list[dict[str, Any]] = []
        self._faults: list[dict[str, Any]] = []
        self._error_sum, self._error_steps = np.zeros(2), 0
        self._followed, self._followed_steps = np.zeros(3), 0
        self.on_step: Callable[[], None] | None = None
        self.stepped: tuple[Any, ...] = ()
        with contextlib.ExitStack() as stack:
            self._start(task, bundle, folder, stack)
            self._stack = stack.pop_all()

    def _start(self, task: Task, bundle: Path, folder: Path, stack: contextlib.ExitStack) -> None:
        cfg = self.cfg
        self.plant = plant = Plant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        stack.callback(plant.close)
        robot, transport = self._addresses()
        check_faults(cfg.faults, transport, len(plant.joint_names))
        self.link = make_link(plant, robot, bundle)
        stack.callback(self.link.close)
        heard = operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
        self._proxy: ProxyProcess | None = None
        if cfg.faults:
            operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
            where = {"front": transport, "robot": robot, "desk": operator, "operator": heard}
            if cfg.transport != "udp":
                where["contract"] = str(bundle / "contract.json")
            self._proxy = ProxyProcess(folder, faults=cfg.faults, **where)
            stack.callback(self._proxy.stop)
        self._operator = self._runtime.OperatorEnd(operator)
        self.binary = Binary(
            bundle,
            folder,
            transport=transport if cfg.faults else robot,
            operator=heard,
            settings=cfg.settings,
            arguments=[*(["--log", cfg.log] if cfg.log else []), *cfg.arguments],
        )
        stack.callback(self.binary.stop)
        self._info = command_info(plant.env)
        self.commands: Commands = make_commands(cfg.command, plant.env, cfg.seconds or 60.0)
        self.exchange, self._idle_since = RealTime(self.link), plant.time_s
        plant.connect(self.exchange)
        plant.hold(True)
        self._zeros = torch.zeros(1, plant.env.num_actions)

    def _addresses(self) -> tuple[str, str]:
        """Return the addresses of the robot, and of a proxy that is the robot to the binary."""
        ports = free_ports(2)
        if self.cfg.transport == "udp":
            return f"udp:{LOOPBACK}:{ports[0]}", f"udp:{LOOPBACK}:{ports[1]}"
        if self.cfg.transport == "shm":
            return f"shm:sim2sim-{ports[0]}", f"shm:sim2sim-{ports[0]}-front"
        family = self._runtime.unitree_family(self.plant.env.scene.robot.name)
        domain = 1 + 2 * (ports[0] % 100)  # a pair of domains; never 0, the robots' own
        return f"dds:{family}?domain={domain}&interface=lo", f"dds:{family}?domain={domain + 1}&interface=lo"

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Simulate until the time is over, an unrecovered fault, or `should_stop`.

        Raises:
            UserError: The binary ended by itself.
            PeerError: The policy did not start.
        """
        env = self.plant.env
        with high_priority():
            while not self._is_over:
                self.binary.check()
                if should_stop():
                    return
                self._steer()
                before = env.state.command[0, :3].cpu().numpy().copy() if self._tracks else np.zeros(3)
                self.stepped = env.step(self._zeros)
                done = bool(self.stepped[2][0])
                self._note_phase()
                if done:
                    self._fell()
                elif self.phase == "POLICY":
                    self._track(before)
                if self.on_step is not None:
                    self.on_step()
                self._judge()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def report(self) -> dict[str, Any]:
        """End the other processes; return time under the policy, falls, faults, tracking error and their reports."""
        self.binary.request_stop()
        with high_priority():  # 2 s at most, so that the binary ends with a robot that answers
            for _ in range(round(2.0 / self.plant.env.step_dt)):
                if not self.binary.alive:
                    break
                if bool(self.plant.env.step(self._zeros)[2][0]):
                    self.plant.was_reset()
        self.binary.stop()
        linear, yaw = (self._error_sum / self._error_steps).tolist() if self._error_steps else (None, None)
        result = {
            "policy_s": round(self.policy_s, 4),
            "simulated_s": round(self.plant.time_s, 4),
            "falls": self.falls,
            "stayed_damped": self._stayed_damped,
            "faults": self._faults,
            "phases": self._phases,
            "lin_vel_error": linear,
            "yaw_vel_error": yaw,
            "late_ticks": self.exchange.late,
            "slipped_s": round(self.exchange.slipped_s, 4),
            "states": int(self.link.low.sequence),
            "commands": command_figures(self.link.notes),
            "notes": self.plant.notes,
            "binary": self.binary.report(),
        }
        if self._proxy is not None:
            self._proxy.stop()
            result["proxy"] = self._proxy.report()
        return result

    @property
    def _tracks(self) -> bool:
        """Whether the robot is to follow a velocity, so that an error can be measured."""
        return self._info is not None and self._info.is_velocity

    def _operate(self, request: str, command: np.ndarray | None) -> None:
        """Send a message of the operator."""
        self._operator.send([] if command is None else command.tolist(), request_of(self._runtime, request))

    def _steer(self) -> None:
        """Send the binary the command, and the request for the next phase."""
        command = self.commands.command(self.policy_s)
        if command is not None and self._info is not None:
            self.plant.env.set_command(torch.from_numpy(command))
        request = self.commands.take_request()
        if request:
            self._is_halted = request == "damp"
        elif not self._is_halted:
            request = self._next_request()
        if request:
            self._requested_at = self.plant.time_s
        self._operate(request, self.plant.env.state.command[0].cpu().numpy() if self._info is not None else None)

    def _next_request(self) -> str:
        """Return the request that makes the robot walk, repeated until it is granted."""
        if self.plant.time_s - self._requested_at < REPEAT_S:
            return ""
        if self.phase == "DAMPING":
            if self._has_fault and not self.cfg.recover:
                return ""
            return "stand" if self.link.fault in ("none", "operator_stop") else "damp"  # which clears a latched fault
        if self.phase == "STAND" and self.plant.time_s - self._phase_since > self._stand_s + REPEAT_S:
            self.plant.hold(False)
            return "policy"
        return ""

    def _note_phase(self) -> None:
        phase, fault = self.link.phase, self.link.fault
        if phase == self.phase:
            return
        now = self.plant.time_s
        self._phases.append({"time_s": round(now, 4), "phase": phase, "fault": fault})
        if phase == "DAMPING" and self.phase in ("STAND", "POLICY"):
            self._has_fault = True
            self._faults.append({"time_s": round(now, 4), "policy_s": round(self.policy_s, 4), "fault": fault})
        elif phase == "POLICY":
            self._has_fault = False
            self._followed_steps = 0
        self.phase, self._phase_since = phase, now

    def _fell(self) -> None:
        """Hang the robot on the gantry again after the environment has reset it."""
        self.plant.was_reset()
        self.plant.hold(True)
        if self.phase == "POLICY" or self._has_fault:
            self.falls += 1
        if self.phase == "POLICY":
            self._operate("damp", None)

    def _track(self, command: np.ndarray) -> None:
        """Add the tracking error of a step that was to follow a velocity (3,)."""
        state, step_dt = self.plant.env.state, self.plant.env.step_dt
        self.policy_s += step_dt
        if not self._tracks:
            return
        if not np.array_equal(command, self._followed):
            self._followed, self._followed_steps = command, 0
        self._followed_steps += 1
        if self._followed_steps * step_dt <= SETTLING_S:
            return
        linear = np.linalg.norm(command[:2] - state.base_lin_vel_b[0, :2].cpu().numpy())
        self._error_sum += float(linear), abs(float(command[2] - state.base_ang_vel_b[0, 2]))
        self._error_steps += 1

    def _judge(self) -> None:
        """Decide whether the session is over."""
        cfg, now = self.cfg, self.plant.time_s
        if cfg.seconds and self.policy_s >= cfg.seconds:
            self._is_over = True
        if self._has_fault and not cfg.recover and now - self._phase_since > cfg.watch_s:
            self._is_over = True
        if self.phase == "POLICY" or self._is_halted:
            self._idle_since = now
        idle_s = now - self._idle_since
        if self._has_fault and self.policy_s and idle_s > self._again_s + self._stand_s:
            self._is_over, self._stayed_damped = True, self.link.fault
        if idle_s > START_S + self._stand_s:
            raise PeerError(
                f"robot-rl-infer did not walk for {idle_s:.0f} s: phase {self.phase}, fault {self.link.fault}"
            )


def command_figures(notes: list[Any]) -> dict[str, Any]:
    """Return how many commands arrived, how many were lost, and the delays of the policy's answers [us]."""
    figures: dict[str, Any] = {"received": len(notes)}
    by_commander: dict[int, list[int]] = {}
    for note in notes:
        by_commander.setdefault(note.commander, []).append(note.sequence)
    figures["lost"] = sum(max(0, seen[-1] - seen[0] + 1 - len(set(seen))) for seen in by_commander.values())
    first: dict[int, int] = {}  # while states are unusable, commands go on naming the last usable one
    for note in notes:
        if note.from_policy and note.answer_ns >= 0:
            first.setdefault(note.state_sequence, note.answer_ns)
    answers = np.array(list(first.values())) / 1e3
    figures["from_policy"] = len(answers)
    if len(answers):
        p50, p99, p999 = np.percentile(answers, [50, 99, 99.9])
        figures["state_to_command_us"] = {"p50": round(p50, 1), "p99": round(p99, 1), "p99.9": round(p999, 1)}
    return figures
