"""The trainer's evaluation of a team, run by the binaries of its robots, in the same worlds.

As in `robot_rl.sim2sim.parity`, each binary answers in lockstep. A message that a robot sends at a state reaches the
others before their next one: it is a control period old there, which `delay_messages` gives the trainer's worlds, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from robot_rl.sim2sim.parity import BinaryController, ParityCfg, Responder, evaluate_worlds, start_responder
from robot_rl.sim2sim.team import TeamBody, TeamPlant, make_message_relay

if TYPE_CHECKING:
    from robot_rl_envs.task import Task

    from robot_rl.sim2sim.message_relay import MessageRelay

MESSAGE_S = 1.0
"""How long to wait for the messages of a state [s]."""


class _Member(NamedTuple):
    """A robot of a world, its binary, and the command with which its motors damp."""

    body: TeamBody
    responder: Responder
    controller: BinaryController
    damped: Any


class TeamController:
    """The binaries of a team as a controller of all its robots.

    A robot that takes no part has motors that damp, as in training, and its binary waits.
    """

    def __init__(self, plant: TeamPlant, responders: Mapping[str, Responder], relay: MessageRelay | None) -> None:
        """Control the robots of a plant; `relay` carries their messages, if they have any."""
        self._plant, self._relay, self._names = plant, relay, list(plant.bodies)
        self._members = [
            _Member(body, responders[name], BinaryController(body, responders[name]), _damped(body))
            for name, body in plant.bodies.items()
        ]
        self._begins = set[int]()
        plant.connect(self)

    @property
    def faults(self) -> list[str]:
        """Faults of the binaries so far, each with its robot."""
        members = zip(self._names, self._members, strict=True)
        return [f"{name}: {fault}" for name, member in members for fault in member.controller.faults]

    def act(self, env: Any, obs: Any) -> torch.Tensor:
        """Send each robot's state, wait for its policy's command; return their actions (T, num_actions)."""
        actions = np.zeros((env.num_envs, env.num_actions), np.float32)
        active = [row for row, member in enumerate(self._members) if member.body.is_active]
        begun = self._begins.intersection(active)
        for row in sorted(begun):
            self._members[row].controller.begin()
        self._begins -= begun
        self._carry(begun)
        for row in active:
            answer = self._members[row].controller.answer()
            actions[row, : len(answer)] = answer
        self._carry(row for row in active if row not in begun)  # A binary sends each state's message once.
        return torch.from_numpy(actions)

    def reset(self, done: torch.Tensor) -> None:
        """Begin an episode of each robot with a True row, as soon as it takes part."""
        self._begins.update(torch.nonzero(done).flatten().tolist())

    def tick(self, plant: TeamPlant) -> None:
        """Give each robot its command, and its binary the state, if every tick has one."""
        for row, member in enumerate(self._members):
            takes_part = member.body.is_active and row not in self._begins
            member.body.command = member.responder.steps.tick(member.body) if takes_part else member.damped

    def _carry(self, rows: Iterable[int]) -> None:
        """Hand the others what the robots of these rows have sent."""
        if self._relay is not None:
            self._relay.wait([self._names[row] for row in rows], MESSAGE_S)
            self._relay.carry(self._plant.time_s)


def _damped(body: TeamBody) -> Any:
    """Return the command with which a robot's motors only damp: as in training, a servo's, and no effort."""
    joints = body.env.scene.robot.joints
    zeros = np.zeros(len(joints), np.float32)
    is_servo = body.env.cfg.actions.kind == "position"
    kd = np.array([joint.kd for joint in joints], np.float32) if is_servo else zeros
    return SimpleNamespace(kp=zeros, kd=kd, tau=zeros, q=zeros, dq=zeros)


def delay_messages(env: Any) -> None:
    """Let every message in an environment of a team be one control period old, but at the start of an episode."""
    for crew, _ in env.parts().values():
        for path, longest in crew.cfg.late_messages().items():
            crew.set_param(path, min(longest, env.step_dt))
        if names := [f"measured/{term.measured}" for term in crew.cfg.received.values()]:
            crew.robot_state = _LateState(crew, names).read


class _LateState:
    """The raw signals of robots, of which some are those of the step before."""

    def __init__(self, env: Any, names: Sequence[str]) -> None:
        self._env, self._names, self._read = env, names, env.robot_state
        self._age, self._now, self._before = torch.full((env.num_envs,), -1), dict[str, Any](), dict[str, Any]()

    def read(self) -> dict[str, torch.Tensor]:
        """Return signal -> (N, width); each step may read them several times."""
        state, age = self._read(), self._env.episode_length_buf.cpu().clone()
        if not torch.equal(age, self._age):
            self._before, self._age = self._now, age
            self._now = {name: state[name].clone() for name in self._names}
        begins = (age == 0).to(self._env.device)[:, None]
        late = {name: torch.where(begins, self._now[name], value) for name, value in self._before.items()}
        return state | late


def evaluate_team_binaries(
    task: Task,
    bundles: Mapping[str, Path],
    cfg: ParityCfg,
    folder: Path,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Evaluate the bundles of a team as its robots run them.

    Args:
        task: The task, as it is evaluated.
        bundles: Directory of the bundle of each robot.
        cfg: The settings.
        folder: Directory for the binaries' reports.
        say: Called with a line after each episode.

    Returns:
        "episodes" (metric -> one value per world, the mean over its robots), "faults" (of each world) and "binaries"
        (robot -> its binary's report).

    Raises:
        UserError: The runtime is not installed.
        PeerError: A binary ended or does not answer.
    """
    with contextlib.ExitStack() as stack:
        first = TeamPlant(task, seed=cfg.seed, tick_s=cfg.tick_s)
        relay = make_message_relay(bundles, cfg.seed, perfect=True)
        if relay is not None:
            stack.callback(relay.close)
        responders = {
            name: start_responder(
                body, bundles[name], cfg, folder / name, stack, words=relay.arguments(name) if relay is not None else ()
            )
            for name, body in first.bodies.items()
        }

        def control(plant: TeamPlant) -> TeamController:
            for responder in responders.values():
                del responder.link.notes[:-1]
            return TeamController(plant, responders, relay)

        found = evaluate_worlds(
            first, lambda world: TeamPlant(task, seed=cfg.seed, world=world, tick_s=cfg.tick_s), control, cfg, say
        )
    return found | {"binaries": {name: responder.binary.report() for name, responder in responders.items()}}
