"""What goes wrong between robot and binary, and when: the script of the fault proxy.

A script is a list such as ``delay=0.03@2-4, nan@5, velocity=-40:3@6-7``: kind, then the value, the joint, and the time
from which and to which it lasts, in seconds after the policy took over. A file ``*.json`` holds the same as a list of
objects.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robot_rl.errors import UserError, suggest


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        text: What it does.
        default: The value where none is given; None: it takes none.
        low: Lowest value.
        high: Highest value.
        where: "state", "command" or "operator": which messages it is about; "link": the robot's side.
    """

    text: str
    default: float | None
    low: float = -math.inf
    high: float = math.inf
    where: str = "state"


KINDS: dict[str, Kind] = {
    "delay": Kind("states come that much later [s]", 0.05, 0, 60),
    "jitter": Kind("states come up to that much later, each by its own [s]", 0.004, 0, 60),
    "drop": Kind("that share of the states is lost", 1.0, 0, 1),
    "duplicate": Kind("that share of the states comes twice", 1.0, 0, 1),
    "reorder": Kind("that share of the states comes after the next one", 0.5, 0, 1),
    "corrupt": Kind("a bit is turned in that share of the states", 1.0, 0, 1),
    "stuck": Kind("the same state comes again and again", None),
    "freeze": Kind("states go on, what they hold stands still", None),
    "freeze_imu": Kind("orientation, gyroscope and accelerometer stand still", None),
    "freeze_orientation": Kind("the orientation stands still", None),
    "freeze_gyro": Kind("the gyroscope stands still", None),
    "freeze_acc": Kind("the accelerometer stands still", None),
    "freeze_encoders": Kind("position and velocity of every joint stand still", None),
    "freeze_encoder": Kind("position and velocity of a joint stand still", None),
    "relabel": Kind("states are of a robot with its joints in another order", None),
    "swap": Kind("two joints report each other's values: the given one and the next", None),
    "nan": Kind("a joint's position is no number", None),
    "infinity": Kind("a joint's velocity is infinite", None),
    "tilt": Kind("the IMU is turned by that angle about x [rad]", 1.5),
    "gyro": Kind("the gyroscope is off by that rate about x [rad/s]", 5.0),
    "position": Kind("a joint's position is off by that much [rad or m]", 8.0),
    "velocity": Kind("a joint's velocity is that [rad/s or m/s]", 60.0),
    "effort": Kind("a joint's motor reports that effort [N m or N]", 500.0),
    "temperature": Kind("a joint's motor reports that temperature [C]", 120.0),
    "motor_fault": Kind("a joint's motor reports these fault bits", 1, 0, 2**32 - 1),
    "command_delay": Kind("commands come that much later [s]", 0.05, 0, 60, "command"),
    "command_drop": Kind("that share of the commands is lost", 1.0, 0, 1, "command"),
    "second_commander": Kind("somebody else commands the robot, too", None, where="link"),
    "operator_silence": Kind("the operator is not heard", None, where="operator"),
    "operator_stop": Kind("the operator asks for damping", None, where="operator"),
}
_PART = re.compile(r"(?P<kind>\w+)(=(?P<value>[^:@]+))?(:(?P<joint>\d+))?(@(?P<start>[^-@]+)(-(?P<end>[^-@]+))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a script.

    Attributes:
        kind: One of `KINDS`.
        value: Its value; 0 where the kind takes none.
        joint: The joint it is about, in the robot's order.
        start_s: From when, after the policy took over [s].
        end_s: Until when; infinite without an end.
    """

    kind: str
    value: float = 0.0
    joint: int = 0
    start_s: float = 0.0
    end_s: float = math.inf

    def __post_init__(self) -> None:
        """Check kind and ranges.

        Raises:
            UserError: Something is out of range; the line names it.
        """
        kind = KINDS.get(self.kind)
        if kind is None:
            raise UserError(f"faults: there is no '{self.kind}'; {suggest(self.kind, KINDS)}")
        if not kind.low <= self.value <= kind.high:
            raise UserError(
                f"faults: {self.kind}={self.value:g} must lie in [{kind.low:g}, {kind.high:g}]: {kind.text}"
            )
        if not 0 <= self.start_s < self.end_s:
            raise UserError(
                f"faults: {self.kind}@{self.start_s:g}-{self.end_s:g} must begin at 0 or later and end after it"
            )
        if not 0 <= self.joint < 64:
            raise UserError(f"faults: {self.kind}:{self.joint} must be the index of a joint, from 0 to 63")


def read_faults(text: str) -> tuple[Fault, ...]:
    """Read a script.

    Args:
        text: The script, or the path of a file `*.json`; empty for no faults.

    Raises:
        UserError: It is none; the line names the part.
    """
    if text.endswith(".json"):
        return _from_file(Path(text))
    return tuple(_from_part(part.strip()) for part in re.split(r"[,;]", text) if part.strip())


def check_faults(faults: Iterable[Fault], transport: str) -> None:
    """See whether a transport can carry what goes wrong.

    Args:
        faults: The script.
        transport: An address, such as "dds:unitree_go?domain=1".

    Raises:
        UserError: It cannot; the line names the fault.
    """
    kinds = {fault.kind for fault in faults}
    if "relabel" in kinds and not transport.startswith("udp:"):
        raise UserError("faults: relabel goes over udp alone; write transport=udp")
    if "motor_fault" in kinds and transport.startswith("dds:unitree_go"):
        raise UserError("faults: motor_fault: unitree_go's messages have no field for it; write transport=udp or shm")


def dump_faults(faults: Iterable[Fault]) -> str:
    """Write a script as JSON."""
    rows = [{key: value for key, value in asdict(fault).items() if value != math.inf} for fault in faults]
    return json.dumps(rows, allow_nan=False)


def load_faults(text: str) -> tuple[Fault, ...]:
    """Read what `dump_faults` wrote.

    Raises:
        UserError: It is no such list.
    """
    try:
        rows = json.loads(text)
        if not isinstance(rows, list):
            raise ValueError("it is no list")
        return tuple(_from_row(row) for row in rows)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"faults: no list of faults in JSON ({error})") from None


def _from_file(path: Path) -> tuple[Fault, ...]:
    try:
        return load_faults(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"faults={path}: cannot be read ({error})") from None


def _from_row(row: Any) -> Fault:
    if not isinstance(row, dict):
        raise UserError(f"faults: {row!r} must be an object such as {{'kind': 'delay', 'value': 0.05, 'start_s': 2}}")
    known = {"kind": str, "value": float, "joint": int, "start_s": float, "end_s": float}
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in known:
            raise UserError(f"faults: unknown field '{key}'; {suggest(str(key), known)}")
        fits = (
            isinstance(value, str) if key == "kind" else isinstance(value, int | float) and not isinstance(value, bool)
        )
        if not fits:
            raise UserError(f"faults: {key} is {value!r}; it must be {'a word' if key == 'kind' else 'a number'}")
        values[key] = known[key](value)
    if "kind" not in values:
        raise UserError(f"faults: {row!r} names no kind; {', '.join(KINDS)}")
    values.setdefault("value", _default(values["kind"]))
    return Fault(**values)


def _from_part(part: str) -> Fault:
    match = _PART.fullmatch(part)
    if match is None:
        raise UserError(f"faults: '{part}' is no fault; write kind=value:joint@start-end, such as delay=0.03@2-4")
    found = match.groupdict()
    values: dict[str, Any] = {"kind": found["kind"], "value": _default(found["kind"])}
    if found["value"] is not None:
        if found["kind"] in KINDS and KINDS[found["kind"]].default is None:
            raise UserError(f"faults: '{part}': {found['kind']} takes no value")
        values["value"] = _number(part, found["value"])
    if found["joint"] is not None:
        values["joint"] = int(found["joint"])
    for key in ("start", "end"):
        if found[key] is not None:
            values[f"{key}_s"] = _number(part, found[key])
    return Fault(**values)


def _default(kind: str) -> float:
    known = KINDS.get(kind)
    return 0.0 if known is None or known.default is None else float(known.default)


def _number(part: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"faults: '{part}': {text} is not a number")
    return value
