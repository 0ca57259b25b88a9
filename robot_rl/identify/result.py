"""The result of an identification: a file of values and intervals, seen or not seen in the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robot_rl.errors import UserError
from robot_rl.files import read_json, write_json
from robot_rl.identify.parameters import BODY, DELAY, FIELDS, Parameters
from robot_rl.runs.outputs import IDENTIFIED_FORMAT

VERSION = 1
MAX_BYTES = 64 * 2**20
EVENTS = {
    "joint_armature": "armature",
    "joint_damping": "damping",
    "joint_friction": "friction",
    "motor_strength": "gain",
}
"""Events of a task, and the parameter that each multiplies by a factor."""
LEAST_FACTOR = 0.01
BETTER = 0.8
"""A network is used if its error is at most this share of that of the fitted parameters."""
TRAINED = ("gain", "armature", "damping", "friction")
"""Parameters that a training takes over; an encoder's offset is calibrated away, not trained with."""
LEAST_DELAY = 0.0005
"""A training's delays differ from the fitted one by so much at least [s]."""
LEAST_SPREAD = 0.05
"""A policy is trained with values that differ by so much at least: voltage and temperature change them by more than a
good fit is uncertain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One parameter.

    Attributes:
        nominal: The model's value.
        value: The fitted value.
        lo: Lower end of its 95 % interval.
        hi: Upper end.
        seen: Whether the logs show it; else its value is hardly more than the prior's.
        ratio: Half the interval's width while the scale of the joint's torques is held.
        unit: Its unit.
    """

    nominal: float
    value: float
    lo: float
    hi: float
    seen: bool
    ratio: float = 0.0
    unit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refit:
    """The values of another timestep: parameters absorb the integrator's error, so each task needs other ones.

    Attributes:
        timestep: [s].
        values: By joint and parameter.
        delay: [s], None if it was not fitted.
        errors: Of the held-out log, as in `Identified`.
    """

    timestep: float
    values: dict[str, dict[str, float]]
    delay: float | None
    errors: dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetEntry:
    """A network in place of the motors, compared with the fitted parameters on the held-out log.

    Attributes:
        file: The network; "" if it was trained and is not written.
        sha256: Of the file, "" without.
        trained: Whether it was trained on the fitted logs.
        lags_s: Ages of the errors and speeds that it reads [s].
        timestep: Of the rollouts: that of a task, with the values that were fitted there [s].
        dynamics: The joints' armature, damping and friction in its rollouts: of the "model", or "fitted".
        errors: Of the held-out log, as in `Identified`.
        ratio: Its error of positions over that of the fitted parameters.
        used: Whether it is enough better to be used instead.
    """

    file: str
    sha256: str
    trained: bool
    lags_s: list[float]
    timestep: float
    dynamics: str
    errors: dict[str, float]
    ratio: float
    used: bool

    def line(self) -> str:
        """Return a line with the comparison."""
        error, than = 1e3 * self.errors["q"], 1e3 * self.errors["q"] / self.ratio
        what = "network of the logged torques" if self.trained else f"network {self.file}"
        joints = {"model": "the model's armature and friction", "fitted": "the fitted armature, damping and friction"}
        line = f"{what} with {joints[self.dynamics]}: positions {error:.2f} mrad on the held-out log at "
        line += f"{1e3 * self.timestep:.3g} ms, the fitted parameters {than:.2f} mrad; it is "
        line += f"{100.0 * abs(1.0 - self.ratio):.0f} % {'better' if self.ratio < 1.0 else 'worse'}"
        if self.trained and not self.used:
            line += f", and is written only if it is {100.0 * (1.0 - BETTER):.0f} % better"
        return line


