"""The trainer's evaluation, run once by the trainer and once by the robots' binaries, in the same worlds.

Seeds, randomization, commands, pushes and metrics are the same. A binary receives a state at each control step, with
`all_states` at each physics step, and answers in lockstep: its metrics do not depend on the speed of the machine. A
message that a robot of a team sends at a state reaches the others before their next one: it is a control period old
there, which `delay_messages` gives the trainer's worlds as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError, UserError
from robot_rl.evaluation.meter import describe_metrics
from robot_rl.metrics.description import Descriptions, judged
from robot_rl.sim2sim.binary import Binary
from robot_rl.sim2sim.commands import ActionReader
from robot_rl.sim2sim.link import LOOPBACK, Lockstep, free_ports, make_link
from robot_rl.sim2sim.message_relay import MessageRelay, make_message_relay
from robot_rl.sim2sim.plant import LONE, TICK_S, Body, Plant

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

SURVIVAL_BOUND, ERROR_BOUND = 0.02, 0.05
PATIENT = {
    "stand_s": 0.0,
    "blend_s": 0.0,
    "writer_period_s": 0.001,
    "limits.state_age_s": 1e6,
    "limits.state_frozen_s": 1e6,
    "limits.operator_s": 0.0,
    "limits.missed_deadlines": 1e6,
}
"""Settings of a binary in lockstep: it stands up at once and waits for states without a limit."""
MESSAGE_S = 1.0
"""Time limit for the messages of a state [s]."""


@dataclass(kw_only=True, slots=True)
class ParityCfg:
    """Settings of the comparison.

    Attributes:
        episodes: Number of worlds, with one episode each.
        seconds: Length of an episode [s].
        seed: Seed of the worlds.
        tick_s: Physics step of the simulated robot [s]; 0: the trainer's.
        all_states: Send the state of each physics step; else only those at which the policy runs.
        transport: "udp" or "shm".
        settings: Settings of the binary in addition to `PATIENT`.
    """

    episodes: int = 20
    seconds: float = 10.0
    seed: int = 0
    tick_s: float = TICK_S
    all_states: bool = False
    transport: str = "udp"
    settings: dict[str, float] | None = None


class Responder:
    """A robot's binary that answers each state, in one world after another.

    Attributes:
        body: The robot in the present world.
        link, steps, binary: The robot's end of the protocol, its pace, and the binary.
        faults: Faults of the binary in the present world.
    """

    PATIENCE, REPEAT = 100, 5
    """How often a request is repeated, and after how many commands of the writer."""

    def __init__(
        self,
        body: Body,
        bundle: Path,
        cfg: ParityCfg,
        folder: Path,
        stack: contextlib.ExitStack,
        *,
        arguments: Sequence[str] = (),
    ) -> None:
        """Start a robot's binary in lockstep, until `stack` closes; `arguments` are further words of its command line.

        The contract of its bundle turns targets back into actions.
        """
        port = free_ports(1)[0]
        address = f"udp:{LOOPBACK}:{port}" if cfg.transport == "udp" else f"shm:sim2sim-{port}"
        self.link = make_link(body, address, bundle)
        stack.callback(self.link.close)
        states = body.env.cfg.sim.decimation if cfg.all_states else 1
        self.binary = Binary(
            bundle,
            folder,
            transport=address,
            operator="robot",
            settings=PATIENT | {"steps_per_state": float(states)} | (cfg.settings or {}),
            arguments=["--fifo-writer", "0", "--fifo-policy", "0", "--no-watchdog", *arguments],
        )
        stack.callback(self.binary.stop)
        self.steps = Lockstep(self.link, self.binary, states)
        self._actions = ActionReader(self.link.contract, body.joint_names)
        command = getattr(body.env.state, "command", None)
        self._has_command = command is not None and command.ndim == 2 and command.shape[1] > 0
        self.enter(body)

    def enter(self, body: Body) -> None:
        """Control the robot of another world."""
        self.body, self.faults = body, list[str]()
        del self.link.notes[:-1]

    def answer(self) -> np.ndarray:
        """Send the state, wait for the policy's command, and return its action (num_actions,)."""
        self._operate("")
        command = self.steps.request(self.body)
        if self.link.phase == "DAMPING" and (not self.faults or self.faults[-1] != self.link.fault):
            self.faults.append(self.link.fault)
        return self._actions.read(command.q, command.dq, command.tau, self._command())

    def begin(self) -> None:
        """Begin an episode: damp, stand and start the policy again, while the simulation's clock is stopped."""
        self.body.was_reset()
        if not self.link.notes:
            self.steps.connect(self.body)
        self.steps.align(self.body)
        for request, phase in (("damp", "DAMPING"), ("stand", "STAND"), ("policy", "POLICY")):
            self._reach(request, phase)
        # The policy resets itself in its first step, which is the episode's.
        self.steps.fill(self.body)

    def _reach(self, request: str, phase: str) -> None:
        """Request a phase until it is granted."""
        for _ in range(self.PATIENCE):
            self._operate(request)
            if self.steps.wait(self.REPEAT).phase == phase:
                return
        raise PeerError(f"robot-rl-infer does not go to {phase}: it is in {self.link.phase}, fault {self.link.fault}")

    def _operate(self, request: str) -> None:
        self.link.operate(request, self._command())

    def _command(self) -> np.ndarray | None:
        return self.body.env.state.command[self.body.row].cpu().numpy() if self._has_command else None


