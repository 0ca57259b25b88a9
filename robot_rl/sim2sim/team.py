"""A team in real time: one simulated world, and for each of its robots a binary of its own.

The robots hang on gantries until all of them stand, and walk together. One may lose its binary: its watchdog lets it
damp, and the others go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from robot_rl.errors import PeerError, UserError, as_user_error, suggest
from robot_rl.sim2sim.binary import DAY_S, Binary, high_priority, load_runtime
from robot_rl.sim2sim.link import BEHIND_S, LOOPBACK, Link, free_ports, make_link, request_of
from robot_rl.sim2sim.message_relay import MessageRelay
from robot_rl.sim2sim.plant import TICK_S, Body, ClockedBody, plant_task
from robot_rl.sim2sim.session import REPEAT_S, STAND_S, START_S, command_figures
from robot_rl.view.viewer.command import command_info


@dataclass(frozen=True, slots=True)
class Kill:
    """The binary of a robot is killed (SIGKILL) at a time since the policies started [s]."""

    robot: str
    at_s: float


def read_kills(text: str, robots: list[str], seconds: float = 0.0) -> tuple[Kill, ...]:
    """Return the kills of an option such as "rear@4,front@6", for a session of so many seconds (0: without an end).

    Raises:
        UserError: It is written otherwise, there is no such robot, or the session ends before.
    """
    found = []
    for part in filter(None, text.split(",")):
        name, at, time_s = part.partition("@")
        try:
            when = float(time_s) if at else -1.0
        except ValueError:
            when = -1.0
        if not 0 <= when < DAY_S:
            raise UserError(f"kill={text}: '{part}' must be robot@seconds, such as {robots[-1]}@4")
        if name not in robots:
            raise UserError(f"kill={text}: there is no robot '{name}'; {suggest(name, robots)}")
        if 0 < seconds <= when:
            raise UserError(f"kill={text}: the session ends after {seconds:g} s; give seconds= above {when:g}")
        found.append(Kill(name, when))
    return tuple(found)


@dataclass(kw_only=True, slots=True)
class TeamCfg:
    """Settings of a session of a team.

    Attributes:
        seconds: Time under the policies [s]; 0: without an end.
        transport: "udp", "shm" or "dds"; with dds each robot has a domain of its own.
        kills: Whose binary is killed, and when.
        seed: Of the world.
        tick_s: Physics step and period of the states [s].
        settings: Settings of the binaries by name.
        log: Directory for the binaries' logs, one folder a robot; empty: none.
        arguments: Further words of the binaries' command lines.
    """

    seconds: float = 10.0
    transport: str = "udp"
    kills: tuple[Kill, ...] = ()
    seed: int = 0
    tick_s: float = TICK_S
    settings: dict[str, float] = field(default_factory=dict)
    log: str = ""
    arguments: tuple[str, ...] = ()


class TeamBody(ClockedBody):
    """A robot of a team, by the time of its world."""

    def __init__(self, plant: TeamPlant, *args: Any, **options: Any) -> None:
        """Bind the arrays as `robot_rl.sim2sim.plant.Body` does."""
        super().__init__(*args, **options)
        self._plant = plant

    @property
    def time_s(self) -> float:
        """Simulated time of the world [s]."""
        return self._plant.time_s

    @property
    def is_active(self) -> bool:
        """Whether it takes part: it has joined, and has not fallen."""
        state: Any = self.env.state
        return bool(state.active[self.row])


class TeamExchange(Protocol):
    """Exchanges the states of a team for commands."""

    def tick(self, plant: TeamPlant, /) -> None:
        """Send the robots' states; give each the command that it obeys until the next tick."""
        ...


