"""Faults between robot and binary: the script of the fault proxy, and the effect of each fault on a state.

A script is a list such as ``delay=0.03@2-4, nan@5, velocity=-40:3@6-7``: the kind, its value, the joint, and the start
and end time in seconds after the policy starts. A file ``*.json`` holds the same as a list of objects.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from robot_rl.errors import UserError, suggest
from robot_rl.settings.schema import check_fields, convert, from_dict, from_text, setting, to_dict

OTHER_LAYOUT = 0x5A5A5A5A


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault, with values in [low, high].

    Attributes:
        text: What it does.
        default: Its default value; None: it takes no value.
        where: Messages that it changes: "state", "command" or "operator"; "link": it adds commands.
        change: Changes the content of a state.
    """

    text: str
    default: float | None
    low: float = -math.inf
    high: float = math.inf
    where: str = "state"
    change: Callable[[Any, Fault], None] | None = None


_PART = re.compile(r"(?P<kind>\w+)(=(?P<value>[^:@]+))?(:(?P<joint>\d+))?(@(?P<start_s>[^-@]+)(-(?P<end_s>[^-@]+))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a script, of one of the `KINDS`.

    Attributes:
        value: Its value, by default its kind's; 0 for a kind without one.
        joint: Index of the joint, in the robot's order.
        start_s, end_s: Start and end after the policy starts [s].
    """

    kind: str = ""
    value: float = setting(None)
    joint: int = setting(0, least=0, most=63)
    start_s: float = 0.0
    end_s: float = math.inf

    def __post_init__(self) -> None:
        """Raise a UserError that names the value that is out of range."""
        kind = KINDS.get(self.kind)
        if kind is None:
            raise UserError(f"there is no '{self.kind}'; {suggest(self.kind, KINDS)}")
        if self.value is None:
            object.__setattr__(self, "value", float(kind.default or 0.0))
        if kind.default is None and self.value:
            raise UserError(f"{self.kind} takes no value")
        if not kind.low <= self.value <= kind.high:
            raise UserError(f"{self.kind}={self.value:g} must be in [{kind.low:g}, {kind.high:g}]: {kind.text}")
        if not 0 <= self.start_s < self.end_s:
            raise UserError(f"{self.kind}@{self.start_s:g}-{self.end_s:g} must begin at 0 or later and end after it")
        check_fields(self)


def read_faults(text: str) -> tuple[Fault, ...]:
    """Read a script, or a file `*.json`; an empty text is a script without faults.

    Raises:
        UserError: It is invalid; the line names the part.
    """
    if not text.endswith(".json"):
        parts = [part.strip() for part in re.split(r"[,;]", text) if part.strip()]
        return tuple(map(_from_part, parts or filter(None, [text])))
    try:
        return load_faults(Path(text).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("faults", text, f"cannot be read ({error})") from None


def check_faults(faults: Iterable[Fault], transport: str, joints: int, signals: Iterable[str]) -> None:
    """Raise a UserError if a robot cannot have a fault, by its transport's address, its joints or its signals."""
    has_imu = any(signal.startswith("imu_") for signal in signals)
    for fault in faults:
        if fault.kind in OF_IMU and not has_imu:
            raise UserError(f"faults: {fault.kind}: the policy reads no IMU; write a fault of joints or states")
        if fault.joint >= joints:
            raise UserError(f"faults: {fault.kind}:{fault.joint}: the robot's joints are 0 to {joints - 1}")
        if fault.kind == "relabel" and not transport.startswith("udp:"):
            raise UserError("faults: relabel works over udp only; write transport=udp")
        if fault.kind == "motor_fault" and transport.startswith("dds:unitree_go"):
            raise UserError(
                "faults: motor_fault: unitree_go's messages have no field for it; write transport=udp or shm"
            )


def dump_faults(faults: Iterable[Fault]) -> str:
    """Return a script as JSON."""
    rows = [{key: value for key, value in to_dict(fault).items() if value != math.inf} for fault in faults]
    return json.dumps(rows, allow_nan=False)


def load_faults(text: str) -> tuple[Fault, ...]:
    """Read what `dump_faults` wrote.

    Raises:
        UserError: It is invalid.
    """
    try:
        rows = convert(list[dict], json.loads(text), "faults")
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, UserError) else UserError(f"faults: is not JSON ({error})") from None
    return tuple(from_dict(Fault, row, prefix="faults: ") for row in rows)


def _from_part(part: str) -> Fault:
    match = _PART.fullmatch(part)
    if match is None:
        raise UserError(f"faults: '{part}' is invalid; write kind=value:joint@start-end, such as delay=0.03@2-4")
    hints = get_type_hints(Fault)
    texts = {key: text for key, text in match.groupdict().items() if text is not None}
    row = {key: from_text(hints[key], text, f"faults: '{part}': {key}") for key, text in texts.items()}
    return from_dict(Fault, row, prefix="faults: ")


