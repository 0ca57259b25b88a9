"""The messages between the robots of a team, as a contract declares them.

A robot sends the values of a message's terms, one after the other, in every control step. It receives from each other
robot the newest values that arrived, and 1; or zeros, and 0, if none did within `max_age_s`. This module needs the
standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robot_rl_deploy.strict import at_least, refuse, unique
from robot_rl_deploy.terms import DECLARED_SIGNALS, MEASURED, ObservationSpec, kind_of

MAX_TEAM, MAX_MESSAGES, MAX_WIDTH = 16, 16, 64
MAX_AGE_S = 2.0
SENDABLE = ("joint_pos", "joint_vel", "imu_gyro", "imu_quat_wxyz", "imu_acc", "foot_contact", "foot_force", MEASURED)
"""Signals that a robot may send: those of its own sensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpec:
    """A signal that is a message of another robot.

    Attributes:
        signal: "measured/<name>", which an observation reads: the values of the message, and 1 if one arrived.
        sender: The sender, counted from this robot on in the order of the team: 0 is the next one.
    """

    signal: str
    sender: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One message that every robot of a team sends the others.

    Attributes:
        name: Its name.
        width: Number of values.
        latency_s: Least and longest time that it took in training [s].
        loss: Share of the messages that got lost in training.
        max_age_s: Age from which on a message no longer counts [s].
        terms: What is sent, computed as the observations are, without scale, clip and history.
        received: The signals that are this message of other robots.
    """

    name: str
    width: int
    latency_s: tuple[float, ...]
    loss: float
    max_age_s: float
    terms: tuple[ObservationSpec, ...]
    received: tuple[ReceivedSpec, ...]

    def __post_init__(self) -> None:
        """Check everything that does not need the rest of the contract."""
        where = f"message '{self.name}':"
        if not 1 <= self.width <= MAX_WIDTH:
            refuse(f"{where} width", self.width, f"it must be in [1, {MAX_WIDTH}]")
        if len(self.latency_s) != 2 or not 0 <= self.latency_s[0] <= self.latency_s[1]:
            refuse(f"{where} latency_s", list(self.latency_s), "it must be [low, high] with 0 <= low <= high")
        if not 0 <= self.loss < 1:
            refuse(f"{where} loss", self.loss, "it must be in [0, 1)")
        at_least(f"{where} max_age_s", self.max_age_s, 0, strictly=True)
        if self.max_age_s > MAX_AGE_S:
            refuse(f"{where} max_age_s", self.max_age_s, f"{MAX_AGE_S:g} s are the most")
        unique(f"{where} terms", [term.name for term in self.terms])
        for term in self.terms:
            if kind_of(term.signal) not in SENDABLE:
                refuse(f"{where} term '{term.name}': signal", term.signal, f"it must be one of {', '.join(SENDABLE)}")
            if term.scale != 1 or term.clip is not None or term.history != 1:
                refuse(f"{where} term", term.name, "it is sent as it is: scale 1, clip null, history 1")
        sent = sum(term.size for term in self.terms)
        if sent != self.width:
            refuse(f"{where} width", self.width, f"its terms have {sent} values")


def check_messages(team: Sequence[str], messages: Sequence[MessageSpec], read: Mapping[str, int]) -> None:
    """Check the messages of a contract.

    Args:
        team: Names of the robots.
        messages: The messages.
        read: Width of each signal of `DECLARED_SIGNALS` that an observation reads.

    Raises:
        ContractError: They do not fit.
    """
    unique("team", list(team))
    unique("messages", [message.name for message in messages])
    if bool(team) != bool(messages):
        refuse("team", list(team), "a contract with messages has a team, and one without has none")
    if messages and not 2 <= len(team) <= MAX_TEAM:
        refuse("team", f"a list of {len(team)}", f"it must have 2 to {MAX_TEAM} robots")
    if len(messages) > MAX_MESSAGES:
        refuse("messages", f"a list of {len(messages)}", f"{MAX_MESSAGES} are the most")
    unique("messages: received", [row.signal for message in messages for row in message.received])
    signals = {row.signal for message in messages for row in message.received}
    for message in messages:
        where = f"message '{message.name}':"
        for term in message.terms:
            is_declared = kind_of(term.signal) in DECLARED_SIGNALS
            if is_declared and (term.signal not in read or term.signal in signals):
                refuse(f"{where} term '{term.name}': signal", term.signal, "the policy must measure it, too")
        for row in message.received:
            if not 0 <= row.sender < len(team) - 1:
                refuse(f"{where} sender", row.sender, f"it must be in [0, {len(team) - 2}]")
            if kind_of(row.signal) != MEASURED or row.signal not in read:
                refuse(f"{where} received", row.signal, "no observation reads it")
            if read[row.signal] != message.width + 1:
                line = f"an observation reads {read[row.signal]} values of it, must be {message.width + 1}"
                refuse(f"{where} width", message.width, line)