class TeamPlant:
    """One world of a team, stepped tick by tick under the commands of its robots' binaries.

    Attributes:
        env: The environment; a step runs the control period's ticks.
        bodies: Each robot.
        tick_s: Physics step and period of the states [s].
        ticks: Ticks since the start.
        notes: Differences to the training.
    """

    def __init__(self, task: Any, *, seed: int, world: int = 0, tick_s: float = TICK_S) -> None:
        """Build world number `world` of a seed; what raises a UserError is that of `plant_task`."""
        from robot_rl_envs.make import make_env

        from robot_rl.sources.native import start_warp

        changed, self.notes = plant_task(task, tick_s)
        start_warp()
        with as_user_error():
            env: Any = make_env(
                changed, num_envs=1, device="cpu", engine="mujoco", seed=seed, num_threads=1, world_offset=world
            )
        self.env = env
        self.bodies: dict[str, TeamBody] = {}
        for crew, where in zip(env.crews.values(), env.scene.maps, strict=True):
            for row, agent in enumerate(crew.scene.crew.agents):
                places = {kind: at[row] for kind, at in where.at.items()}
                self.bodies[env.agents[agent]] = TeamBody(self, crew, env.engine, row=row, places=places)
        self.bodies = {name: self.bodies[name] for name in env.agents}
        self.tick_s, self.ticks = changed.sim.timestep, 0
        self._exchange: TeamExchange | None = None
        self._step = env.engine.step
        env.engine.step = self._run_ticks

    @property
    def time_s(self) -> float:
        """Simulated time since the start [s]."""
        return self.ticks * self.tick_s

    def connect(self, exchange: TeamExchange) -> None:
        """Take the commands from an exchange."""
        self._exchange = exchange

    def hold(self, supported: bool) -> None:
        """Hold the bases where they are by gantries, or release them."""
        for body in self.bodies.values():
            body.hold(supported)

    def _run_ticks(self, substeps: int) -> None:
        """Run a control period, tick by tick, in place of the engine's step."""
        bodies = list(self.bodies.values())
        for body in bodies:
            body.begin()
        for _ in range(substeps):
            if self._exchange is not None:
                self._exchange.tick(self)
            for body in bodies:
                body.obey()
            self._step(1)
            self.ticks += 1
            for body in bodies:
                body.settle()
        for body in bodies:
            body.begin()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class TeamRealTime:
    """Sends every robot's state every tick of the clock; the joints obey the newest commands at its end.

    Attributes:
        late: Number of ticks that began more than half a tick late.
        slipped_s: Time by which the simulation fell behind and did not catch up [s].
    """

    def __init__(self, links: Mapping[str, Link], message_relay: MessageRelay | None = None) -> None:
        """Begin with the first tick; `message_relay` carries the messages between the robots, if there are any."""
        self._links, self._due, self._ether = links, 0.0, message_relay
        self.late, self.slipped_s = 0, 0.0

    def tick(self, plant: TeamPlant) -> None:
        """Send the states, sleep until the tick ends, and hand on the newest commands."""
        if self._ether is not None:
            self._ether.carry(time.monotonic())
        for name, link in self._links.items():
            plant.bodies[name].sense(link.low, link.measured)
            link.send(plant.time_s)
        now = time.monotonic()
        self._due = (self._due or now) + plant.tick_s
        if now > self._due - 0.5 * plant.tick_s:
            self.late += 1
        if now - self._due > BEHIND_S:
            self.slipped_s += now - self._due
            self._due = now
        if self._due > now:
            time.sleep(self._due - now)
        for name, link in self._links.items():
            link.take()
            plant.bodies[name].command = link.command


@dataclass(slots=True)
class Member:
    """A robot of a session: its binary, its link, and what happened to it."""

    name: str
    link: Link
    binary: Binary
    operator: Any
    phase: str = ""
    since_s: float = 0.0
    requested_s: float = -1.0
    is_killed: bool = False
    policy_s: float = 0.0
    phases: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_out(self) -> bool:
        """Whether it walks no more: it was killed, or is damped by a fault."""
        return self.is_killed or bool(self.faults)


