"""The precision of a bundle: which layers of the network compute in int8, fp8 or bf16, and on which grids.

A contract has this part only if the policy was trained with the rounding in its network; without it the network is
in fp32. This module needs the standard library only.
"""

from dataclasses import dataclass

from robot_rl_deploy.strict import at_least, refuse, unique

MODES = ("bf16", "fp8", "int8")
GRIDS = ("fp8", "int8")
"""Modes that round the input of a layer on a separate grid."""
PLAIN = "fp32"
MIN_OPSET, MAX_OPSET = 19, 99
MAX_BOUND = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer of the network.

    Attributes:
        name: Its name in the policy.
        mode: The contract's mode, or "fp32".
        input_scale: Step of the grid of the layer's input, in int8 and fp8; None otherwise.
    """

    name: str
    mode: str
    input_scale: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSpec:
    """The precision of a network.

    Attributes:
        mode: "int8", "fp8" (e4m3) or "bf16".
        opset: Version of the ONNX operators in the network's file.
        layers: The layers in the order of computation.
        action_bound: The greatest difference that rounding in another order may make to an action.
    """

    mode: str
    opset: int
    layers: tuple[LayerSpec, ...]
    action_bound: float

    def __post_init__(self) -> None:
        """Check mode, opset, layers and bound."""
        if self.mode not in MODES:
            refuse("precision.mode", self.mode, f"it must be one of {', '.join(MODES)}")
        if not MIN_OPSET <= self.opset <= MAX_OPSET:
            refuse("precision.opset", self.opset, f"it must be in [{MIN_OPSET}, {MAX_OPSET}]")
        if not self.layers:
            refuse("precision.layers", [], "at least one is needed")
        unique("precision.layers", [layer.name for layer in self.layers])
        for layer in self.layers:
            self._check_layer(layer)
        if not self.rounded:
            refuse("precision.layers: mode of each", PLAIN, f"at least one must be {self.mode}")
        at_least("precision.action_bound", self.action_bound, 0, strictly=True)
        if self.action_bound > MAX_BOUND:
            refuse("precision.action_bound", self.action_bound, f"it must be at most {MAX_BOUND:g}")

    @property
    def rounded(self) -> tuple[LayerSpec, ...]:
        """The layers that are not in fp32."""
        return tuple(layer for layer in self.layers if layer.mode != PLAIN)

    @property
    def summary(self) -> str:
        """Mode, layers and bound in a few words, such as "int8: 3 of 4 layers, actions within 3.0e-04"."""
        count = f"{len(self.rounded)} of {len(self.layers)} layers"
        return f"{self.mode}: {count}, actions within {self.action_bound:.1e}"

    def _check_layer(self, layer: LayerSpec) -> None:
        where = f"layer '{layer.name}':"
        if layer.mode not in (PLAIN, self.mode):
            refuse(f"{where} mode", layer.mode, f"it must be one of {PLAIN}, {self.mode}")
        if layer.mode not in GRIDS:
            if layer.input_scale is not None:
                refuse(f"{where} input_scale", layer.input_scale, f"a layer in {layer.mode} has none")
        elif layer.input_scale is None:
            refuse(f"{where} input_scale", None, f"a layer in {layer.mode} needs the step of its input's grid")
        else:
            at_least(f"{where} input_scale", layer.input_scale, 0, strictly=True)


def minimum_opset(mode: str) -> int:
    """Return the oldest version of the ONNX operators in which a network of a mode can be written."""
    return MIN_OPSET if mode in MODES else 18


def default_opset(mode: str) -> int:
    """Return the version of the ONNX operators that a bundle of a mode is written in."""
    return 21 if mode in MODES else 18
