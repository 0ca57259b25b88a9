"""The file of a learned actuator: a small network in safetensors, its inputs described in the file's metadata, no code.

The network reads the position errors (target - position) [rad] at some lags and the joint's velocities [rad/s] at the
same lags, in the order of the lags, and returns one torque [N m]:

    x = [error_scale * error[t - lag], ... , velocity_scale * velocity[t - lag], ...]
    torque = output_scale * net(x)

Tensors: ``layers.<k>.weight`` (out, in) and ``layers.<k>.bias`` (out,), float32, as torch.nn.Linear keeps them. The
metadata's key ``actuator_net`` holds a JSON object: ``activation``, ``lags_s``, ``error_scale``, ``velocity_scale``,
``output_scale``, ``sizes``, and if it is known ``robot``.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

METADATA_KEY = "actuator_net"
MAX_LAYERS = 5
MAX_WIDTH = 256

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "relu": lambda x: np.maximum(x, 0.0),
}


@dataclass(kw_only=True, slots=True)
class NetFile:
    """The content of a learned actuator's file.

    Attributes:
        layers: weight (out, in) and bias (out,) of each layer, float32.
        activation: one of :data:`ACTIVATIONS`, after every layer but the last.
        lags_s: age of each error and velocity [s]; 0 is now.
        error_scale: multiplies position errors [1/rad].
        velocity_scale: multiplies velocities [s/rad].
        output_scale: multiplies the network's output [N m].
        robot: the robot whose logs it was trained on; "" if unknown.
        name: its name in error lines.
    """

    layers: list[tuple[np.ndarray, np.ndarray]]
    activation: str = "softsign"
    lags_s: tuple[float, ...] = (0.0,)
    error_scale: float = 1.0
    velocity_scale: float = 1.0
    output_scale: float = 1.0
    robot: str = ""
    name: str = "actuator net"

    def __post_init__(self) -> None:
        lags = self.lags_s
        known = ", ".join(sorted(ACTIVATIONS))
        self._want(self.activation in ACTIVATIONS, f"activation={self.activation!r}, wants one of {known}")
        fits = bool(lags) and all(math.isfinite(lag) and lag >= 0.0 for lag in lags)
        self._want(fits, f"lags_s={lags!r}, wants finite times >= 0 [s], at least one")
        self._want(len(set(lags)) == len(lags), f"lags_s={lags!r}, wants each lag once")
        for field in ("error_scale", "velocity_scale", "output_scale"):
            value = getattr(self, field)
            self._want(math.isfinite(value), f"{field}={value!r}, wants a finite number")
        self._check_layers()

    def _want(self, fits: bool, line: str) -> None:
        if not fits:
            raise ValueError(f"{self.name}: {line}")

    def _check_layers(self) -> None:
        count = len(self.layers)
        self._want(2 <= count <= MAX_LAYERS, f"{count} layers, wants 2 to {MAX_LAYERS}")
        width, reason = 2 * len(self.lags_s), f"an error and a velocity at each of {len(self.lags_s)} lags"
        for k, (weight, bias) in enumerate(self.layers):
            last, name = k == count - 1, f"layers.{k}"
            fits = weight.ndim == 2 and weight.shape[1] == width and (weight.shape[0] == 1 or not last)
            wanted = f"({'1' if last else 'out'}, {width}): {reason}{', one torque' if last else ''}"
            self._want(fits, f"{name}.weight has shape {weight.shape}, wants {wanted}")
            out = weight.shape[0]
            self._want(1 <= out <= MAX_WIDTH, f"{name} is {out} wide, wants 1 to {MAX_WIDTH}")
            self._want(bias.shape == (out,), f"{name}.bias has shape {bias.shape}, wants ({out},)")
            for part, values in (("weight", weight), ("bias", bias)):
                self._want(bool(np.isfinite(values).all()), f"{name}.{part} holds values that are not finite")
            width, reason = out, f"the width of layers.{k}"

    @property
    def sizes(self) -> list[int]:
        """Widths from the inputs to the torque, e.g. [6, 32, 32, 1]."""
        return [self.layers[0][0].shape[1], *(weight.shape[0] for weight, _ in self.layers)]

    def torque(self, errors: np.ndarray, velocities: np.ndarray) -> np.ndarray:
        """Return the torque [N m] of errors and velocities (..., lags) in float64, the reference of the kernel."""
        x = np.concatenate([self.error_scale * errors, self.velocity_scale * velocities], axis=-1).astype(np.float64)
        for weight, bias in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](x @ weight.T.astype(np.float64) + bias)
        weight, bias = self.layers[-1]
        return self.output_scale * (x @ weight[0].astype(np.float64) + bias[0])

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        from safetensors.numpy import save

        tensors = {}
        for k, (weight, bias) in enumerate(self.layers):
            tensors |= {f"layers.{k}.weight": weight, f"layers.{k}.bias": bias}
        names = ("activation", "error_scale", "velocity_scale", "output_scale", "robot")
        about = {name: getattr(self, name) for name in names} | {"lags_s": list(self.lags_s), "sizes": self.sizes}
        return save(tensors, metadata={METADATA_KEY: json.dumps(about)})


def save_actuator_net(path: str | Path, layers: Sequence[tuple[Any, Any]], **fields: Any) -> NetFile:
    """Write a network's file atomically and return its content, checked as :func:`load_actuator_net` does.

    ``layers`` are weight (out, in) and bias (out,) of each layer: arrays, or tensors of torch on the CPU. Of a
    ``torch.nn.Sequential``: ``[(m.weight, m.bias) for m in net if isinstance(m, torch.nn.Linear)]``. ``fields`` are
    those of :class:`NetFile`.
    """
    path = Path(path)
    lags = tuple(float(lag) for lag in fields.pop("lags_s", (0.0,)))
    net = NetFile(layers=[(_array(w), _array(b)) for w, b in layers], lags_s=lags, name=str(path), **fields)
    part = path.with_name(path.name + ".part")
    part.write_bytes(net.to_bytes())
    part.replace(path)
    return net


def _array(values: Any) -> np.ndarray:
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.ascontiguousarray(values, dtype=np.float32)


def load_actuator_net(path: str | Path) -> NetFile:
    """Read a network's file.

    Raises:
        ValueError: not a safetensors file, no metadata, or a layer is missing or has the wrong shape; one line.
    """
    from safetensors import SafetensorError, safe_open

    name = str(path)
    try:
        with safe_open(name, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, TypeError) as error:  # TypeError: a number format that NumPy lacks.
        raise ValueError(f"{name}: is not a readable safetensors file ({error})") from error
    fields = _metadata(name, metadata)
    layers = []
    while f"layers.{len(layers)}.weight" in tensors:
        k = len(layers)
        if f"layers.{k}.bias" not in tensors:
            raise ValueError(f"{name}: has layers.{k}.weight but no layers.{k}.bias, wants both")
        layers.append((_array(tensors[f"layers.{k}.weight"]), _array(tensors[f"layers.{k}.bias"])))
    if 2 * len(layers) != len(tensors):
        extra = sorted(set(tensors) - {f"layers.{k}.{part}" for k in range(len(layers)) for part in ("weight", "bias")})
        raise ValueError(
            f"{name}: holds {', '.join(extra)}, wants layers.0.weight, layers.0.bias, layers.1.weight, ..."
        )
    return NetFile(layers=layers, name=name, **fields)


def _metadata(name: str, metadata: dict[str, str]) -> dict[str, Any]:
    """Return the fields of :class:`NetFile` in the metadata."""
    try:
        found = json.loads(metadata[METADATA_KEY])
        lags = tuple(float(lag) for lag in found["lags_s"])
        scales = {field: float(found[field]) for field in ("error_scale", "velocity_scale", "output_scale")}
        words = {"activation": str(found["activation"]), "robot": str(found.get("robot", ""))}
        return {**words, "lags_s": lags, **scales}
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{name}: its metadata key {METADATA_KEY!r} wants a JSON object with activation, lags_s, error_scale, "
            f"velocity_scale and output_scale ({type(error).__name__}: {error})"
        ) from error
