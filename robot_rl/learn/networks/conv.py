"""Convolutional encoders of observations that are images or grids, such as a depth camera's or a height scan."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from robot_rl.errors import UserError, suggest
from robot_rl.learn.networks.layout import Mirror, ObservationLayout, Span
from robot_rl.learn.networks.mlp import HIDDEN_GAIN, make_activation
from robot_rl.learn.precision import bounds
from robot_rl.learn.precision.conversion import Place, Quantizer
from robot_rl.learn.precision.exported import FrozenLayer
from robot_rl.learn.precision.perceptron import pad_rows
from robot_rl.settings import NetworkCfg
from robot_rl.settings.networks import ConvCfg

CHUNK_ELEMENTS = 2**23
"""Activations of one layer that are held at once if no gradient is required: 32 MB."""

LARGE_SIDE = 32
"""Pixels of a side from which on the first stride is 4: with 2 the first two layers take four times as long."""

Image = tuple[int, int, int]
"""Channels, height, width."""


def conv_spans(layout: ObservationLayout, cfg: ConvCfg, field: str = "conv") -> list[Span]:
    """Return the encoders' inputs, each with shape (channels, height, width), in the order of the observation.

    Raises UserError, with the setting `field`, for an unknown or repeated name, a shape that does not fit, or kernels
    that an image is too small for.
    """
    found: list[Span] = []
    own: list[tuple[int, ...]] = []
    for name in cfg.groups:
        span = layout.find(name)
        if span is None:
            known = suggest(name, layout.names)
            raise UserError(f"{field}.groups: '{name}' is nothing that this network observes, {known}")
        for other in found:
            if span.start < other.stop and other.start < span.stop:
                raise UserError(f"{field}.groups: '{name}' and '{other.group}' share components, must be apart")
        shape = _image_shape(span, cfg, field)
        _check_kernels(name, shape, cfg, field)
        found.append(Span(name, span.start, span.stop, shape))
        own.append(span.shape)
    if cfg.groups and cfg.shape and all(span.shape != _with_channels(cfg.shape) for span in found):
        raise UserError(f"{field}.shape: {list(cfg.shape)} fits none of {', '.join(cfg.groups)}, which have {own}")
    return sorted(found, key=lambda span: span.start)


def check_images(layout: ObservationLayout, cfg: ConvCfg, field: str, groups_field: str) -> None:
    """Raise the UserErrors of `conv_spans`, or one for a group of images without an encoder.

    `field` is the setting of the encoders, such as "actor.conv", and `groups_field` the one that names the groups.
    """
    encoded = {span.group for span in conv_spans(layout, cfg, field)}
    for span in layout.spans:
        if len(span.shape) > 2 and span.group not in encoded:
            raise UserError(
                f"{groups_field}: group '{span.group}' has shape {('num_envs', *span.shape)}, images, which take an "
                f"encoder: {field}.groups=[{span.group}]".replace("'num_envs'", "num_envs")
            )


class Encoders(nn.Module):
    """Convolutional encoders of some spans of an observation; the others pass unchanged.

    Under a mirror an encoder g is applied to an image x and to its mirror image M x. The outputs g(x), g(M x) change
    places when x is mirrored, so the mirror of the output is known.

    Attributes:
        out_dim: components F of the output: unchanged ones, then the features of each encoder.
        mirror: mirror of the output; None without symmetry.
        is_identity: true without encoders.
        pools: (start, stop, channels) of each image: a channel's components have one mean and deviation.
    """

    def __init__(
        self,
        layout: ObservationLayout,
        cfg: NetworkCfg,
        *,
        mirror: Mirror | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """Build an encoder for each of `cfg.conv.groups`; without any, the observation passes unchanged.

        Raises UserError as `conv_spans`, or if the mirror moves components of an image outside of it.
        """
        super().__init__()
        spans = conv_spans(layout, cfg.conv)
        self._spans = [(span.start, span.stop, (span.shape[0], span.shape[1], span.shape[2])) for span in spans]
        self._kept = _between(self._spans, layout.size)
        self.is_identity = not spans
        self.pools = tuple((start, stop, shape[0]) for start, stop, shape in self._spans)
        self.encoders = nn.ModuleList(ConvEncoder(shape, cfg, generator) for _, _, shape in self._spans)
        views = 1 if mirror is None else 2
        self.out_dim = sum(stop - start for start, stop in self._kept) + views * cfg.conv.features * len(spans)
        self.mirror = mirror
        self._num_flips = 0
        if mirror is not None and spans:
            for span in spans:
                self._add_flip(span, mirror)
            self.mirror = self._mirror_out(mirror, layout.size, cfg.conv.features)

    def forward(self, x: Tensor) -> Tensor:
        """Map normalized observations (B, D) to (B, F)."""
        if self.is_identity:
            return x
        is_quantized = next(self._each()).arithmetic is not None
        if is_quantized and x.device.type == "cpu":  # Bits must not depend on the number of rows.
            return self._chunked(pad_rows(x))[: x.shape[0]]
        return self._chunked(x)

    def _chunked(self, x: Tensor) -> Tensor:
        rows = max(1, CHUNK_ELEMENTS // max(encoder.widest for encoder in self._each()))
        if torch.is_grad_enabled() or x.shape[0] <= rows:
            return self.plain(x)
        return torch.cat([self.plain(part) for part in x.split(rows)])

    def plain(self, x: Tensor) -> Tensor:
        """Compute `forward` on all rows at once."""
        if self.is_identity:
            return x
        parts = [x[:, start:stop] for start, stop in self._kept]
        for k, (encoder, (start, stop, shape)) in enumerate(zip(self._each(), self._spans, strict=True)):
            image = x[:, start:stop]
            parts.append(encoder(image.unflatten(1, shape)))
            if self._num_flips:
                image = image.index_select(1, self.get_buffer(f"perm_{k}")) * self.get_buffer(f"sign_{k}")
                parts.append(encoder(image.unflatten(1, shape)))
        return torch.cat(parts, dim=1)

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Replace the arithmetic of every encoder's layers by a rounded one."""
        for k, encoder in enumerate(self._each()):
            encoder.quantize(quantizer, f"{name}.{k}")

    def freeze(self) -> Encoders:
        """Return a copy on the CPU for the export, with weights that are rounded once and for all."""
        twin = copy.deepcopy(self).cpu()
        for encoder in twin._each():
            encoder.freeze()
        return twin

    def through(self, value: Tensor, error: Tensor) -> bounds.Bounded:
        """Return the output of `plain` and its error, from those of its input (`bounds`)."""
        if self.is_identity:
            return value, error
        parts = [(value[:, start:stop], error[:, start:stop]) for start, stop in self._kept]
        for k, (encoder, (start, stop, shape)) in enumerate(zip(self._each(), self._spans, strict=True)):
            views = [(value[:, start:stop], error[:, start:stop])]
            if self._num_flips:
                perm, sign = self.get_buffer(f"perm_{k}"), self.get_buffer(f"sign_{k}")
                views.append((views[0][0].index_select(1, perm) * sign, views[0][1].index_select(1, perm)))
            parts += [encoder.through(*(part.unflatten(1, shape) for part in view)) for view in views]
        values, errors = zip(*parts, strict=True)
        return torch.cat(values, dim=1), torch.cat(errors, dim=1)

    def _each(self) -> Iterator[ConvEncoder]:
        for encoder in self.encoders:
            assert isinstance(encoder, ConvEncoder)
            yield encoder

    def _add_flip(self, span: Span, mirror: Mirror) -> None:
        perm = mirror[0][span.start : span.stop] - span.start
        if int(perm.min()) < 0 or int(perm.max()) >= span.stop - span.start:
            raise UserError(f"conv.groups: the mirror takes parts of '{span.group}' to elsewhere; use symmetry=none")
        self.register_buffer(f"perm_{self._num_flips}", perm.clone(), persistent=False)
        self.register_buffer(f"sign_{self._num_flips}", mirror[1][span.start : span.stop].clone(), persistent=False)
        self._num_flips += 1

    def _mirror_out(self, mirror: Mirror, size: int, features: int) -> Mirror:
        """Return the mirror of the output: unchanged components as before, the two views of an image swapped."""
        kept = torch.cat([torch.arange(0), *(torch.arange(start, stop) for start, stop in self._kept)])
        place = torch.full((size,), -1, dtype=torch.int64)
        place[kept] = torch.arange(len(kept))
        perm, sign = [place[mirror[0][kept]]], [mirror[1][kept]]
        for k in range(self._num_flips):
            first = len(kept) + 2 * k * features
            here, there = torch.arange(first, first + features), torch.arange(first + features, first + 2 * features)
            perm += [there, here]
            sign += [torch.ones(2 * features)]
        return torch.cat(perm), torch.cat(sign)


