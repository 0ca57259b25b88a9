"""Networks of a precision: which layers are quantized, and how their grids are measured."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError, suggest
from robot_rl.learn.precision.formats import FP32, get_format
from robot_rl.learn.precision.kernels import describe
from robot_rl.learn.precision.layer import QuantizedLayer
from robot_rl.settings.precision import PrecisionCfg


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer is.

    Attributes:
        is_first: it sees the observations.
        is_last: it gives the network's output.
        rounds_output: its output goes into an activation.
        is_signed: its inputs may be far below zero.
    """

    is_first: bool = False
    is_last: bool = False
    rounds_output: bool = False
    is_signed: bool = True


class Quantizer:
    """Makes the layers of a network of a precision, and knows which there are."""

    def __init__(self, cfg: PrecisionCfg) -> None:
        self.cfg = cfg
        self.names: list[str] = []
        self._format = get_format(cfg.mode)
        self._acting = get_format(cfg.rollout) if cfg.rollout else None

    def __call__(self, name: str, shape: Sequence[int], place: Place = Place()) -> nn.Module:
        """Return the arithmetic of a layer, in float32 if the settings keep it."""
        self.names.append(name)
        left_out = (place.is_first and not self.cfg.first) or (place.is_last and not self.cfg.last)
        is_kept = left_out or any(name == kept or name.startswith(f"{kept}.") for kept in self.cfg.keep)
        return QuantizedLayer(
            name,
            tuple(shape),
            FP32 if is_kept else self._format,
            acting=None if is_kept else self._acting,
            rounds_output=place.rounds_output,
            is_signed=place.is_signed,
        )

    def check(self, network: str) -> None:
        """Raise UserError for a layer of that network that is to be kept and that there is not."""
        for kept in self.cfg.keep:
            is_here = any(name == kept or name.startswith(f"{kept}.") for name in self.names)
            if kept.partition(".")[0] == network and not is_here:
                raise UserError(f"precision.keep: '{kept}' is not a layer of this network; {suggest(kept, self.names)}")


def quantize(network: Any, cfg: PrecisionCfg, name: str) -> None:
    """Give a network's layers a precision; raise UserError for one without such a form, or a kept one that is none."""
    quantizer = Quantizer(cfg)
    network.quantize(quantizer, name)
    quantizer.check(name)


def in_precision(actor: nn.Module, cfg: PrecisionCfg, run: Callable[[Any], Any]) -> Any:
    """Return a copy of a policy in another precision, as by quantization after training.

    Args:
        actor: The policy, in any precision.
        cfg: The precision.
        run: Computes outputs of a policy at its usual inputs, which the grids are fitted to.
    """
    twin: Any = copy.deepcopy(actor)
    for module in twin.modules():
        if isinstance(getattr(module, "arithmetic", None), nn.ModuleList):
            module.arithmetic = None
    if cfg.is_quantized:
        quantize(twin, cfg, "actor")
        with torch.no_grad():
            measure(twin, lambda: run(twin))
    return twin


def layers_of(network: nn.Module) -> list[QuantizedLayer]:
    """Return the quantized layers of a network, those that are kept in float32 among them, in order."""
    return [module for module in network.modules() if isinstance(module, QuantizedLayer)]


@contextlib.contextmanager
def acting(network: nn.Module) -> Iterator[None]:
    """Let layers with their own precision for rollouts compute in it."""
    layers = [layer for layer in layers_of(network) if layer.acting is not layer.format]
    for layer in layers:
        layer.is_acting = True
    try:
        yield
    finally:
        for layer in layers:
            layer.is_acting = False


def measure(network: nn.Module, run: Callable[[], Any], average: Callable[[Tensor], Tensor] = lambda x: x) -> None:
    """Fit the grids of a network's layers to the inputs that they get while `run` computes.

    Args:
        network: The network.
        run: Computes its outputs, without gradients.
        average: Replaces a number by its mean over the processes that train together.
    """
    layers = [layer for layer in layers_of(network) if layer.format is not FP32 or layer.acting is not FP32]
    for layer in layers:
        layer.seen = []
    try:
        run()
    except BaseException:
        for layer in layers:
            layer.seen = None
        raise
    for layer in layers:
        layer.fit(average)


def describe_layers(network: nn.Module, kind: str) -> str:
    """Return in a line how many layers of a network compute in which precision, and by what; empty without any."""
    layers = layers_of(network)
    rounded = [layer for layer in layers if layer.format is not FP32]
    if not layers:
        return ""
    kept = [layer.name for layer in layers if layer.format is FP32]
    parts = [f"{len(rounded)} of {len(layers)} layers"]
    if rounded:
        parts[0] += f" in {rounded[0].format.name} ({describe(rounded[0].format, kind)})"
    if kept:
        parts.append(f"{', '.join(kept)} in fp32")
    acting = {layer.acting.name for layer in layers if layer.acting is not layer.format}
    return "; ".join(parts) + (f"; rollouts in {', '.join(sorted(acting))}" if acting else "")
