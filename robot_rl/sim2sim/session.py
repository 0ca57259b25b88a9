"""A session in real time: the robots hang on gantries, stand and walk, under faults if there are any.

The simulated world runs in this process, each robot's binary in another, and with faults a proxy in a third. The robots
of a team hang until all of them stand, and walk together; one that is damped or loses its binary stays out, and the
others continue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from robot_rl.errors import PeerError, UserError, suggest
from robot_rl.sim2sim.binary import DAY_S, Binary, high_priority, load_runtime
from robot_rl.sim2sim.commands import Commands, make_commands
from robot_rl.sim2sim.faults import Fault, check_faults
from robot_rl.sim2sim.figures import Figures, TaskMetrics, Tracking, command_figures
from robot_rl.sim2sim.link import LOOPBACK, Link, RealTime, free_ports, make_link, request_of
from robot_rl.sim2sim.message_relay import make_message_relay
from robot_rl.sim2sim.plant import LONE, TICK_S, Body, Plant
from robot_rl.sim2sim.proxy import ProxyProcess
from robot_rl.view.viewer.command import CommandInfo, command_info

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

STAND_S = 2.0
"""Time that the binary takes to stand up by default [s]."""
AGAIN_S = 3.0
"""With a fault without an end, the robot has to walk again within this time after it stood up [s]."""
REPEAT_S = 0.1
"""Period at which a request is repeated until it is granted [s]."""
START_S = 30.0
"""The policy has to start within this simulated time [s]."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The binary of a robot is killed (SIGKILL) at a time since the policies started [s]."""

    robot: str
    at_s: float


def read_kills(text: str, robots: list[str], seconds: float = 0.0) -> tuple[Kill, ...]:
    """Return the kills of an option such as "rear@4,front@6", for a session of so many seconds (0: without an end).

    Raises:
        UserError: It is written otherwise, the robot is unknown, or the session ends before.
    """
    kills = []
    for part in filter(None, text.split(",")):
        name, at, time_s = part.partition("@")
        try:
            when = float(time_s) if at else -1.0
        except ValueError:
            when = -1.0
        if not 0 <= when < DAY_S:
            raise UserError("kill", text, f"'{part}' must be robot@seconds, such as {robots[-1]}@4")
        if name not in robots:
            raise UserError("kill", text, f"there is no robot '{name}'", suggest(name, robots))
        if 0 < seconds <= when:
            raise UserError("kill", text, f"the session ends after {seconds:g} s", f"give seconds= above {when:g}")
        kills.append(Kill(name, when))
    return tuple(kills)


@dataclass(kw_only=True, slots=True)
class SessionCfg:
    """Settings of a session.

    Attributes:
        seconds: Time under the policies [s]; 0: no end.
        transport: "udp", "shm" or "dds".
        command: Of one robot, see `robot_rl.sim2sim.commands.make_commands`; a team takes the task's own.
        faults: Faults that a proxy applies; without any the proxy is omitted.
        kills: Robots whose binaries are killed, and when.
        recover: After a fault or a fall, hang one robot up and begin again; else the session ends.
        tick_s: Physics step and period of the states [s].
        settings: Settings of the binaries by name.
        log: Directory or file for the binary's log, of a team a directory with a folder for each; empty: none.
        arguments: Further words of the binaries' command lines.
        watch_s: Time by which the session of one robot continues after a fault that ends it [s].
    """

    seconds: float = 10.0
    transport: str = "udp"
    command: str = "task"
    faults: tuple[Fault, ...] = ()
    kills: tuple[Kill, ...] = ()
    recover: bool = True
    seed: int = 0
    tick_s: float = TICK_S
    settings: dict[str, float] = field(default_factory=dict)
    log: str = ""
    arguments: tuple[str, ...] = ()
    watch_s: float = 1.0