@dataclass(slots=True)
class Journal:
    """What a fault did; times of CLOCK_MONOTONIC [ns], 0: not yet.

    Attributes:
        first_ns: When the first message was changed, withheld or added.
        first_sequence: Sequence number of the first changed state.
        last_good_ns: When the last unchanged message before that was passed on.
        damping_ns: When the first damping command after that was sent.
        fault: The binary's name for the fault; not the operator's stop, which ends a session, unless it was injected.
        active_after: Number of commands that answered a changed state and did not damp.
        oldest_answered_ns: Greatest age of the state of a command after `first_ns` that did not damp.
    """

    kind: str
    first_ns: int = 0
    first_sequence: int = 0
    last_good_ns: int = 0
    damping_ns: int = 0
    fault: str = ""
    active_after: int = 0
    oldest_answered_ns: int = 0

    def begin(self, now_ns: int, sequence: int = 0) -> None:
        """Record the first message that the fault changed."""
        if not self.first_ns:
            self.first_ns, self.first_sequence = now_ns, sequence

    def add_command(self, command: Any, phase: str, fault: str) -> None:
        """Record a command of the binary."""
        if not self.first_ns or self.damping_ns or phase == "BOOT" or command.send_time_ns < self.first_ns:
            return
        if phase == "DAMPING":
            if fault != "operator_stop" or self.kind == fault:
                self.damping_ns, self.fault = int(command.send_time_ns), fault
            return
        self.oldest_answered_ns = max(self.oldest_answered_ns, int(command.state_age_ns))
        if self.first_sequence and command.state_sequence >= self.first_sequence:
            self.active_after += 1

    def row(self) -> dict[str, Any]:
        """Return the fault's row of the report."""

        def damping_after(begin_ns: int) -> float | None:
            return (self.damping_ns - begin_ns) / 1e6 if self.damping_ns and begin_ns else None

        return {
            "kind": self.kind,
            "happened": bool(self.first_ns),
            "fault": self.fault,
            "damping_after_ms": damping_after(self.first_ns),
            "damping_after_last_good_ms": damping_after(self.last_good_ns),
            "active_after": self.active_after,
            "oldest_answered_ms": self.oldest_answered_ns / 1e6,
        }


class Mutator:
    """Applies faults to the states of one client, datagram by datagram."""

    def __init__(self, runtime: Any, rng: random.Random) -> None:
        """Use the module `robot_rl_runtime` and a source of random numbers."""
        self._runtime, self._random = runtime, rng
        self._last = b""
        self._frozen: dict[Fault, Any] = {}
        self._held: bytes | None = None

    def apply(self, data: bytes, now_ns: int, active: Sequence[tuple[Fault, Journal]]) -> list[tuple[int, bytes]]:
        """Apply the active faults to the datagram of a state.

        Returns:
            (due [ns], datagram) of everything to pass on now or later; 0 is now.
        """
        state = self._runtime.read_state(data)
        if state is None:
            return [(0, data)]
        layout, sequence = self._runtime.frame_kind(data)[1], int(state.sequence)
        faults = [fault for fault, _ in active]
        self._frozen = {fault: frozen for fault, frozen in self._frozen.items() if fault in faults}
        if all(fault.kind != "stuck" for fault in faults):
            self._last = data
        due, copies, is_lost = 0, 1, False
        for fault, journal in active:
            touched, change = True, KINDS[fault.kind].change
            if change is not None:
                change(state, fault)
                data = self._runtime.write_state(state, layout)
            elif fault.kind in FROZEN:
                self._freeze(state, fault)
                data = self._runtime.write_state(state, layout)
            elif fault.kind == "stuck":
                data = self._last
            elif fault.kind == "relabel":
                data = self._runtime.write_state(state, layout ^ OTHER_LAYOUT)
            elif fault.kind in ("delay", "jitter"):
                share = 1.0 if fault.kind == "delay" else self._random.random()
                due = max(due, now_ns) + round(share * fault.value * 1e9)
            else:
                touched = self._random.random() < fault.value
                is_lost = is_lost or (touched and fault.kind == "drop")
                copies += touched and fault.kind == "duplicate"
                if touched and fault.kind == "corrupt":
                    changed = bytearray(data)
                    changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
                    data = bytes(changed)
            if touched:
                journal.begin(now_ns, sequence if change is not None else 0)
        return [] if is_lost else self._reorder([(due, data)] * copies, faults)

    def _reorder(self, out: list[tuple[int, bytes]], faults: Sequence[Fault]) -> list[tuple[int, bytes]]:
        """Hold a state back until the next one has been passed on."""
        share = max((fault.value for fault in faults if fault.kind == "reorder"), default=0.0)
        if self._held is not None:
            out, self._held = [*out, (0, self._held)], None
        elif share and self._random.random() < share:
            self._held = out.pop()[1]
        return out

    def _freeze(self, state: Any, fault: Fault) -> None:
        """Replace signals of a state by those at the start of the fault."""
        frozen = self._frozen.setdefault(fault, state.copy())
        for name in FROZEN[fault.kind]:
            if fault.kind == "freeze_encoder":
                joint = _joint(state, fault)
                getattr(state, name)[joint] = float(getattr(frozen, name)[joint])
            else:
                setattr(state, name, getattr(frozen, name))