class ConvEncoder(nn.Module):
    """Convolutions, then a linear layer; an activation after each.

    Half a kernel of zeros is put around each image: without it a stride of two would omit the last rows and
    columns of many sizes, such as the farthest ones of a height scan.

    Attributes:
        widest: most activations of a layer for one image, the image among them.
    """

    def __init__(self, shape: Image, cfg: NetworkCfg, generator: torch.Generator | None = None) -> None:
        """Build the layers, initialized orthogonally like those of a perceptron.

        `generator` is the source of the weights; PyTorch's own layers would draw from the global stream.
        """
        super().__init__()
        conv = cfg.conv
        sizes = [shape, *_sizes(shape, conv)]
        layers: list[nn.Module] = []
        for (before, after), (kernel, stride) in zip(pairwise(sizes), _windows(shape, conv), strict=True):
            layers.append(skip_init(nn.Conv2d, before[0], after[0], kernel, stride=stride, padding=kernel // 2))
            layers.append(make_activation(cfg.activation))
        layers += [nn.Flatten(), skip_init(nn.Linear, math.prod(sizes[-1]), conv.features)]
        self.layers = nn.Sequential(*layers, make_activation(cfg.activation))
        self.arithmetic: nn.ModuleList | None = None
        self.widest = max(math.prod(size) for size in sizes)
        with torch.no_grad():
            for layer in self.layers:
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    nn.init.orthogonal_(layer.weight, gain=HIDDEN_GAIN, generator=generator)
                    assert layer.bias is not None
                    layer.bias.zero_()

    def forward(self, image: Tensor) -> Tensor:
        """Map images (B, channels, height, width) to features (B, F)."""
        if self.arithmetic is None:
            return self.layers(image)
        arithmetic = iter(self.arithmetic)
        for layer in self.layers:
            if _has_weight(layer):
                image = next(arithmetic)(image, layer.weight, layer.bias, _product(layer))
            else:
                image = layer(image)
        return image

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Replace the arithmetic of the convolutions and the linear layer by a rounded one."""
        weights = [layer.weight.shape for layer in self.layers if _has_weight(layer)]
        self.arithmetic = nn.ModuleList(
            quantizer(f"{name}.{i}", shape, Place(is_first=i == 0, rounds_output=True, is_signed=i == 0))
            for i, shape in enumerate(weights)
        )

    def through(self, value: Tensor, error: Tensor) -> bounds.Bounded:
        """Return the features and their error, from images and theirs."""
        arithmetic = iter(self.arithmetic or ())
        for layer in self.layers:
            if not _has_weight(layer):
                value, error = bounds.through(layer, value, error)
            elif (own := next(arithmetic, None)) is not None:
                value, error = bounds.through(own, value, error, _product(layer))
            else:
                product = _product(layer) or nn.functional.linear
                pair = bounds.weigh(value, error, layer.weight.detach(), product)
                bias = None if layer.bias is None else layer.bias.detach()
                value, error = bounds.add(pair, bounds.channels(bias, pair[0]))
        return value, error

    def freeze(self) -> None:
        """Round the weights once and for all, for the export."""
        if self.arithmetic is None:
            return
        layers = [layer for layer in self.layers if _has_weight(layer)]
        self.arithmetic = nn.ModuleList(
            FrozenLayer(own, layer.weight, layer.bias) for own, layer in zip(self.arithmetic, layers, strict=True)
        )


def _has_weight(layer: nn.Module) -> TypeGuard[nn.Conv2d | nn.Linear]:
    return isinstance(layer, (nn.Conv2d, nn.Linear))


def _product(layer: nn.Conv2d | nn.Linear) -> Callable[..., Tensor] | None:
    """Return the product of inputs and weight of a convolution; None of a linear layer, which has the plain one."""
    if isinstance(layer, nn.Linear):
        return None
    return partial(nn.functional.conv2d, stride=layer.stride[0], padding=int(layer.padding[0]))


def _with_channels(shape: Sequence[int]) -> Image:
    return (1, shape[0], shape[1]) if len(shape) == 2 else (shape[0], shape[1], shape[2])


def _image_shape(span: Span, cfg: ConvCfg, field: str) -> Image:
    """Return channels, height and width of a span: its own, or of a flat one the configured shape."""
    if len(span.shape) in (2, 3):
        return _with_channels(span.shape)
    size = math.prod(span.shape)
    if not cfg.shape:
        raise UserError(
            f"{field}.shape: '{span.group}' is a vector of {size} components; give its shape, such as "
            f"{field}.shape=[height, width]"
        )
    if math.prod(cfg.shape) != size:
        raise UserError(
            f"{field}.shape: {list(cfg.shape)} has {math.prod(cfg.shape)} components, '{span.group}' {size}"
        )
    return _with_channels(cfg.shape)


def _check_kernels(name: str, shape: Image, cfg: ConvCfg, field: str) -> None:
    for k, (size, windows) in enumerate(zip((shape, *_sizes(shape, cfg)), _windows(shape, cfg), strict=False)):
        for setting, configured, window in zip(
            ("kernels", "strides"), (cfg.kernels, cfg.strides), windows, strict=True
        ):
            if configured and window > max(size[1:]):
                raise UserError(
                    f"{field}.{setting}: {window} is larger than the input of convolution {k + 1} of '{name}', "
                    f"{size[1]} x {size[2]}; take smaller kernels or strides, or fewer of them"
                )


def _windows(shape: Image, cfg: ConvCfg) -> list[tuple[int, int]]:
    """Return kernel and stride of each convolution."""
    count = len(cfg.channels)
    strides = cfg.strides or (4 if max(shape[1:]) > LARGE_SIDE else 2, *(2,) * (count - 1))
    strides = strides * count if len(strides) == 1 else strides
    kernels = cfg.kernels or [2 * stride - 1 for stride in strides[:count]]
    kernels = tuple(kernels) * count if len(kernels) == 1 else kernels
    return list(zip(kernels[:count], strides[:count], strict=True))


def _sizes(shape: Image, cfg: ConvCfg) -> list[Image]:
    """Return the shape after each convolution."""
    sizes, (_, *sides) = [], shape
    for channels, (kernel, stride) in zip(cfg.channels, _windows(shape, cfg), strict=True):
        height, width = sides = [(side + 2 * (kernel // 2) - kernel) // stride + 1 for side in sides]
        sizes.append((channels, height, width))
    return sizes


def _between(spans: Sequence[tuple[int, int, Image]], size: int) -> list[tuple[int, int]]:
    """Return the ranges (start, stop) of an observation that belong to no span."""
    edges = [0, *(edge for start, stop, _ in spans for edge in (start, stop)), size]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