@dataclass(frozen=True, kw_only=True, slots=True)
class Identified:
    """The parameters of a robot by its logs.

    Attributes:
        robot: The robot's name.
        base: "fixed" or "free".
        timestep: At which the values hold, since parameters absorb the integrator's error [s].
        window_s: Length of the windows that were fitted [s].
        logs: Of each log name, sha256, seconds, rows, notes, and whether it was "fit" or "held".
        model: By joint, the kd that the logs command, and the model's values of all parameters.
        joints: By joint and parameter; "scale" is the factor that gain, damping (with kd), friction and armature have
            in common: it rests on the inertia of the links.
        delay: From a command to the torque [s].
        body: Of a robot on its feet by parameter: mass, com_x, com_y, com_z, floor.
        errors: By "fit" and "held", "before" and "after": median over windows of the RMS error, q [rad] and dq [rad/s].
        refits: The values at the timesteps of the robot's tasks.
        notes: Lines for the user.
        figures: How the fit went.
        net: The comparison with a network, None without one.
    """

    robot: str
    base: str
    timestep: float
    window_s: float
    logs: list[dict[str, Any]]
    model: dict[str, dict[str, float]]
    joints: dict[str, dict[str, Estimate]]
    delay: Estimate | None
    errors: dict[str, dict[str, dict[str, float]]]
    refits: list[Refit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Estimate] = field(default_factory=dict)
    net: NetEntry | None = None

    def ranges(self) -> dict[str, dict[str, float]]:
        """Return ranges for a task's events: factors on the model's values that contain all joints' intervals.

        A parameter that some joint does not show, or that is 0 in the model, is omitted: the task's own range stays.
        """
        found = {}
        for event, name in EVENTS.items():
            rows = [joint[name] for joint in self.joints.values() if name in joint]
            if rows and all(row.seen and row.nominal > 0 for row in rows):
                lows, highs = ([getattr(row, end) / row.nominal for row in rows] for end in ("lo", "hi"))
                found[event] = {"lo": max(min(lows), LEAST_FACTOR), "hi": max(*highs, LEAST_FACTOR)}
        if self.delay is not None and self.delay.seen:
            found["delay_s"] = {"lo": max(self.delay.lo, 0.0), "hi": self.delay.hi}
        return found

    def training(self) -> list[dict[str, Any]]:
        """Return the figures for a training: of each timestep every joint's values, and ranges of factors around them.

        A value that the logs do not show is the model's, so are those of a parameter that was not fitted.
        """
        values = {joint: {key: row.value for key, row in rows.items()} for joint, rows in self.joints.items()}
        delay = None if self.delay is None else self.delay.value
        fits = [Refit(timestep=self.timestep, values=values, delay=delay, errors=self.errors["held"]), *self.refits]
        return [
            {
                "timestep": fit.timestep,
                "joints": {joint: self._values(joint, fit) for joint in self.model},
                "ranges": {name: around for name in TRAINED if (around := self._around(name))},
                "delay_s": self._delays(fit.delay),
            }
            for fit in fits
        ]

    def _values(self, joint: str, fit: Refit) -> dict[str, float]:
        """Return a joint's values at a timestep, and the kd that its motor was commanded."""
        rows, model = self.joints.get(joint, {}), self.model[joint]
        seen = {name: name in rows and rows[name].seen for name in TRAINED}
        return {"kd": model["kd"], **{n: fit.values[joint][n] if seen[n] else model[n] for n in TRAINED}}

    def _around(self, name: str) -> list[float]:
        """Return the range of factors around a parameter's values that contains every joint's interval."""
        rows = [(joint, names[name]) for joint, names in self.joints.items() if name in names and names[name].seen]
        # A motor's kd takes the uncertainty of the damping: the two are one number.
        # A joint with hardly any armature or friction does not widen the range of all: its share is of the model's.
        sizes = [self.model[joint]["kd"] if name == "damping" else max(row.value, row.nominal) for joint, row in rows]
        shares = [(row.hi - row.lo) / 2.0 / size for (_, row), size in zip(rows, sizes, strict=True) if size > 0]
        if not shares:
            return []
        share = min(max(*shares, LEAST_SPREAD), 1.0 - LEAST_FACTOR)
        return [1.0 - share, 1.0 + share]

    def _delays(self, delay: float | None) -> list[float]:
        if delay is None or self.delay is None or not self.delay.seen:
            return []
        half = max((self.delay.hi - self.delay.lo) / 2.0, LEAST_DELAY)
        return [max(delay - half, 0.0), max(delay, 0.0) + half]

    def vector(self, parameters: Parameters) -> NDArray[np.float64]:
        """Return these values as a vector; those that were not fitted are the model's."""
        found = parameters.nominal.copy()
        for joint, rows in self.joints.items():
            for name, row in rows.items():
                if name in FIELDS and joint in parameters.joints:
                    found[parameters.indices(name)[parameters.joints.index(joint)]] = row.value
        for name, row in {**({DELAY: self.delay} if self.delay else {}), **self.body}.items():
            if row.seen and int(parameters.indices(name)[0]) < len(found):
                found[parameters.indices(name)] = row.value
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        derived = {"ranges": self.ranges(), "training": self.training()}
        return {"format": IDENTIFIED_FORMAT, "version": VERSION, **asdict(self), **derived}

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_json(path, self.to_json())

    @classmethod
    def read(cls, path: str | Path) -> Identified:
        """Read a file.

        Raises:
            UserError: It is not such a file, or of another version.
        """
        data = read_json(Path(path), MAX_BYTES)
        if not isinstance(data, dict) or data.get("format") != IDENTIFIED_FORMAT:
            raise UserError(
                f"{path}: is not a file of robot-rl identify; make one with robot-rl identify LOG robot=..."
            )
        if data.get("version") != VERSION:
            raise UserError(f"{path}: version={data.get('version')!r}, this program reads {VERSION}")
        try:
            given = {
                key: value for key, value in data.items() if key not in ("format", "version", "ranges", "training")
            }
            joints = {
                joint: {key: Estimate(**row) for key, row in rows.items()}
                for joint, rows in given.pop("joints").items()
            }
            delay, refits = given.pop(DELAY), [Refit(**fit) for fit in given.pop("refits")]
            body = {key: Estimate(**row) for key, row in given.pop("body", {}).items()}
            delay = None if delay is None else Estimate(**delay)
            net = NetEntry(**net) if (net := given.pop("net", None)) else None
            return cls(joints=joints, refits=refits, delay=delay, body=body, net=net, **given)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: is damaged ({error}); make it again with robot-rl identify") from None


