"""What the fault proxy does to a stream of states."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robot_rl.sim2sim.between import Journal
    from robot_rl.sim2sim.faults import Fault

Due = tuple[int, bytes]
OTHER_LAYOUT = 0x5A5A5A5A


class Mutator:
    """Changes the states of one client, datagram by datagram."""

    def __init__(self, runtime: Any, rng: random.Random) -> None:
        """Remembers nothing yet.

        Args:
            runtime: The module `robot_rl_runtime`.
            rng: For what is drawn.
        """
        self._runtime, self._random = runtime, rng
        self._last = b""
        self._frozen: dict[Fault, Any] = {}
        self._held: bytes | None = None

    def apply(self, data: bytes, now_ns: int, active: Sequence[tuple[Fault, Journal]]) -> list[Due]:
        """What becomes of a state.

        Args:
            data: Its datagram.
            now_ns: The time (CLOCK_MONOTONIC).
            active: The faults that are on, with their journals.

        Returns:
            (due [ns], datagram) of all that is to be passed on now or later; 0 is now.
        """
        state = self._runtime.read_state(data)
        if state is None:
            return [(0, data)]
        layout, sequence = self._runtime.frame_kind(data)[1], int(state.sequence)
        kinds = {fault.kind for fault, _ in active}
        on = {fault for fault, _ in active}
        self._frozen = {fault: frozen for fault, frozen in self._frozen.items() if fault in on}
        if "stuck" not in kinds:
            self._last = data
        due, copies, is_lost = 0, 1, False
        for fault, journal in active:
            touched = True
            if change := CONTENT.get(fault.kind):
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
                    data = self._corrupt(data)
            if touched:
                journal.begin(now_ns, sequence if fault.kind in CONTENT else 0)
        if is_lost:
            return []
        return self._reorder([(due, data)] * copies, active, now_ns)

    def _reorder(self, out: list[Due], active: Sequence[tuple[Fault, Journal]], now_ns: int) -> list[Due]:
        """Keeps a state back until the next one has been passed on."""
        share = max((fault.value for fault, _ in active if fault.kind == "reorder"), default=0.0)
        if self._held is not None:
            out, self._held = [*out, (0, self._held)], None
        elif share and self._random.random() < share:
            self._held = out.pop()[1]
        return out

    def _freeze(self, state: Any, fault: Fault) -> None:
        """Put what the state was when the fault began in place of what it is."""
        frozen = self._frozen.setdefault(fault, state.copy())
        for name in FROZEN[fault.kind]:
            if fault.kind == "freeze_encoder":
                joint = _joint(state, fault)
                getattr(state, name)[joint] = float(getattr(frozen, name)[joint])
            else:
                setattr(state, name, getattr(frozen, name))

    def _corrupt(self, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return bytes(changed)


def _tilt(state: Any, fault: Fault) -> None:
    """Turns the base about its own x axis."""
    c, s = math.cos(fault.value / 2), math.sin(fault.value / 2)
    w, x, y, z = (float(value) for value in state.quat_wxyz)
    state.quat_wxyz = [c * w - s * x, c * x + s * w, c * y + s * z, c * z - s * y]


def _set(name: str, value: float | None = None) -> Any:
    def change(state: Any, fault: Fault) -> None:
        getattr(state, name)[_joint(state, fault)] = fault.value if value is None else value

    return change


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


def _joint(state: Any, fault: Fault) -> int:
    return fault.joint % max(1, int(state.joints))


def _gyro(state: Any, fault: Fault) -> None:
    state.gyro[0] += fault.value


CONTENT: dict[str, Any] = {
    "nan": _set("joint_pos", math.nan),
    "infinity": _set("joint_vel", math.inf),
    "tilt": _tilt,
    "gyro": _gyro,
    "position": _position,
    "velocity": _set("joint_vel"),
    "effort": _set("joint_effort"),
    "temperature": _set("temperature_c"),
    "motor_fault": _motor_fault,
    "swap": _swap,
}
"""Kinds that change what a state says, and how."""

IMU, JOINTS = ("quat_wxyz", "gyro", "acc"), ("joint_pos", "joint_vel")
FEET = ("foot_contact", "foot_force", "height_scan")
FROZEN: dict[str, tuple[str, ...]] = {
    "freeze": (*IMU, *JOINTS, "joint_effort", "temperature_c", "motor_fault", *FEET),
    "freeze_imu": IMU,
    "freeze_orientation": ("quat_wxyz",),
    "freeze_gyro": ("gyro",),
    "freeze_acc": ("acc",),
    "freeze_encoders": JOINTS,
    "freeze_encoder": JOINTS,
}
"""Kinds that keep fields of a state as they were, and which."""