class TeamSession:
    """The processes of a session and the operator's part; `run` it, read its `report`, `close` it.

    Attributes:
        policy_s: Time since the policies started [s].
        on_step: Called after each control step.
    """

    def __init__(self, task: Any, bundles: Mapping[str, Path], cfg: TeamCfg, folder: Path) -> None:
        """Build the world and start a binary for each robot, by the bundles of their names.

        Raises:
            UserError: Something requested is not available.
        """
        self._runtime, self.cfg = load_runtime(), cfg
        self._stand_s = cfg.settings.get("stand_s", STAND_S)
        self.policy_s, self._is_walking = 0.0, False
        self.on_step: Callable[[], None] | None = None
        self._sums: dict[str, np.ndarray] = {}
        self._steps = 0
        with contextlib.ExitStack() as stack:
            self.plant = TeamPlant(for_session(task), seed=cfg.seed, tick_s=cfg.tick_s)
            stack.callback(self.plant.close)
            self.message_relay = make_message_relay(bundles, cfg.seed)
            if self.message_relay is not None:
                stack.callback(self.message_relay.close)
            self.members = {
                name: self._start(name, body, bundles[name], folder / name, stack)
                for name, body in self.plant.bodies.items()
            }
            self._stack = stack.pop_all()
        self.exchange = TeamRealTime({name: member.link for name, member in self.members.items()}, self.message_relay)
        self.plant.connect(self.exchange)
        self.plant.hold(True)
        self._zeros = torch.zeros(self.plant.env.num_envs, self.plant.env.num_actions)

    def _start(self, name: str, body: Body, bundle: Path, folder: Path, stack: contextlib.ExitStack) -> Member:
        address = self._address(name, body)
        link = make_link(body, address, bundle)
        stack.callback(link.close)
        heard = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
        operator = self._runtime.OperatorEnd(heard)
        words = ["--log", str(Path(self.cfg.log) / name)] if self.cfg.log else []
        words += self.message_relay.arguments(name) if self.message_relay is not None else []
        binary = Binary(
            bundle,
            folder,
            transport=address,
            operator=heard,
            settings=self.cfg.settings,
            arguments=[*words, *self.cfg.arguments],
        )
        stack.callback(binary.stop)
        return Member(name, link, binary, operator)

    def _address(self, name: str, body: Body) -> str:
        port = free_ports(1)[0]
        if self.cfg.transport == "udp":
            return f"udp:{LOOPBACK}:{port}"
        if self.cfg.transport == "shm":
            return f"shm:sim2sim-{name}-{port}"
        family = self._runtime.unitree_family(body.env.scene.robot.name)
        return f"dds:{family}?domain={1 + port % 200}&interface=lo"

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Simulate until the time is over, no robot walks any more, or `should_stop`.

        Raises:
            UserError: A binary ended by itself.
            PeerError: The policies did not start.
        """
        with high_priority():
            while not self._is_over():
                if should_stop():
                    return
                for member in self.members.values():
                    if not member.is_killed:
                        member.binary.check()
                self._kill()
                self._steer()
                self.plant.env.step(self._zeros)
                self._note()
                if self.on_step is not None:
                    self.on_step()

    def _is_over(self) -> bool:
        if self._is_walking:
            is_late = 0 < self.cfg.seconds <= self.policy_s
            return is_late or all(member.is_out for member in self.members.values())
        if self.plant.time_s > START_S + self._stand_s:
            states = ", ".join(
                f"{m.name} is in {m.phase or 'no phase'}, fault {m.link.fault}" for m in self.members.values()
            )
            raise PeerError(f"the binaries of the team did not walk in {START_S:g} s: {states}")
        return False

    def kill(self, name: str) -> None:
        """Kill the binary of a robot (SIGKILL)."""
        member = self.members[name]
        if not member.is_killed:
            os.kill(member.binary.process.pid, signal.SIGKILL)
            member.is_killed = True

    def _kill(self) -> None:
        for kill in self.cfg.kills:
            if self._is_walking and self.policy_s >= kill.at_s:
                self.kill(kill.robot)

    def _steer(self) -> None:
        """Send each binary its command, and the request for the next phase."""
        now, members = self.plant.time_s, list(self.members.values())
        stands = [m.phase == "STAND" and now - m.since_s > self._stand_s + REPEAT_S for m in members if not m.is_out]
        may_walk = self._is_walking or all(stands)
        if may_walk and not self._is_walking:
            self.plant.hold(False)
            self._is_walking = True
        for member in members:
            request = ""
            if not member.is_out and now - member.requested_s >= REPEAT_S:
                if member.phase in ("", "DAMPING") and not self._is_walking:
                    request = "stand" if member.link.fault in ("none", "operator_stop") else "damp"
                elif member.phase == "STAND" and may_walk:
                    request = "policy"
            if request:
                member.requested_s = now
            part = self.plant.bodies[member.name]
            has_command = command_info(part.env) is not None
            values = part.env.state.command[part.row].cpu().numpy().tolist() if has_command else []
            member.operator.send(values, request_of(self._runtime, request))

    def _note(self) -> None:
        """Note each robot's phase, and the metrics while they walk."""
        now, env = self.plant.time_s, self.plant.env
        for member in self.members.values():
            phase, fault = member.link.phase, member.link.fault
            if phase == "POLICY":
                member.policy_s += env.step_dt
            if phase != member.phase:
                member.phases.append({"time_s": round(now, 4), "phase": phase, "fault": fault})
                if phase == "DAMPING" and member.phase in ("STAND", "POLICY"):
                    member.faults.append({"policy_s": round(self.policy_s, 4), "fault": fault})
                member.phase, member.since_s = phase, now
        if self._is_walking:
            self.policy_s += env.step_dt
            self._steps += 1
            for name, body in self.plant.bodies.items():
                values = body.env.state.metric_values[body.row].cpu().numpy().astype(np.float64)
                self._sums[name] = self._sums.get(name, np.zeros_like(values)) + values

    def report(self) -> dict[str, Any]:
        """End the binaries; return each robot's phases, faults and figures, and the metrics of the task."""
        metrics = self._metrics()
        for member in self.members.values():
            member.binary.request_stop()
        with high_priority():  # 2 s at most, so that the binaries end with robots that answer
            for _ in range(round(2.0 / self.plant.env.step_dt)):
                if not any(member.binary.alive for member in self.members.values()):
                    break
                self.plant.env.step(self._zeros)
        robots = {}
        for name, member in self.members.items():
            member.binary.stop()
            robots[name] = {
                "policy_s": round(member.policy_s, 4),
                "killed": member.is_killed,
                "faults": member.faults,
                "phases": member.phases,
                "commands": command_figures(member.link.notes),
                "metrics": metrics[name],
                "binary": member.binary.report(),
            }
        message_relay = self.message_relay
        carried = (
            {} if message_relay is None else {"messages": {"sent": message_relay.sent, "lost": message_relay.lost}}
        )
        return carried | {
            "policy_s": round(self.policy_s, 4),
            "simulated_s": round(self.plant.time_s, 4),
            "late_ticks": self.exchange.late,
            "slipped_s": round(self.exchange.slipped_s, 4),
            "notes": self.plant.notes,
            "robots": robots,
        }

    def _metrics(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return robot -> metric -> its mean since the policies started, and its value at the end."""
        found = {}
        for name, body in self.plant.bodies.items():
            end = body.env.state.metric_values[body.row].tolist()
            mean = (self._sums.get(name, np.zeros(len(end))) / max(self._steps, 1)).tolist()
            rows = zip(body.env.describe_metrics(), mean, end, strict=True)
            found[name] = {metric: {"mean": one, "end": other} for metric, one, other in rows}
        return found

    def close(self) -> None:
        """End all processes."""
        self._stack.close()


def make_message_relay(bundles: Mapping[str, Path], seed: int, *, perfect: bool = False) -> MessageRelay | None:
    """Return what carries the messages between the robots, None where their contracts have none.

    With `perfect` it carries each at once.
    """
    from robot_rl_deploy.bundle import read_bundle

    contracts = {name: read_bundle(path).contract for name, path in bundles.items()}
    messages = next(iter(contracts.values())).messages
    if perfect:
        messages = [dataclasses.replace(message, latency_s=(0.0, 0.0), loss=0.0) for message in messages]
    return MessageRelay(tuple(contracts), messages, seed) if messages else None


def for_session(task: Any) -> Any:
    """Return a task without an end, with all robots of its team: a robot that is out ends nothing for the others."""
    roles = {name: dataclasses.replace(role, terminations={}) for name, role in task.roles.items()}
    kept = dataclasses.replace(task.team, size=(0, 0), joins=0.0)
    return dataclasses.replace(task, terminations={}, roles=roles, team=kept, episode_length_s=DAY_S)