class BinaryController:
    """The binaries of all robots as a policy: they act on raw states, not on the environment's observations.

    A robot that takes no part has motors that damp, as in training, and its binary waits.
    """

    def __init__(self, plant: Plant, responders: Mapping[str, Responder], messages: MessageRelay | None = None) -> None:
        """Control the robots of a plant; `messages` carries their messages, if they have any."""
        self._plant, self._messages, self._responders = plant, messages, responders
        for name, body in plant.bodies.items():
            responders[name].enter(body)
        self._robots = list(responders.values())
        self._damped = [_damped(body) for body in plant.bodies.values()]
        self._begins = set[int]()
        plant.connect(self)

    @property
    def faults(self) -> list[str]:
        """Faults of the binaries so far, in a team each with its robot."""
        robots = self._responders.items()
        return [f"{name}: {fault}" if name else fault for name, robot in robots for fault in robot.faults]

    def __call__(self, obs: Any) -> torch.Tensor:
        """Send each robot's state, wait for its policy's command; return their actions (T, num_actions)."""
        env = self._plant.env
        actions = np.zeros((env.num_envs, env.num_actions), np.float32)
        active = [row for row, robot in enumerate(self._robots) if robot.body.is_active]
        begun = self._begins.intersection(active)
        for row in sorted(begun):
            self._robots[row].begin()
        self._begins -= begun
        self._carry(begun)
        for row in active:
            answer = self._robots[row].answer()
            actions[row, : len(answer)] = answer
        self._carry(row for row in active if row not in begun)  # A binary sends each state's message once.
        return torch.from_numpy(actions)

    def reset(self, done: torch.Tensor | None = None) -> None:
        """Begin an episode of each robot with a True row (None: of all), as soon as it takes part."""
        rows = range(len(self._robots)) if done is None else torch.nonzero(done).flatten().tolist()
        self._begins.update(rows)

    def tick(self, plant: Plant) -> None:
        """Give each robot its command, and its binary the state, if every tick has one."""
        for row, robot in enumerate(self._robots):
            takes_part = robot.body.is_active and row not in self._begins
            robot.body.command = robot.steps.tick(robot.body) if takes_part else self._damped[row]

    def _carry(self, rows: Iterable[int]) -> None:
        """Hand the others the messages that the robots of these rows have sent."""
        if self._messages is not None:
            names = list(self._responders)
            self._messages.wait([names[row] for row in rows], MESSAGE_S)
            self._messages.carry(self._plant.time_s)


def _damped(body: Body) -> Any:
    """Return the command with which a robot's motors only damp: as in training, a servo's, and no effort."""
    joints = body.env.scene.robot.joints
    zeros = np.zeros(len(joints), np.float32)
    is_servo = body.env.cfg.actions.kind == "position"
    kd = np.array([joint.kd for joint in joints], np.float32) if is_servo else zeros
    return SimpleNamespace(kp=zeros, kd=kd, tau=zeros, q=zeros, dq=zeros)


def start_responders(
    plant: Plant, bundles: Mapping[str, Path], cfg: ParityCfg, folder: Path, stack: contextlib.ExitStack
) -> tuple[dict[str, Responder], MessageRelay | None]:
    """Start the binary of each robot of a plant, and the relay of their messages, until `stack` closes."""
    messages = make_message_relay(bundles, cfg.seed, perfect=True)
    if messages is not None:
        stack.callback(messages.close)
    responders = {}
    for name, body in plant.bodies.items():
        arguments = messages.arguments(name) if messages is not None else ()
        responders[name] = Responder(body, bundles[name], cfg, folder / name, stack, arguments=arguments)
    return responders, messages


