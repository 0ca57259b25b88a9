"""A whole session in real time: plant, link, binary, and where faults are wanted the proxy between them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_rl.errors import UserError
from robot_rl.sim2sim.binary import Binary, hurried, load_runtime
from robot_rl.sim2sim.commands import Commands, make_commands
from robot_rl.sim2sim.exchange import RealTime
from robot_rl.sim2sim.faults import Fault, check_faults
from robot_rl.sim2sim.link import request_of
from robot_rl.sim2sim.parity import make_link
from robot_rl.sim2sim.plant import TICK_S, Plant
from robot_rl.sim2sim.ports import LOOPBACK, free_ports
from robot_rl.sim2sim.session import Session, SessionCfg

if TYPE_CHECKING:
    import numpy as np
    from robot_rl_envs.task import Task

    from robot_rl.sim2sim.proxy_process import ProxyProcess

STAND_S = 2.0
AGAIN_S = 3.0
"""Where a fault has no end, the robot has so long to walk again after it stood up [s]."""


@dataclass(kw_only=True, slots=True)
class RealTimeCfg:
    """What a session is to be.

    Attributes:
        seconds: Time under the policy [s]; 0: no end.
        transport: "udp", "shm" or "dds".
        command: See `robot_rl.sim2sim.commands.make_commands`.
        faults: What the proxy does; none: there is no proxy.
        recover: Begin again after a fault or a fall.
        seed: Seed of the world.
        tick_s: Physics step and period of the states [s].
        settings: Settings of the binary by name.
        log: Folder or file for the binary's log; empty: none.
        arguments: Further words of the binary's command line.
        watch_s: How long to look on after a fault that ends the session [s].
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


class RealTimeRun:
    """The processes of a session; `run` it, `close` it, then read its `report`.

    Attributes:
        plant: The simulated robot.
        link: Its end of the protocol.
        binary: `robot-rl-infer`.
        session: The operator and the books.
    """

    def __init__(self, task: Task, bundle: Path, cfg: RealTimeCfg, folder: Path) -> None:
        """Builds the world and starts the processes.

        Args:
            task: What to simulate.
            bundle: The policy bundle.
            cfg: The session.
            folder: For the reports of the other processes.

        Raises:
            UserError: Something asked for cannot be had.
        """
        self._runtime = load_runtime()
        self._stack, self.cfg = contextlib.ExitStack(), cfg
        try:
            self._start(task, bundle, folder)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, task: Task, bundle: Path, folder: Path) -> None:
        cfg, stack = self.cfg, self._stack
        self.plant = Plant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        stack.callback(self.plant.close)
        joints = len(self.plant.joint_names)
        for fault in cfg.faults:
            if fault.joint >= joints:
                raise UserError(f"faults: {fault.kind}:{fault.joint}: the robot's joints are 0 to {joints - 1}")
        robot, transport = self._addresses()
        check_faults(cfg.faults, transport)
        if not cfg.faults:
            transport = robot
        self.link = make_link(self.plant, robot)
        stack.callback(self.link.close)
        heard = operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
        self.proxy: ProxyProcess | None = None
        if cfg.faults:
            from robot_rl.sim2sim.proxy_process import ProxyProcess

            operator = f"udp:{LOOPBACK}:{free_ports(1)[0]}"
            where = {"front": transport, "robot": robot, "desk": operator, "operator": heard}
            if cfg.transport != "udp":
                where["contract"] = str(bundle / "contract.json")
            self.proxy = ProxyProcess(folder, faults=cfg.faults, **where)
            stack.callback(self.proxy.stop)
        self._operator = self._runtime.OperatorEnd(operator)
        arguments = [*(["--log", cfg.log] if cfg.log else []), *cfg.arguments]
        self.binary = Binary(
            bundle, folder, transport=transport, operator=heard, settings=cfg.settings, arguments=arguments
        )
        stack.callback(self.binary.stop)
        stand_s = cfg.settings.get("stand_s", STAND_S)
        lasting = any(math.isinf(fault.end_s) for fault in cfg.faults)
        session_cfg = SessionCfg(
            seconds=cfg.seconds,
            stand_s=stand_s,
            recover=cfg.recover,
            watch_s=cfg.watch_s,
            again_s=AGAIN_S if lasting else math.inf,
        )
        self.commands: Commands = make_commands(cfg.command, self.plant.env, cfg.seconds or 60.0)
        self.exchange = RealTime(self.link)
        self.session = Session(
            self.plant, self.link, self.exchange, self.operate, cfg=session_cfg, commands=self.commands
        )

    def _addresses(self) -> tuple[str, str]:
        """Where the robot is, and where a proxy plays the robot."""
        ports = free_ports(2)
        if self.cfg.transport == "udp":
            return f"udp:{LOOPBACK}:{ports[0]}", f"udp:{LOOPBACK}:{ports[1]}"
        if self.cfg.transport == "shm":
            return f"shm:sim2sim-{ports[0]}", f"shm:sim2sim-{ports[0]}-front"
        family = self._runtime.unitree_family(self.plant.env.scene.robot.name)
        domain = 1 + 2 * (ports[0] % 100)  # a pair of domains; never 0, the robots' own
        return f"dds:{family}?domain={domain}&interface=lo", f"dds:{family}?domain={domain + 1}&interface=lo"

    def operate(self, request: str, command: np.ndarray | None) -> None:
        """Sends a message of the operator."""
        self._operator.send([] if command is None else command.tolist(), request_of(self._runtime, request))

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Simulates until the session is over or `should_stop`.

        Raises:
            UserError: The binary ended by itself.
            PeerError: It never came to walk.
        """

        def stop() -> bool:
            self.binary.check()
            return should_stop()

        with hurried():
            self.session.run(stop)

    def close(self) -> None:
        """Ends all processes."""
        self._stack.close()

    def report(self) -> dict[str, Any]:
        """Ends the other processes; the session's report with the binary's and the proxy's."""
        self.binary.ask_to_stop()
        with hurried():
            self.session.go_on(lambda: not self.binary.alive)
        self.binary.stop()
        result = self.session.report()
        result["binary"] = self.binary.report()
        if self.proxy is not None:
            self.proxy.stop()
            result["proxy"] = self.proxy.report()
        return result
