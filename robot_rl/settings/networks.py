"""Settings of a network: layers, encoders, memory, distribution of actions."""

from __future__ import annotations

from dataclasses import dataclass, field

from robot_rl.errors import UserError
from robot_rl.settings.checks import check_range
from robot_rl.settings.schema import check_fields, setting

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
    shape: tuple[int, ...] = setting((), least=1, most=65536)
    channels: tuple[int, ...] = setting((16, 32), least=1, most=65536, at_least_one="convolution")
    kernels: tuple[int, ...] = setting((), least=1, most=65536)
    strides: tuple[int, ...] = setting((), least=1, most=65536)
    features: int = setting(64, least=1, most=65536)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        if self.shape and len(self.shape) not in (2, 3):
            raise UserError("shape", self.shape, "must be (channels, height, width) or (height, width)")
        for name in ("kernels", "strides"):
            if len(getattr(self, name)) not in (0, 1, len(self.channels)):
                raise UserError(name, getattr(self, name), f"must be one value, or {len(self.channels)}")


@dataclass(kw_only=True, slots=True)
class MemoryCfg:
    """A recurrent network between the encoders and the perceptron.

    Attributes:
        kind: cell of the network.
        hidden: units of the state.
        layers: number of layers.
        sequence: control steps of backpropagation; 0: the whole rollout. Must divide it.
    """

    kind: str = setting("none", choices=MEMORIES)
    hidden: int = setting(256, least=1, most=65536)
    layers: int = setting(1, least=1, most=16)
    sequence: int = setting(0, least=0, most=100_000)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)


@dataclass(kw_only=True, slots=True)
class NetworkCfg:
    """A network: encoders of images, a memory, a perceptron; the settings of actions matter only to an actor.

    Attributes:
        hidden: units of each hidden layer. With a symmetric network every width must be even.
        activation: nonlinearity after each hidden layer.
        output_gain: gain of the last layer's orthogonal initialization; small makes the first policy's mean nearly
            zero.
        init_std: standard deviation of every action at the start [action units].
        min_std: least standard deviation.
        max_std: greatest standard deviation.
        distribution: of the actions: "gaussian", or "squashed", a Gaussian through tanh, bounded by `bound`.
        state_std: the standard deviation is an output of the network and not a parameter.
        bound: greatest magnitude of a squashed action [action units].
        conv: convolutional encoders of observation groups.
        memory: recurrent layers.
    """

    hidden: tuple[int, ...] = setting((512, 256, 128), least=1, most=65536, at_least_one="layer")
    activation: str = setting("elu", choices=ACTIVATIONS)
    output_gain: float = setting(0.01, above=0.0, most=100.0)
    init_std: float = 1.0
    min_std: float = setting(0.01, above=0.0, most=100.0)
    max_std: float = 10.0
    distribution: str = setting("gaussian", choices=DISTRIBUTIONS)
    state_std: bool = False
    bound: float = setting(1.0, above=0.0, most=1e6)
    conv: ConvCfg = field(default_factory=ConvCfg)
    memory: MemoryCfg = field(default_factory=MemoryCfg)

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
        check_range("max_std", self.max_std, self.min_std, 100.0)
        check_range("init_std", self.init_std, self.min_std, self.max_std)