@dataclass(kw_only=True, slots=True)
class Member:
    """A robot of a session: its body, its link, its binary, and the events so far.

    Attributes:
        operator: The operator's end of the protocol.
        info: Description of its command; None without one.
        since_s: Start of the phase [s].
        requested_s: Time of the last request [s].
        has_fault: Whether it was damped while it stood or walked, and has not walked since.
        is_killed: Whether its binary was killed.
        policy_s: Time under the policy so far [s].
    """

    name: str
    body: Body
    link: Link
    binary: Binary
    proxy: ProxyProcess | None
    operator: Any
    info: CommandInfo | None
    figures: Figures
    phase: str = ""
    since_s: float = 0.0
    requested_s: float = -1.0
    has_fault: bool = False
    is_killed: bool = False
    policy_s: float = 0.0
    falls: int = 0
    phases: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def note_phase(self, now_s: float, policy_s: float) -> None:
        """Note the phase of the newest command, at a time of the simulation and of the session's policies [s]."""
        phase, fault = self.link.phase, self.link.fault
        if phase == self.phase:
            return
        self.phases.append({"time_s": round(now_s, 4), "phase": phase, "fault": fault})
        if phase == "DAMPING" and self.phase in ("STAND", "POLICY"):
            self.has_fault = True
            self.faults.append({"time_s": round(now_s, 4), "policy_s": round(policy_s, 4), "fault": fault})
        elif phase == "POLICY":
            self.has_fault = False
            self.figures.restart()
        self.phase, self.since_s = phase, now_s

    def operate(self, request: str, *, commands: bool = True) -> None:
        """Send a message of the operator, with the robot's command."""
        command = self.body.env.state.command[self.body.row].tolist() if commands and self.info is not None else []
        self.operator.send(command, request_of(load_runtime(), request))