def table(found: Identified) -> list[str]:
    """Return lines for a terminal: each joint's parameters with nominal, value, interval and whether it is seen."""
    rows = [(joint, name, row) for joint, names in found.joints.items() for name, row in names.items()]
    if found.delay is not None:
        rows.append(("", DELAY, found.delay))
    rows += [("", name, row) for name, row in found.body.items()]
    width = max((len(joint) for joint, _, _ in rows), default=5)
    lines = [f"{'joint':<{width}}  {'parameter':<13} {'nominal':>9} {'value':>9}   {'95 % interval':<21} {'':<12}"]
    for joint, name, row in rows:
        interval = f"{row.lo:>9.4g} .. {row.hi:<9.4g}"
        end = f"{row.unit:<12}" if row.seen else f"{row.unit:<12} not seen"
        lines.append(
            f"{joint:<{width}}  {name:<13} {row.nominal:>9.4g} {row.value:>9.4g}   {interval:<21} {end}".rstrip()
        )
    return lines


def error_lines(errors: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Sequence[str]:
    """Return lines with the errors of prediction before and after the fit."""
    words = {"fit": "fitted logs", "held": "held-out log"}
    return [
        f"{words[part]}: positions {1e3 * rows['before']['q']:.2f} -> {1e3 * rows['after']['q']:.2f} mrad, "
        f"speeds {rows['before']['dq']:.3f} -> {rows['after']['dq']:.3f} rad/s"
        for part, rows in errors.items()
    ]


UNITS = {**FIELDS, DELAY: "s", "scale": "", **BODY}
