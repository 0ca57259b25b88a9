"""The vocabulary of observation terms: the signals of a robot and the transforms of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from robot_rl_deploy.strict import ContractError, at_least, decode, number, refuse, unique

MAX_HISTORY, MAX_SIZE = 1000, 2**20
# The largest number of values of a signal in one message of a robot.
MAX_JOINTS, MAX_COMMAND = 64, 96
MAX_SIGNAL = {"foot_contact": 8, "foot_force": 8}
MAX_MEASURED = 1024
"""The largest number of values of all measured signals together, images among them."""
MEASURED = "measured/<name>"
"""The entry in `SIGNALS` and `TRANSFORMS` of values measured by something on or around the robot, such as a camera."""

# Signal -> its possible frames. Other signals cannot be measured on a robot. "imu" is the frame of the unit itself as
# it is mounted, "heading" one at the base that is level and turns with it.
SIGNALS: dict[str, tuple[str, ...]] = {
    "joint_pos": ("joint",),
    "joint_vel": ("joint",),
    "imu_gyro": ("base", "imu"),
    "imu_quat_wxyz": ("base", "world", "imu"),
    "imu_acc": ("imu",),
    MEASURED: ("base", "heading", "world", "imu", "joint", "none"),
    "foot_contact": ("none",),
    "foot_force": ("none",),
    "command": ("base",),
    "last_action": ("none",),
    "clock": ("none",),
}
# Transform -> signal -> units of its value; a joint signal of hinges and sliders together has the unit rad.
TRANSFORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "identity": {
        "joint_pos": ("rad", "m"),
        "joint_vel": ("rad/s", "m/s"),
        "imu_gyro": ("rad/s",),
        "imu_quat_wxyz": ("1",),
        "imu_acc": ("m/s^2",),
        MEASURED: ("m", "m/s", "m/s^2", "rad", "rad/s", "rad/s^2", "N", "N m", "s", "1"),
        "foot_contact": ("1",),
        "foot_force": ("N",),
        "command": ("m/s, m/s, rad/s", "m/s", "rad/s", "m", "rad", "1", "mixed"),
        "last_action": ("1",),
    },
    "minus_default": {"joint_pos": ("rad", "m")},
    "minus_offset": {MEASURED: ("m",)},
    "sin_cos": {"joint_pos": ("1",)},
    "projected_gravity": {"imu_quat_wxyz": ("1",)},
    "sin_cos_phase": {"clock": ("1",)},
}
GATES = ("none", "command")
JOINT_SIGNALS = ("joint_pos", "joint_vel")
FIXED_SIZES = {"imu_gyro": 3, "imu_quat_wxyz": 4, "imu_acc": 3}
# Signals with the width of the first term that reads them: one value a foot, or what is measured.
DECLARED_SIGNALS = ("foot_contact", "foot_force", MEASURED)
PARAMS = {"sin_cos_phase": {"frequency_hz", "gate", "gate_norm"}, "minus_offset": {"offset", "grid"}}
IMAGE_KINDS = {"depth": 1, "rgb": 3}
"""Kind of an image -> its channels."""


def current_name(signal: str) -> str:
    """Return the name of a signal in a bundle of any version: a height scan had one that was not measured/<name>."""
    return "measured/height_scan" if signal == "height_scan" else signal


def kind_of(signal: str) -> str:
    """Return the entry of a signal in `SIGNALS` and `TRANSFORMS`; "" for one that no robot delivers."""
    prefix = MEASURED.partition("<")[0]
    if not signal.startswith(prefix):
        return signal if signal in SIGNALS else ""
    name = signal.removeprefix(prefix)
    return MEASURED if name.isascii() and name.isidentifier() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSpec:
    """The points of a grid around the base, such as a height scan's, in a frame that is level and turns with it.

    Rows run along x (forward), from the rear to the front; the first row is the rightmost, at the lowest y. The signal
    is the height of the base's origin above the ground at each point [m].

    Attributes:
        size: Extent along x and y [m].
        resolution: Distance between points [m].
        offset: Of the grid's middle from the base's origin, x and y [m].
    """

    size: tuple[float, ...]
    resolution: float
    offset: tuple[float, ...]

    def count(self, where: str) -> int:
        """Return the number of points.

        Raises:
            ContractError: The grid is invalid.
        """
        at_least(f"{where}.resolution", self.resolution, 0, strictly=True)
        if len(self.size) != 2 or min(self.size) < 0:
            refuse(f"{where}.size", list(self.size), "it must be [x, y] of at least 0 m")
        if len(self.offset) != 2:
            refuse(f"{where}.offset", list(self.offset), "it must be [x, y]")
        columns, rows = (extent / self.resolution + 1e-6 for extent in self.size)
        if max(columns, rows) >= MAX_SIZE:
            refuse(f"{where}.resolution", self.resolution, f"the grid would have more than {MAX_SIZE} points")
        return (int(rows) + 1) * (int(columns) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """The camera of a measured signal that is an image.

    The signal has channels, then rows from the top, then columns from the left. "depth" is the distance along the line
    of sight [m], `far` beyond that or without a hit, 0 without a value of the device; "rgb" is in [0, 1].

    Attributes:
        kind: One of `IMAGE_KINDS`.
        width: Of the image [px].
        height: Of the image [px].
        focal: Focal lengths along columns and rows [px].
        center: Principal point, column and row, from the top left corner [px].
        body: Body that the camera is mounted on.
        pos: Of the camera in that body's frame [m].
        quat_wxyz: Orientation in that frame; the camera looks along its -z, its x points right in the image, its y up.
        near: Least distance that is measured [m].
        far: Largest distance that is measured [m].
        period_s: Time between two images [s].
    """

    kind: str
    width: int
    height: int
    focal: tuple[float, ...]
    center: tuple[float, ...]
    body: str
    pos: tuple[float, ...]
    quat_wxyz: tuple[float, ...]
    near: float
    far: float
    period_s: float

    def count(self, where: str) -> int:
        """Return the number of values.

        Raises:
            ContractError: The camera is invalid.
        """
        if self.kind not in IMAGE_KINDS:
            refuse(f"{where}.kind", self.kind, f"it must be one of {', '.join(IMAGE_KINDS)}")
        for field in ("width", "height"):
            if not 1 <= (side := getattr(self, field)) <= MAX_MEASURED:
                refuse(f"{where}.{field}", side, f"it must be in [1, {MAX_MEASURED}]")
        for field, size in (("focal", 2), ("center", 2), ("pos", 3), ("quat_wxyz", 4)):
            if len(values := getattr(self, field)) != size:
                refuse(f"{where}.{field}", list(values), f"it must be {size} numbers")
        if min(self.focal) <= 0:
            refuse(f"{where}.focal", list(self.focal), "it must be more than 0")
        at_least(f"{where}.near", self.near, 0)
        at_least(f"{where}.period_s", self.period_s, 0, strictly=True)
        if not self.near < self.far:
            refuse(f"{where}.near", self.near, f"it must be less than far ({self.far})")
        return IMAGE_KINDS[self.kind] * self.width * self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationSpec:
    """One term of the observation: `clip(transform(signal)) * scale`.

    Attributes:
        name: Name of the term.
        signal: Robot signal it reads, one of `SIGNALS`; for `MEASURED` with a name of ASCII letters, digits and _.
        transform: One of `TRANSFORMS`.
        unit: Unit of the transformed value, before scale.
        frame: Frame of the signal.
        size: Width of one frame of history.
        scale: Factor applied last.
        clip: Lowest and highest transformed value; None for no clip.
        history: Number of frames, 1 for the newest only.
        params: "joints" (names, joint signals only; all joints if absent); for `sin_cos_phase` "frequency_hz",
            "gate" ("none" or "command") and "gate_norm": both values are 0 if the command's norm is below it; for
            `minus_offset` "offset" [m], which is subtracted, and "grid", a `GridSpec`; for a measured signal that is an
            image "image", an `ImageSpec`.
    """

    name: str
    signal: str
    transform: str
    unit: str
    frame: str
    size: int
    scale: float
    clip: tuple[float, ...] | None
    history: int
    params: dict[str, Any]

    def __post_init__(self) -> None:
        """Check everything that does not need the rest of the contract."""
        object.__setattr__(self, "signal", current_name(self.signal))
        where = f"observation '{self.name}':"
        kind = kind_of(self.signal)
        if not kind:
            refuse(f"{where} signal", self.signal, f"no robot measures it; it must be one of {', '.join(SIGNALS)}")
        units = TRANSFORMS.get(self.transform, {})
        if kind not in units:
            fitting = [name for name, signals in TRANSFORMS.items() if kind in signals]
            refuse(f"{where} transform", self.transform, f"for {self.signal} it must be one of {', '.join(fitting)}")
        if self.unit not in units[kind]:
            refuse(f"{where} unit", self.unit, f"it must be one of {', '.join(units[kind])}")
        if self.frame not in SIGNALS[kind]:
            refuse(f"{where} frame", self.frame, f"it must be one of {', '.join(SIGNALS[kind])}")
        if self.scale == 0:
            refuse(f"{where} scale", self.scale, "it must not be 0")
        if self.clip is not None and not (len(self.clip) == 2 and self.clip[0] < self.clip[1]):
            refuse(f"{where} clip", list(self.clip), "it must be null or [low, high] with low < high")
        if not 1 <= self.size <= MAX_SIZE:
            refuse(f"{where} size", self.size, f"it must be in [1, {MAX_SIZE}]")
        if not 1 <= self.history <= MAX_HISTORY:
            refuse(f"{where} history", self.history, f"it must be in [1, {MAX_HISTORY}]")
        self._check_params(where)

    def _check_params(self, where: str) -> None:
        allowed = PARAMS.get(self.transform, set())
        optional = {"joints"} if self.signal in JOINT_SIGNALS else set()
        if kind_of(self.signal) == MEASURED:
            optional = {"image"}
        for key in sorted(self.params.keys() - allowed - optional):
            refuse(f"{where} params.{key}", self.params[key], f"there is no such parameter of {self.transform}")
        for key in sorted(allowed - self.params.keys()):
            raise ContractError(f"{where} params.{key} is missing; {self.transform} needs it")
        if "joints" in self.params:
            names = decode(tuple[str, ...], self.params["joints"], f"{where} params.joints")
            unique(f"{where} params.joints", names)
        if self.transform == "minus_offset":
            number(self.params["offset"], f"{where} params.offset")
            grid = decode(GridSpec, self.params["grid"], f"{where} params.grid")
            if self.size != (count := grid.count(f"{where} params.grid")):
                refuse(f"{where} size", self.size, f"its grid has {count} points")
        if "image" in self.params:
            image = decode(ImageSpec, self.params["image"], f"{where} params.image")
            if self.size != (count := image.count(f"{where} params.image")):
                refuse(f"{where} size", self.size, f"its image has {count} values")
        if self.transform == "sin_cos_phase":
            for key in ("frequency_hz", "gate_norm"):
                at_least(f"{where} params.{key}", number(self.params[key], f"{where} params.{key}"), 0)
            if self.params["gate"] not in GATES:
                refuse(f"{where} params.gate", self.params["gate"], f"it must be one of {', '.join(GATES)}")


def term_size(term: ObservationSpec, signal_sizes: Mapping[str, int]) -> int:
    """Return the width of one frame of a term.

    Args:
        term: The term.
        signal_sizes: Widths of the signals, from `Contract.signal_sizes`.

    Returns:
        Number of values.
    """
    if term.transform in ("projected_gravity", "sin_cos_phase"):
        return {"projected_gravity": 3, "sin_cos_phase": 2}[term.transform]
    width = len(term.params["joints"]) if "joints" in term.params else signal_sizes[term.signal]
    return 2 * width if term.transform == "sin_cos" else width