class Session:
    """The processes of a session and the operator's part; `run` it, read its `report`, `close` it.

    Attributes:
        is_team: Whether the task is of a team.
        plant, exchange, messages: The world, its real time, and the relay of a team's messages, if there are any.
        members: The robots by name, see `Plant.bodies`.
        policy_s: Time so far in which a policy ran [s].
        commands: Source of the command and the operator's requests.
        on_step: Called after each control step.
        stepped: Result of the environment's last `step`.
    """

    def __init__(self, task: Task, bundles: Mapping[str, Path], cfg: SessionCfg, folder: Path) -> None:
        """Build the world and start the processes, which write their reports to a directory.

        Args:
            task: The task, of which an episode does not end here.
            bundles: Directory of the bundle of each robot by name, see `Plant.bodies`.
            cfg: The settings.
            folder: The directory; a team has a folder for each robot in it.

        Raises:
            UserError: Something requested is not available.
        """
        self._runtime, self.cfg, self.is_team = load_runtime(), cfg, bool(task.robots)
        self._stand_s = cfg.settings.get("stand_s", STAND_S)
        self._again_s = AGAIN_S if any(math.isinf(fault.end_s) for fault in cfg.faults) else math.inf
        self._recovers, self._watch_s = (False, 0.0) if self.is_team else (cfg.recover, cfg.watch_s)
        self._is_over, self._is_halted = False, False
        self.policy_s, self._stayed_damped = 0.0, ""
        self.on_step: Callable[[], None] | None = None
        self.stepped: tuple[Any, ...] = ()
        with contextlib.ExitStack() as stack:
            self.plant = plant = Plant(for_session(task), seed=cfg.seed, tick_s=cfg.tick_s)
            stack.callback(plant.close)
            self.messages = make_message_relay(bundles, cfg.seed) if self.is_team else None
            if self.messages is not None:
                stack.callback(self.messages.close)
            self._pair = free_ports(1)[0] % 100
            self.members = {name: self._start(name, bundles[name], folder / name, stack) for name in plant.bodies}
            self.commands = Commands()
            if not self.is_team:
                self.commands = make_commands(cfg.command, plant.env, cfg.seconds or 60.0)
            self._stack = stack.pop_all()
        links = {name: member.link for name, member in self.members.items()}
        self.exchange, self._idle_since = RealTime(links, self.messages and self.messages.carry), plant.time_s
        plant.connect(self.exchange)
        plant.hold(True)
        self._zeros = torch.zeros(plant.env.num_envs, plant.env.num_actions)

    @property
    def robot(self) -> Member:
        """The robot of a task without a team."""
        return self.members[LONE]

    def _start(self, name: str, bundle: Path, folder: Path, stack: contextlib.ExitStack) -> Member:
        """Start the processes of a robot."""
        cfg, body = self.cfg, self.plant.bodies[name]
        robot, front = self._addresses(body)
        link = make_link(body, robot, bundle)
        stack.callback(link.close)
        if cfg.faults:
            signals = [term.signal for term in link.contract.observations]
            check_faults(cfg.faults, front, len(body.joint_names), signals)
        heard = operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
        proxy = None
        if cfg.faults:
            operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
            ends = {"front": front, "robot": robot, "desk": operator, "operator": heard}
            if cfg.transport != "udp":
                ends["contract"] = str(bundle / "contract.json")
            proxy = ProxyProcess(folder, faults=cfg.faults, **ends)
            stack.callback(proxy.close)
        binary = Binary(
            bundle,
            folder,
            transport=front if cfg.faults else robot,
            operator=heard,
            settings=cfg.settings,
            arguments=[
                *(["--log", str(Path(cfg.log, name))] if cfg.log else []),
                *(self.messages.arguments(name) if self.messages is not None else []),
                *cfg.arguments,
            ],
        )
        stack.callback(binary.stop)
        info = command_info(body.env)
        return Member(
            name=name,
            body=body,
            link=link,
            binary=binary,
            proxy=proxy,
            operator=self._runtime.OperatorEnd(operator),
            info=info,
            figures=TaskMetrics(body) if self.is_team else Tracking(body, info),
        )

    def _addresses(self, body: Body) -> tuple[str, str]:
        """Return the addresses of a robot, and of a proxy that is the robot to the binary."""
        ports = free_ports(2)
        if self.cfg.transport == "udp":
            return f"udp:{LOOPBACK}:{ports[0]}", f"udp:{LOOPBACK}:{ports[1]}"
        if self.cfg.transport == "shm":
            return f"shm:sim2sim-{ports[0]}", f"shm:sim2sim-{ports[0]}-front"
        family = self._runtime.unitree_family(body.env.scene.robot.name)
        domain = 1 + 2 * self._pair  # A pair of domains for each robot; never 0, the robots' own.
        self._pair = (self._pair + 1) % 100
        return f"dds:{family}?domain={domain}&interface=lo", f"dds:{family}?domain={domain + 1}&interface=lo"

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Simulate until the time is over, no robot is to walk any more, or `should_stop`.

        Raises:
            UserError: A binary ended by itself.
            PeerError: The policies did not start.
        """
        with high_priority():
            while not self._is_over:
                for member in self.members.values():
                    if not member.is_killed:
                        member.binary.check()
                if should_stop():
                    return
                self._kill()
                self._steer()
                for member in self.members.values():
                    member.figures.before_step()
                self.stepped = self.plant.env.step(self._zeros)
                self._note()
                if self.on_step is not None:
                    self.on_step()
                self._judge()

    def close(self) -> None:
        """End all processes."""
        self._stack.close()

    def kill(self, name: str) -> None:
        """Kill the binary of a robot (SIGKILL)."""
        member = self.members[name]
        if not member.is_killed:
            os.kill(member.binary.process.pid, signal.SIGKILL)
            member.is_killed = True

    def report(self) -> dict[str, Any]:
        """End the other processes; return the figures, of a team those of each robot as "robots"."""
        members = self.members.values()
        figures = {member.name: member.figures.report() for member in members}
        for member in members:
            member.binary.request_stop()
        with high_priority():  # 2 s at most, so that the binaries end with robots that answer
            for _ in range(round(2.0 / self.plant.env.step_dt)):
                if not any(member.binary.alive for member in members):
                    break
                done = self.plant.env.step(self._zeros)[2].tolist()
                for member, ended in zip(members, done, strict=True):
                    if ended:
                        member.body.was_reset()
        rows = {member.name: self._row(member) | figures[member.name] for member in members}
        result = {
            "policy_s": round(self.policy_s, 4),
            "simulated_s": round(self.plant.time_s, 4),
            "late_ticks": self.exchange.late,
            "slipped_s": round(self.exchange.slipped_s, 4),
            "notes": self.plant.notes,
        }
        if self.messages is not None:
            result["messages"] = {"sent": self.messages.sent, "lost": self.messages.lost}
        return result | ({"robots": rows} if self.is_team else rows[LONE] | {"stayed_damped": self._stayed_damped})

    def _row(self, member: Member) -> dict[str, Any]:
        """End the processes of a robot; return its part of the report, without the figures."""
        member.binary.stop()
        row: dict[str, Any] = {"policy_s": round(member.policy_s, 4)}
        row |= {"killed": member.is_killed} if self.is_team else {"falls": member.falls}
        row |= {"faults": member.faults, "phases": member.phases, "commands": command_figures(member.link.notes)}
        row |= {} if self.is_team else {"states": int(member.link.low.sequence)}
        row["binary"] = member.binary.report()
        if member.proxy is not None:
            member.proxy.close()
            row["proxy"] = member.proxy.report()
        return row

    def _kill(self) -> None:
        for kill in self.cfg.kills:
            if self.policy_s and self.policy_s >= kill.at_s:
                self.kill(kill.robot)

    def _is_out(self, member: Member) -> bool:
        """Whether a robot walks no more: it was killed, or is damped by a fault for good."""
        return member.is_killed or (member.has_fault and not self._recovers)

    def _steer(self) -> None:
        """Send each binary its command, and the request for the next phase."""
        command = self.commands.command(self.policy_s)
        if command is not None and self.robot.info is not None:
            self.plant.env.set_command(torch.from_numpy(command))
        requested = self.commands.take_request()
        if requested:
            self._is_halted = requested == "damp"
        may_walk = all(self._stands(member) for member in self.members.values() if not self._is_out(member))
        for member in self.members.values():
            request = requested or ("" if self._is_halted else self._next_request(member, may_walk=may_walk))
            if request:
                member.requested_s = self.plant.time_s
            member.operate(request)

    def _stands(self, member: Member) -> bool:
        """Whether a robot has stood up, or walks already."""
        stood_s = self.plant.time_s - member.since_s
        return member.phase == "POLICY" or (member.phase == "STAND" and stood_s > self._stand_s + REPEAT_S)

    def _next_request(self, member: Member, *, may_walk: bool) -> str:
        """Return the request that makes a robot walk, repeated until it is granted."""
        if self._is_out(member) or self.plant.time_s - member.requested_s < REPEAT_S:
            return ""
        if member.phase == "DAMPING":
            return "stand" if member.link.fault in ("none", "operator_stop") else "damp"  # which clears a latched fault
        if member.phase == "STAND" and may_walk:
            self.plant.hold(False)
            return "policy"
        return ""

    def _note(self) -> None:
        """Note each robot's phase and fall, and the figures under the policies."""
        is_running = False
        for member, ended in zip(self.members.values(), self.stepped[2].tolist(), strict=True):
            member.note_phase(self.plant.time_s, self.policy_s)
            if ended:
                self._fell(member)
            elif member.phase == "POLICY":
                member.policy_s += self.plant.env.step_dt
                is_running = True
        if is_running:
            self.policy_s += self.plant.env.step_dt
            for member in self.members.values():
                member.figures.after_step()

    def _fell(self, member: Member) -> None:
        """Hang a robot on the gantry again after the environment has reset it."""
        member.body.was_reset()
        member.body.hold(True)
        if member.phase == "POLICY" or member.has_fault:
            member.falls += 1
        if member.phase == "POLICY":
            member.operate("damp", commands=False)

    def _judge(self) -> None:
        """Decide whether the session is over."""
        members, now = list(self.members.values()), self.plant.time_s
        if 0 < self.cfg.seconds <= self.policy_s:
            self._is_over = True
        if all(map(self._is_out, members)) and now - max(member.since_s for member in members) > self._watch_s:
            self._is_over = True
        if self._is_halted or any(member.phase == "POLICY" for member in members):
            self._idle_since = now
        idle_s = now - self._idle_since
        if all(m.has_fault for m in members) and self.policy_s and idle_s > self._again_s + self._stand_s:
            self._is_over, self._stayed_damped = True, members[0].link.fault
        if idle_s > START_S + self._stand_s:
            states = [f"{m.name} phase {m.phase}, fault {m.link.fault}".strip() for m in members]
            raise PeerError(f"robot-rl-infer did not walk for {idle_s:.0f} s: {'; '.join(states)}")


def for_session(task: Task) -> Task:
    """Return a task without an end; all robots of a team are in it, and one that is out ends nothing for the others."""
    if not task.robots:
        return dataclasses.replace(task, episode_length_s=DAY_S)
    roles = {name: dataclasses.replace(role, terminations={}) for name, role in task.roles.items()}
    team = dataclasses.replace(task.team, size=(0, 0), joins=0.0)
    return dataclasses.replace(task, terminations={}, roles=roles, team=team, episode_length_s=DAY_S)
