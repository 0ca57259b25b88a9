"""Settings of a network: layers, encoders, memory, distribution of actions."""

from __future__ import annotations

from dataclasses import dataclass, field

from robot_rl.errors import UserError
from robot_rl.settings.checks import check_choice, check_hidden, check_range

ACTIVATIONS = ("elu", "relu", "silu", "tanh")
DISTRIBUTIONS = ("gaussian", "squashed")
MEMORIES = ("none", "gru", "lstm")


@dataclass(kw_only=True, slots=True)
class ConvCfg:
    """Convolutional encoders: each group of `groups` has its own, the others have none.

    Attributes:
        groups: observation groups that are images or grids, or terms that are, as "group.term"; none: no encoder.
        shape: (channels, height, width) or (height, width) of a group that arrives as a flat vector; empty: each has
            its own shape, as cameras and height scans do.
        channels: channels of each convolution.
        kernels: width of its square kernel, one for all or one each; empty: twice the stride less one, so that every
            pixel is covered.
        strides: its stride, one for all or one each; empty: 2, and at first 4 for images with a side above 32 pixels.
        features: outputs of the linear layer after the last convolution.
    """

    groups: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    channels: tuple[int, ...] = (16, 32)
    kernels: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    features: int = 64

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("groups", "shape", "channels", "kernels", "strides"):
            setattr(self, name, tuple(getattr(self, name)))
        if self.shape and len(self.shape) not in (2, 3):
            raise UserError("shape", self.shape, "must be (channels, height, width) or (height, width)")
        if not self.channels:
            raise UserError("channels", self.channels, "must name at least one convolution", "such as [16, 32]")
        for name in ("shape", "channels", "kernels", "strides"):
            for value in getattr(self, name):
                check_range(name, value, 1, 65536)
        for name in ("kernels", "strides"):
            if len(getattr(self, name)) not in (0, 1, len(self.channels)):
                raise UserError(name, getattr(self, name), f"must be one value, or {len(self.channels)}")
        check_range("features", self.features, 1, 65536)


@dataclass(kw_only=True, slots=True)
class MemoryCfg:
    """A recurrent network between the encoders and the perceptron.

    Attributes:
        kind: one of MEMORIES.
        hidden: units of the state.
        layers: number of layers.
        sequence: control steps of backpropagation; 0: the whole rollout. Must divide it.
    """

    kind: str = "none"
    hidden: int = 256
    layers: int = 1
    sequence: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_choice("kind", self.kind, MEMORIES)
        check_range("hidden", self.hidden, 1, 65536)
        check_range("layers", self.layers, 1, 16)
        check_range("sequence", self.sequence, 0, 100_000)


@dataclass(kw_only=True, slots=True)
class NetworkCfg:
    """A network: encoders of images, a memory, a perceptron; the settings of actions matter only to an actor.

    Attributes:
        hidden: units of each hidden layer. With a symmetric network every width must be even.
        activation: one of ACTIVATIONS.
        output_gain: gain of the last layer's orthogonal initialization; small makes the first policy's mean nearly
            zero.
        init_std: standard deviation of every action at the start [action units].
        min_std: least standard deviation.
        max_std: greatest standard deviation.
        distribution: one of DISTRIBUTIONS: "gaussian", or "squashed", a Gaussian through tanh, bounded by `bound`.
        state_std: the standard deviation is an output of the network and not a parameter.
        bound: greatest magnitude of a squashed action [action units].
        conv: convolutional encoders of observation groups.
        memory: recurrent layers.
    """

    hidden: tuple[int, ...] = (512, 256, 128)
    activation: str = "elu"
    output_gain: float = 0.01
    init_std: float = 1.0
    min_std: float = 0.01
    max_std: float = 10.0
    distribution: str = "gaussian"
    state_std: bool = False
    bound: float = 1.0
    conv: ConvCfg = field(default_factory=ConvCfg)
    memory: MemoryCfg = field(default_factory=MemoryCfg)

    def __post_init__(self) -> None:
        """Check the ranges."""
        self.hidden = tuple(self.hidden)
        check_hidden(self.hidden)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_range("output_gain", self.output_gain, 0.0, 100.0, open_low=True)
        check_range("min_std", self.min_std, 0.0, 100.0, open_low=True)
        check_range("max_std", self.max_std, self.min_std, 100.0)
        check_range("init_std", self.init_std, self.min_std, self.max_std)
        check_choice("distribution", self.distribution, DISTRIBUTIONS)
        check_range("bound", self.bound, 0.0, 1e6, open_low=True)
