"""The trainer's evaluation, run once by the trainer and once by the robot's binary, in the same worlds.

Same seeds, so the same randomization, commands and pushes; the same meter. The binary gets a state at each control
step, with `all_states` at each physics step, and answers in lockstep: its figures do not depend on how fast the machine
is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robot_rl.errors import PeerError
from robot_rl.evaluate.meter import METRICS
from robot_rl.sim2sim.binary import Binary
from robot_rl.sim2sim.exchange import Lockstep
from robot_rl.sim2sim.link import Link
from robot_rl.sim2sim.plant import TICK_S, Plant
from robot_rl.sim2sim.ports import LOOPBACK, free_ports

if TYPE_CHECKING:
    from robot_rl_deploy.contract import Contract
    from robot_rl_envs.task import Task

SURVIVAL_BOUND, ERROR_BOUND = 0.02, 0.05
TRACKED = ("lin_vel_error", "yaw_vel_error")
PATIENT = {
    "stand_s": 0.0,
    "blend_s": 0.0,
    "writer_period_s": 0.001,
    "limits.state_age_s": 1e6,
    "limits.state_frozen_s": 1e6,
    "limits.operator_s": 0.0,
    "limits.missed_deadlines": 1e6,
}
"""Settings of a binary whose robot stops the clock: it stands up at once and waits for states as long as it takes."""


@dataclass(kw_only=True, slots=True)
class ParityCfg:
    """What is compared.

    Attributes:
        episodes: Worlds, one episode each.
        seconds: Length of an episode [s].
        seed: Seed of the worlds.
        tick_s: Physics step of the simulated robot [s]; 0: the trainer's.
        all_states: Send the state of each physics step; else only those that the policy runs at.
        transport: "udp" or "shm".
        settings: Settings of the binary beyond `PATIENT`.
    """

    episodes: int = 20
    seconds: float = 10.0
    seed: int = 0
    tick_s: float = TICK_S
    all_states: bool = False
    transport: str = "udp"
    settings: dict[str, float] | None = None


class BinaryController:
    """The binary in the place of a policy: it acts on the plant's raw states, not on the environment's observation."""

    PATIENCE, REPEAT = 100, 5
    """So often a request is repeated, and after so many commands of the writer."""

    def __init__(self, plant: Plant, link: Link, steps: Lockstep, contract: Contract) -> None:
        """Takes over a plant.

        Args:
            plant: The robot.
            link: Its end of the protocol; the binary is connected.
            steps: The lockstep.
            contract: The policy's contract, to turn targets back into actions for the books.
        """
        self._plant, self._link, self._steps = plant, link, steps
        names = plant.joint_names
        self._index = [names.index(action.joint) for action in contract.actions]
        self._is_effort = np.array([action.kind == "effort" for action in contract.actions])
        self._scale = np.array([action.scale for action in contract.actions], np.float32)
        self._offset = np.array([action.offset for action in contract.actions], np.float32)
        self.faults: list[str] = []
        plant.connect(steps)

    def act(self, env: Any, obs: Any) -> torch.Tensor:
        """Sends the state, waits for the policy's command and gives the action (1, num_actions) that it stands for."""
        self._tell("")
        command = self._steps.ask(self._plant)
        if self._link.phase == "DAMPING" and (not self.faults or self.faults[-1] != self._link.fault):
            self.faults.append(self._link.fault)
        target = np.where(self._is_effort, command.tau[self._index], command.q[self._index])
        return torch.from_numpy(((target - self._offset) / self._scale).astype(np.float32))[None]

    def reset(self, done: torch.Tensor) -> None:
        """Begins an episode: damping, standing, and the policy anew, while the simulation's clock stands still."""
        if not bool(done[0]):
            return
        self._plant.was_reset()
        if not self._link.notes:
            self._steps.connect(self._plant)
        self._steps.align(self._plant)
        for request, phase in (("damp", "DAMPING"), ("stand", "STAND"), ("policy", "POLICY")):
            self._ask_for(request, phase)
        # Its first step, which starts it anew, is the episode's.
        self._steps.fill(self._plant)

    def _ask_for(self, request: str, phase: str) -> None:
        """Asks for a phase, and again until it is granted."""
        for _ in range(self.PATIENCE):
            self._tell(request)
            if self._steps.watch(self.REPEAT).phase == phase:
                return
        raise PeerError(f"robot-rl-infer does not go to {phase}: it is in {self._link.phase}, fault {self._link.fault}")

    def _tell(self, request: str) -> None:
        command = self._plant.env.state.command[0].cpu().numpy() if _has_command(self._plant.env) else None
        self._link.operate(request, command)