def evaluate_binaries(
    task: Task,
    bundles: Mapping[str, Path],
    cfg: ParityCfg,
    folder: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Evaluate bundles as the robots run them.

    Args:
        task: The task, as it is evaluated.
        bundles: Directory of the bundle of each robot by name, see `Plant.bodies`.
        cfg: The settings.
        folder: Directory for the binaries' reports.
        say: Called with a line after each episode.

    Returns:
        "episodes" (metric -> one value per world, of a team the mean over its robots, NaN if it has none), "faults" (of
        each world), and "binary", the binary's report, or of a team "binaries" (robot -> its binary's report).

    Raises:
        UserError: The runtime is not installed.
        PeerError: A binary ended or does not answer.
    """
    from robot_rl.evaluation.rollout import evaluate

    rows: list[dict[str, float]] = []
    metrics: Descriptions = {}
    faults: list[list[str]] = []
    with contextlib.ExitStack() as stack:
        plant = Plant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        responders, messages = start_responders(plant, bundles, cfg, folder, stack)
        for world in range(cfg.episodes):
            if world:
                plant = Plant(task, seed=cfg.seed, world=world, tick_s=cfg.tick_s)
            with contextlib.closing(plant):
                metrics = describe_metrics(plant.env)
                controller = BinaryController(plant, responders, messages)
                summary = evaluate(plant.env, controller, seconds=cfg.seconds)
            rows.append({name: value["mean"] for name, value in summary.items() if value is not None})
            faults.append(controller.faults)
            shown = (f"{name} {rows[-1][name]:.4g}" for name in judged(metrics) if name in rows[-1])
            say(f"world {world}: {', '.join(shown)}")
    names = [name for name in metrics if any(name in row for row in rows)]
    episodes = {name: [row.get(name, float("nan")) for row in rows] for name in names}
    reports = {name: responder.binary.report() for name, responder in responders.items()}
    return {"episodes": episodes, "faults": faults} | (
        {"binaries": reports} if task.robots else {"binary": reports[LONE]}
    )


def compare(
    binary: Mapping[str, Sequence[float]], trainer: Mapping[str, Any], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """Compare the binary's metrics with the trainer's.

    Args:
        binary: Metric -> one value per world, of the binary.
        trainer: Metric -> {"mean", "std"} or None over the same worlds, as in `robot-rl eval`.
        metrics: What they are, see `robot_rl.metrics.description`.

    Returns:
        "survival" and each metric of the task that has better values: {"binary", "trainer", "difference", "bound",
        "holds"}, and "holds": whether all do. The difference is absolute for survival, the share of episodes that did
        not fail, else relative to the trainer's mean unless that is 0; such a metric also has "better", and holds
        if the binary is better.

    Raises:
        UserError: All episodes of one of them were quarantined.
    """
    result: dict[str, Any] = {}
    for name in [name for name in trainer if name.rpartition(".")[2] == "failure_rate"]:
        if name not in binary or trainer.get(name) is None:
            raise UserError(
                "all episodes were quarantined, so that there is nothing to compare; see docs/quarantine.md"
            )
        survival = 1.0 - float(np.nanmean(binary[name])), 1.0 - trainer[name]["mean"]
        result[name.replace("failure_rate", "survival")] = _row(*survival, 1.0, SURVIVAL_BOUND)
    for name in judged(metrics):
        if name in binary and trainer.get(name) is not None:
            mean, of_binary = float(trainer[name]["mean"]), float(np.nanmean(binary[name]))
            result[name] = _row(of_binary, mean, abs(mean) or 1.0, ERROR_BOUND)
            result[name]["better"] = of_binary < mean if metrics[name]["better"] == "smaller" else of_binary > mean
            result[name]["holds"] |= result[name]["better"]
    result["holds"] = all(row["holds"] for row in result.values())
    return result


def _row(binary: float, trainer: float, unit: float, bound: float) -> dict[str, Any]:
    difference = abs(binary - trainer) / unit
    holds = difference <= bound + 1e-12
    return {"binary": binary, "trainer": trainer, "difference": difference, "bound": bound, "holds": holds}