def _joint(state: Any, fault: Fault) -> int:
    return fault.joint % max(1, int(state.joints))


def _set(name: str, value: float | None = None) -> Callable[[Any, Fault], None]:
    def change(state: Any, fault: Fault) -> None:
        getattr(state, name)[_joint(state, fault)] = fault.value if value is None else value

    return change


def _tilt(state: Any, fault: Fault) -> None:
    """Rotate the base about its own x axis."""
    c, s = math.cos(fault.value / 2), math.sin(fault.value / 2)
    w, x, y, z = (float(value) for value in state.quat_wxyz)
    state.quat_wxyz = [c * w - s * x, c * x + s * w, c * y + s * z, c * z - s * y]


def _gyro(state: Any, fault: Fault) -> None:
    state.gyro[0] += fault.value


def _position(state: Any, fault: Fault) -> None:
    state.joint_pos[_joint(state, fault)] += fault.value


def _motor_fault(state: Any, fault: Fault) -> None:
    state.motor_fault[_joint(state, fault)] = int(fault.value)


def _swap(state: Any, fault: Fault) -> None:
    first = _joint(state, fault)
    second = (first + 1) % int(state.joints)
    for name in ("joint_pos", "joint_vel", "joint_effort", "temperature_c"):
        values = getattr(state, name)
        values[first], values[second] = float(values[second]), float(values[first])


KINDS: dict[str, Kind] = {
    "delay": Kind("states are delayed by that time [s]", 0.05, 0, 60),
    "jitter": Kind("states are delayed by random times up to that [s]", 0.004, 0, 60),
    "drop": Kind("that share of the states is lost", 1.0, 0, 1),
    "duplicate": Kind("that share of the states is sent twice", 1.0, 0, 1),
    "reorder": Kind("that share of the states arrives after the next one", 0.5, 0, 1),
    "corrupt": Kind("one bit is flipped in that share of the states", 1.0, 0, 1),
    "stuck": Kind("the same state is sent repeatedly", None),
    "freeze": Kind("states continue, their content does not change", None),
    "freeze_imu": Kind("orientation, gyroscope and accelerometer do not change", None),
    "freeze_orientation": Kind("the orientation does not change", None),
    "freeze_gyro": Kind("the gyroscope does not change", None),
    "freeze_acc": Kind("the accelerometer does not change", None),
    "freeze_encoders": Kind("position and velocity of every joint do not change", None),
    "freeze_encoder": Kind("position and velocity of a joint do not change", None),
    "relabel": Kind("states are of a robot with its joints in another order", None),
    "swap": Kind("two joints report each other's values: the given one and the next", None, change=_swap),
    "nan": Kind("a joint's position is NaN", None, change=_set("joint_pos", math.nan)),
    "infinity": Kind("a joint's velocity is infinite", None, change=_set("joint_vel", math.inf)),
    "tilt": Kind("the IMU is rotated by that angle about x [rad]", 1.5, change=_tilt),
    "gyro": Kind("the gyroscope has that offset about x [rad/s]", 5.0, change=_gyro),
    "position": Kind("a joint's position has that offset [rad or m]", 8.0, change=_position),
    "velocity": Kind("a joint's velocity is that [rad/s or m/s]", 60.0, change=_set("joint_vel")),
    "effort": Kind("a joint's motor reports that effort [N m or N]", 500.0, change=_set("joint_effort")),
    "temperature": Kind("a joint's motor reports that temperature [C]", 120.0, change=_set("temperature_c")),
    "motor_fault": Kind("a joint's motor reports these fault bits", 1, 0, 2**32 - 1, change=_motor_fault),
    "command_delay": Kind("commands are delayed by that time [s]", 0.05, 0, 60, "command"),
    "command_drop": Kind("that share of the commands is lost", 1.0, 0, 1, "command"),
    "second_commander": Kind("a second commander also commands the robot", None, where="link"),
    "operator_silence": Kind("the operator's messages are lost", None, where="operator"),
    "operator_stop": Kind("the operator requests damping", None, where="operator"),
}

IMU, JOINTS = ("quat_wxyz", "gyro", "acc"), ("joint_pos", "joint_vel")
AROUND = ("foot_contact", "foot_force", "measured")
FROZEN: dict[str, tuple[str, ...]] = {
    "freeze": (*IMU, *JOINTS, "joint_effort", "temperature_c", "motor_fault", *AROUND),
    "freeze_imu": IMU,
    "freeze_orientation": ("quat_wxyz",),
    "freeze_gyro": ("gyro",),
    "freeze_acc": ("acc",),
    "freeze_encoders": JOINTS,
    "freeze_encoder": JOINTS,
}
"""Kinds that freeze fields of a state, and which."""
OF_IMU = ("freeze_imu", "freeze_orientation", "freeze_gyro", "freeze_acc", "gyro")
"""Kinds for a robot whose policy reads its IMU; the orientation itself is judged on every robot."""