def evaluate_binary(
    task: Task,
    bundle: Path,
    cfg: ParityCfg,
    folder: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Evaluates a bundle as the robot runs it.

    Args:
        task: As it is evaluated.
        bundle: The bundle.
        cfg: How much.
        folder: For the binary's report.
        say: Told once an episode.

    Returns:
        "episodes" (metric -> one value a world, NaN where it has none), "faults" (of each world) and "binary" (its
        report).

    Raises:
        UserError: The runtime is not there.
        PeerError: The binary ended or fell silent.
    """
    from robot_rl_deploy.bundle import read_bundle

    contract = read_bundle(bundle).contract
    rows: list[dict[str, float]] = []
    faults: list[list[str]] = []
    with contextlib.ExitStack() as stack:
        session = _Connection(task, bundle, cfg, folder, stack)
        for world in range(cfg.episodes):
            values, found = session.episode(world, contract)
            rows.append(values)
            faults.append(found)
            say(f"world {world}: " + ", ".join(f"{name} {values[name]:.4g}" for name in values if name in TRACKED))
    names = [name for name in METRICS if any(name in row for row in rows)]
    episodes = {name: [row.get(name, float("nan")) for row in rows] for name in names}
    return {"episodes": episodes, "faults": faults, "binary": session.binary.report()}


class _Connection:
    """A binary and the robot's end that it speaks to, over all episodes."""

    def __init__(self, task: Task, bundle: Path, cfg: ParityCfg, folder: Path, stack: contextlib.ExitStack) -> None:
        self.task, self.cfg = task, cfg
        first = Plant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        address = f"udp:{LOOPBACK}:{free_ports(1)[0]}" if cfg.transport == "udp" else f"shm:sim2sim-{free_ports(1)[0]}"
        self.link = make_link(first, address)
        stack.callback(self.link.close)
        self._first: Plant | None = first
        self.states = first.env.cfg.sim.decimation if cfg.all_states else 1
        settings = PATIENT | {"steps_per_state": float(self.states)} | (cfg.settings or {})
        arguments = ["--fifo-writer", "0", "--fifo-policy", "0", "--no-watchdog"]
        self.binary = Binary(
            bundle, folder, transport=address, operator="robot", settings=settings, arguments=arguments
        )
        stack.callback(self.binary.stop)

    def episode(self, world: int, contract: Contract) -> tuple[dict[str, float], list[str]]:
        """One world's figures, and the faults that the binary found."""
        from robot_rl.evaluate.rollout import evaluate

        plant = self._first or Plant(self.task, seed=self.cfg.seed, world=world, tick_s=self.cfg.tick_s)
        self._first = None
        try:
            steps = Lockstep(self.link, self.binary, self.states)
            controller = BinaryController(plant, self.link, steps, contract)
            summary = evaluate(plant.env, controller, seconds=self.cfg.seconds)
        finally:
            plant.close()
        del self.link.notes[:-1]
        return {name: value["mean"] for name, value in summary.items() if value is not None}, controller.faults


def make_link(plant: Plant, address: str) -> Link:
    """The robot's end for a plant.

    Raises:
        UserError: The runtime is not installed, or the address cannot be had.
    """
    signals = plant.env.robot_state()
    heights = signals["height_scan"].shape[1] if "height_scan" in signals else 0
    feet = len(plant.env.scene.robot.feet)
    return Link(address, plant.env.scene.robot.name, plant.joint_names, feet=feet, heights=heights)


def compare(mine: Mapping[str, Sequence[float]], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Judges whether the binary's figures are the trainer's.

    Args:
        mine: Metric -> one value a world, of the binary.
        trainer: Metric -> {"mean", "std"} or None over the same worlds, as `robot-rl eval` has it.

    Returns:
        "survival" and each metric of `TRACKED`: {"binary", "trainer", "difference", "bound", "holds"}, and "holds":
        whether all do. The difference is of shares of worlds for survival, relative to the trainer's mean for errors.
    """
    survival = 1.0 - float(np.mean(mine["fall_rate"])), 1.0 - trainer["fall_rate"]["mean"]
    result: dict[str, Any] = {"survival": _row(*survival, abs(survival[0] - survival[1]), SURVIVAL_BOUND)}
    for name in TRACKED:
        if name not in mine or trainer.get(name) is None:
            continue
        means = float(np.nanmean(mine[name])), float(trainer[name]["mean"])
        result[name] = _row(*means, abs(means[0] - means[1]) / max(means[1], 1e-9), ERROR_BOUND)
    result["holds"] = all(row["holds"] for row in result.values())
    return result


def _row(mine: float, trainer: float, difference: float, bound: float) -> dict[str, Any]:
    return {
        "binary": mine,
        "trainer": trainer,
        "difference": difference,
        "bound": bound,
        "holds": difference <= bound + 1e-12,
    }


def _has_command(env: Any) -> bool:
    command = getattr(env.state, "command", None)
    return command is not None and command.ndim == 2 and command.shape[1] > 0
