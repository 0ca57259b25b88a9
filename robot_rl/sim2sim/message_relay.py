"""Messages between the binaries of a team: datagrams, late and lost as the contract declares."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from robot_rl.sim2sim.datagrams import Delayed, drain, make_socket, send
from robot_rl.sim2sim.link import LOOPBACK, free_ports


class MessageRelay:
    """Receives the messages of each robot's binary, and sends them to the others after their latency, or not at all.

    Attributes:
        sent: Number of messages received from the binaries.
        lost: Number of times that one did not get to one of its receivers.
    """

    def __init__(self, team: Sequence[str], messages: Sequence[Any], seed: int) -> None:
        """Open the sockets.

        Args:
            team: Names of the robots.
            messages: The contract's messages, `robot_rl_deploy.messages.MessageSpec`; they travel together, so the
                longest latency and the largest loss are those of all.
            seed: Of the draws; each pair of sender and receiver has its own latency.
        """
        self._random = np.random.default_rng(seed)
        low, high = (max(message.latency_s[end] for message in messages) for end in (0, 1))
        self._loss = max(message.loss for message in messages)
        self._receivers = {name: (LOOPBACK, port) for name, port in zip(team, free_ports(len(team)), strict=True)}
        self._latency = {
            (sender, receiver): float(self._random.uniform(low, high))
            for sender, receiver in itertools.permutations(team, 2)
        }
        self.sent = self.lost = 0
        self._delayed = Delayed()
        with contextlib.ExitStack() as stack:
            self._sockets = {name: stack.enter_context(make_socket(bind=(LOOPBACK, 0))) for name in team}
            self._stack = stack.pop_all()

    def arguments(self, name: str) -> list[str]:
        """Return the words with which a robot's binary uses this relay."""
        ends = {"--team-listen": self._receivers[name], "--team-send": self._sockets[name].getsockname()}
        return ["--team-name", name, *(word for key, at in ends.items() for word in (key, f"udp:{at[0]}:{at[1]}"))]

    def wait(self, senders: Iterable[str], timeout_s: float) -> None:
        """Wait until there is a message of each of these robots to `carry`, or the time is over."""
        end = time.monotonic() + timeout_s
        waiting = {self._sockets[name] for name in senders}
        while waiting and (remaining_s := end - time.monotonic()) > 0:
            waiting -= set(select.select(list(waiting), [], [], remaining_s)[0])

    def carry(self, now_s: float) -> None:
        """Receive the messages up to now, and send on what is due; the time is of the caller's clock [s]."""
        for sender, sock in self._sockets.items():
            drain(sock, lambda data, _, sender=sender: self._take(sender, data, now_s))
        self._delayed.deliver(now_s)

    def _take(self, sender: str, data: bytes, now_s: float) -> None:
        """Draw for each receiver whether a message gets lost; deliver it after its latency."""
        self.sent += 1
        for receiver, address in self._receivers.items():
            if receiver == sender:
                continue
            if self._random.random() < self._loss:
                self.lost += 1
                continue
            due = now_s + self._latency[sender, receiver]
            self._delayed.add(due, partial(send, self._sockets[receiver], address, data))

    def close(self) -> None:
        """Close the sockets."""
        self._stack.close()


def make_message_relay(bundles: Mapping[str, Path], seed: int, *, perfect: bool = False) -> MessageRelay | None:
    """Return the relay of the messages between robots, None if their contracts have none.

    With `perfect` it carries each at once.
    """
    from robot_rl_deploy.bundle import read_bundle

    contracts = {name: read_bundle(path).contract for name, path in bundles.items()}
    messages = next(iter(contracts.values())).messages
    if perfect:
        messages = [dataclasses.replace(message, latency_s=(0.0, 0.0), loss=0.0) for message in messages]
    return MessageRelay(tuple(contracts), messages, seed) if messages else None


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
        state, age = self._read(), self._env.state.episode_length.cpu().clone()
        if not torch.equal(age, self._age):
            self._before, self._age = self._now, age
            self._now = {name: state[name].clone() for name in self._names}
        begins = (age == 0).to(self._env.device)[:, None]
        late = {name: torch.where(begins, self._now[name], value) for name, value in self._before.items()}
        return state | late
