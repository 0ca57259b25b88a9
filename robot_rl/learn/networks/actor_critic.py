"""Actor and critic: normalizer, encoders of images, memory, perceptron, and the actor's distribution of actions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from robot_rl.errors import UserError
from robot_rl.learn.dims import EnvSpec, Mirrors, checked_mirrors
from robot_rl.learn.networks.arithmetic import Converter
from robot_rl.learn.networks.conv import Encoders
from robot_rl.learn.networks.distributions import Params, make_distribution
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.networks.memory import Memory
from robot_rl.learn.networks.mlp import Mlp
from robot_rl.learn.networks.normalizer import Normalizer
from robot_rl.learn.networks.symmetry import Mirror, SymmetricMlp
from robot_rl.learn.precision import bounds
from robot_rl.learn.precision.conversion import Quantizer, acting, layers_of, quantize
from robot_rl.learn.precision.exported import FrozenLayer
from robot_rl.plugins import load_reference, make
from robot_rl.settings import LearnerCfg, NetworkCfg


class ParallelMlps(nn.Module):
    """Perceptrons with the same input, one output each and no shared weights."""

    def __init__(self, bodies: list[Mlp | SymmetricMlp]) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(bodies)

    def encode(self, x: Tensor) -> Tensor:
        """Return the input of `forward`, from normalized observations."""
        return cast("Mlp", self.bodies[0]).encode(x)

    def convert(self, converter: Converter, name: str) -> None:
        """Replace the arithmetic of every layer."""
        for i, body in enumerate(self.bodies):
            cast("Mlp", body).convert(converter, f"{name}.{i}")

    def quantize(self, quantizer: Quantizer, name: str, *, is_first: bool) -> None:
        """Replace the arithmetic of every layer by a rounded one."""
        for i, body in enumerate(self.bodies):
            cast("Mlp", body).quantize(quantizer, f"{name}.{i}", is_first=is_first)

    def forward(self, x: Tensor) -> Tensor:
        """Map encoded inputs (B, D) to outputs (B, K)."""
        return torch.cat([body(x) for body in self.bodies], dim=-1)


Past = tuple[Tensor, Tensor]
"""State (U, S) before U sequences of L steps, and (L, U) bool, whether a step begins an episode."""
UNKNOWN_PAST = "the network has a memory: its state is required"


class Network(nn.Module):
    """The common part of actor and critic: raw observations in, P = `out_dim` outputs of a perceptron out.

    It is equivariant under the `mirrors` of observation and output, if given. With `separate` each output has its
    own perceptron, and is then its own mirror partner.

    Attributes:
        layout: which components of an observation belong to which group.
        obs_dim: components D of an observation.
        normalizer: normalizes raw observations; None if not configured.
        encoders: convolutional encoders before the perceptron.
        memory: recurrent layers between encoders and perceptron; None if not configured.
        body: the perceptron.
    """

    def __init__(
        self,
        layout: ObservationLayout | int,
        out_dim: int,
        cfg: NetworkCfg,
        *,
        normalize: bool,
        mirrors: tuple[Mirror, Mirror] | None,
        generator: torch.Generator | None,
        separate: bool = False,
    ) -> None:
        super().__init__()
        self.layout = layout if isinstance(layout, ObservationLayout) else ObservationLayout({"": (layout,)})
        self.obs_dim = self.layout.size
        mirror = mirrors[0] if mirrors else None
        self.encoders = Encoders(self.layout, cfg, mirror=mirror, generator=generator)
        self.normalizer = Normalizer(self.obs_dim, mirror, self.encoders.pools) if normalize else None
        width, mirror, self.memory = self.encoders.out_dim, self.encoders.mirror, None
        if cfg.memory.kind != "none":
            self.memory = Memory(width, cfg.memory, generator, mirror)
            width, mirror = self.memory.hidden, self.memory.mirror
        mirror_out = mirrors[1] if mirrors and mirror is not None else None

        def perceptron(size: int) -> Mlp | SymmetricMlp:
            if mirror is None or mirror_out is None:
                return Mlp(width, size, cfg, generator)
            own = mirror_out if size == out_dim else (mirror_out[0][:1], mirror_out[1][:1])
            return SymmetricMlp(mirror, own, cfg, generator)

        several = separate and out_dim > 1
        self.body: Any = ParallelMlps([perceptron(1) for _ in range(out_dim)]) if several else perceptron(out_dim)

    @property
    def is_quantized(self) -> bool:
        """Whether any layer computes in less than float32."""
        return bool(layers_of(self))

    @property
    def state_size(self) -> int:
        """Components S of the recurrent state; 0 without a memory."""
        return 0 if self.memory is None else self.memory.state_size

    def convert(self, converter: Converter, name: str) -> None:
        """Replace the arithmetic of the perceptron's layers (`robot_rl.learn.networks.arithmetic`)."""
        self.body.convert(converter, f"{name}.body")

    def quantize(self, quantizer: Quantizer, name: str) -> None:
        """Replace the arithmetic of all layers by a rounded one, those of encoders and memory among them."""
        self.encoders.quantize(quantizer, f"{name}.conv")
        if self.memory is not None:
            self.memory.quantize(quantizer, f"{name}.memory")
        self.body.quantize(quantizer, name, is_first=self.memory is None)

    def encode(self, obs: Tensor) -> Tensor:
        """Return the input of `outputs` from raw observations (..., D): normalized, and in the perceptron's basis.

        If encoders or a memory come before the perceptron, the change of basis follows them. No weights here are
        learned by gradients, so a learner does this once for a whole rollout.
        """
        x = obs if self.normalizer is None else self.normalizer(obs)
        return self.body.encode(x) if self.encoders.is_identity and self.memory is None else x

    def outputs(self, x: Tensor, past: Past | None = None) -> Tensor:
        """Map encoded observations (B, F) to outputs (B, P).

        With a memory they are those of U sequences of L steps, step after step, B = L U, and `past` is required.
        """
        if self.memory is None:
            return self.body(x if self.encoders.is_identity else self.body.encode(self.encoders(x)))
        if past is None:
            raise ValueError(UNKNOWN_PAST)
        state, start = past
        y = self.memory.sequence(self.encoders(x).unflatten(0, start.shape), state, start)
        return self.body(self.body.encode(y.flatten(0, 1)))

    def trace(self, x: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """Return the result of `outputs` and the memory's state (L, U, S) after each step, without gradients."""
        assert self.memory is not None
        y, states = self.memory.trace(self.encoders(x).unflatten(0, past[1].shape), *past)
        return self.body(self.body.encode(y.flatten(0, 1))), states

    def step(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the outputs (B, P) at encoded observations (B, F), and the memory's state (B, S) after this step.

        A memory requires the state (B, S) before it, zeros at the start of an episode.
        """
        if self.memory is None:
            return self.outputs(x), None
        if state is None:
            raise ValueError(UNKNOWN_PAST)
        y, state = self.memory.step(self.encoders(x), state)
        return self.body(self.body.encode(y)), state


class Actor(Network):
    """The policy: a distribution over actions with a network's outputs as parameters.

    It is equivariant under the `mirror` of observation and action, where given. `choices` are those of each component
    of a discrete action; empty for continuous actions.

    Attributes:
        group_size: rows of a batch that belong together; 1: none do.
    """

    group_size: int = 1

    def __init__(
        self,
        layout: ObservationLayout | int,
        action_dim: int,
        cfg: NetworkCfg,
        *,
        normalize: bool = True,
        mirror: tuple[Mirror, Mirror] | None = None,
        choices: tuple[int, ...] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        distribution = make_distribution(action_dim, cfg, choices=choices, partner=mirror[1][0] if mirror else None)
        mirrors = (mirror[0], distribution.mirror_out(mirror[1])) if mirror else None
        super().__init__(layout, distribution.out_dim, cfg, normalize=normalize, mirrors=mirrors, generator=generator)
        self.action_dim = action_dim
        self.distribution = distribution

    def mean(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        """Return actions without noise (B, A) at raw observations (B, D); `state` as in `act`."""
        return self.distribution.mode(self.params(obs, state))

    def params(self, obs: Tensor, state: Tensor | None = None) -> Params:
        """Return the distribution's parameters at raw observations (B, D); `state` as in `act`."""
        return self.distribution.params(self._advance(obs, state))

    def act(
        self, obs: Tensor, noise: Tensor, frozen: Tensor | None = None, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return raw actions (B, A) at raw observations (B, D), and the outputs (B, P) that they were drawn at.

        Args:
            obs: (B, D) raw observations.
            noise: (B, A) random numbers (`Distribution.draw_noise`).
            frozen: result of `Distribution.snapshot`; None computes it.
            state: (B, S) state of the memory; overwritten by the state after this step.
        """
        with acting(self):
            out = self._advance(obs, state)
        return self.distribution.sample(self.distribution.params(out, frozen), noise), out

    def _advance(self, obs: Tensor, state: Tensor | None) -> Tensor:
        out, after = self.step(self.encode(obs), state)
        if state is not None and after is not None:
            state.copy_(after)
        return out

    def export_module(self) -> nn.Module:
        """Return a module in evaluation mode from raw observations (B, D) to actions without noise (B, A).

        With a memory it also takes the state (B, S), returns the next one, and has a `state_size`. It holds copies, the
        normalizer among them, and its perceptron is a sequence of linear layers for any kind of training network.
        Raises UserError if a bundle's contract cannot describe the observations or actions.
        """
        return (ExportedActor(self) if self.memory is None else ExportedMemory(self)).eval()


class Critic(Network):
    """The value function, or several: separate perceptrons behind a shared normalizer, encoders and memory.

    The values are invariant under the `mirror` of the observation, where given.

    Attributes:
        num_values: values K of a state.
        group_size: rows of a batch that belong together; 1: none do.
        value_normalizer: mean and deviation of the returns, in units of which the network works; None: it does not.
    """

    group_size: int = 1

    def __init__(
        self,
        layout: ObservationLayout | int,
        cfg: NetworkCfg,
        *,
        num_values: int = 1,
        normalize: bool = True,
        normalize_values: bool = False,
        mirror: Mirror | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        unchanged = (torch.arange(num_values), torch.ones(num_values))
        mirrors = (mirror, unchanged) if mirror else None
        super().__init__(
            layout, num_values, cfg, normalize=normalize, mirrors=mirrors, generator=generator, separate=True
        )
        self.num_values = num_values
        self.value_normalizer = Normalizer(num_values) if normalize_values else None

    def parts(self) -> list[nn.Module]:
        """Return the modules that are clipped separately, so that large gradients of one critic affect no other."""
        if self.num_values == 1:
            return [self]
        return [*self.body.bodies, *(part for part in (self.encoders, self.memory) if part is not None)]

    def values(self, x: Tensor, past: Past | None = None) -> Tensor:
        """Return the values of encoded observations (B, F): (B,), or (B, K) if there are several."""
        return self._each(self.outputs(x, past))

    def value(self, obs: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the values of raw observations (B, D), as `values`; a memory requires its state (B, S) before them."""
        return self._each(self.step(self.encode(obs), state)[0])

    def trace(self, x: Tensor, past: Past) -> tuple[Tensor, Tensor]:
        """Return the result of `values` and the memory's state (L, U, S) after each step, without gradients."""
        out, states = super().trace(x, past)
        return self._each(out), states

    def _each(self, out: Tensor) -> Tensor:
        if self.value_normalizer is not None:
            out = self.value_normalizer.inverse(out)
        return out.squeeze(-1) if self.num_values == 1 else out


class ExportedActor(nn.Module):
    """The module of a policy bundle: raw observation in, action without noise out."""

    mean: Tensor
    scale: Tensor

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        _check_exportable(actor.layout)
        normalizer = actor.normalizer or Normalizer(actor.obs_dim)
        self.register_buffer("mean", normalizer.mean.detach().cpu().clone())
        self.register_buffer("scale", normalizer.scale.detach().cpu().clone())
        self.encoders = actor.encoders.freeze()
        dense, mode = actor.body.dense(), actor.distribution.mode_of_out()
        self.body = dense if isinstance(mode, nn.Identity) else nn.Sequential(dense, mode)

    def forward(self, obs: Tensor) -> Tensor:
        """Map raw observations (B, D) to actions (B, A)."""
        return self.body(self._encoded(obs))

    @property
    def precision(self) -> dict[str, Any] | None:
        """What a contract says of the layers' precision: "mode" and "layers"; None where all compute in float32."""
        layers = [module.describe() for module in self.modules() if isinstance(module, FrozenLayer)]
        modes = {layer["mode"] for layer in layers} - {"fp32"}
        return {"mode": modes.pop(), "layers": layers} if modes else None

    @torch.no_grad()
    def action_error(self, obs: Tensor, off: Tensor | None = None) -> Tensor:
        """Return how far actions (B, A) at raw observations (B, D) may be off in another program, by the arithmetic.

        `off` (B, D) is how far its observations are, `robot_rl.learn.precision.bounds.OBSERVED` by default.
        """
        return bounds.through(self.body, *self._bounded(obs, off))[1].float()

    def _bounded(self, obs: Tensor, off: Tensor | None) -> bounds.Bounded:
        """Return the input of the perceptron, or of the memory, and its error."""
        value = (obs.double() - self.mean) * self.scale
        seen = bounds.OBSERVED * obs.double().abs().clamp(min=1.0) if off is None else off.double()
        return self.encoders.through(value, seen * self.scale + 2.0 * bounds.UNIT * value.abs())

    def _encoded(self, obs: Tensor) -> Tensor:
        return self.encoders.plain((obs - self.mean) * self.scale)


class ExportedMemory(ExportedActor):
    """Raw observation and state in, action without noise and next state out; episodes begin with state zero."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(actor)
        assert actor.memory is not None
        body = self.body
        del self.body  # What computes first is registered first: a contract has the layers in that order.
        self.memory, self.state_size = actor.memory.dense(), actor.state_size
        self.body = body

    def forward(self, obs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Map raw observations (B, D) and the state (B, S) to actions (B, A) and the next state (B, S)."""
        y, state = self.memory.plain_step(self._encoded(obs), state)
        return self.body(y), state

    @torch.no_grad()
    def action_error(self, obs: Tensor, state: Tensor, off: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Return how far actions (B, A) may be off, from the same state (B, S) before them."""
        return bounds.through(self.body, *self.memory.through(*self._bounded(obs, off), state))[1].float()


def _check_exportable(layout: ObservationLayout) -> None:
    """Refuse several groups of vectors: a bundle's contract describes the terms of one, and images."""
    vectors = [span.group for span in layout.spans if len(span.shape) == 1]
    if len(vectors) != 1:
        raise UserError(
            f"export: the policy sees the vectors {', '.join(vectors) or 'of no group'}, a bundle's contract describes "
            "one group of them and images; join their terms"
        )


N = TypeVar("N", bound=Network)


def make_actor(
    cfg: LearnerCfg, dims: EnvSpec, mirrors: Mirrors | None, generator: torch.Generator | None = None
) -> Actor:
    """Build the policy on the CPU; raise UserError for symmetry=network in an environment without mirror."""
    checked = checked_mirrors(cfg, dims, mirrors)
    with _named("actor"):
        actor = Actor(
            dims.actor_layout,
            dims.action,
            cfg.actor,
            normalize=cfg.normalize_obs,
            mirror=(checked["actor"], checked["action"]) if checked and cfg.symmetry == "network" else None,
            choices=tuple(dims.choices),
            generator=generator,
        )
    return _converted(actor, cfg, "actor")


def make_critic(
    cfg: LearnerCfg,
    dims: EnvSpec,
    mirrors: Mirrors | None,
    generator: torch.Generator | None = None,
) -> Critic:
    """Build the value function on the CPU; errors are those of `make_actor`."""
    checked = checked_mirrors(cfg, dims, mirrors)
    with _named("critic"):
        critic = Critic(
            dims.critic_layout,
            cfg.critic,
            num_values=dims.num_values,
            normalize=cfg.normalize_obs,
            normalize_values=getattr(cfg, "normalize_values", False),
            mirror=checked["critic"] if checked and cfg.symmetry == "network" else None,
            generator=generator,
        )
    return _converted(critic, cfg, "critic")


def _converted(network: N, cfg: LearnerCfg, name: str) -> N:
    """Return the network with the arithmetic of the configured converter, or of the configured precision."""
    if cfg.converter:
        found, line = load_reference(cfg.converter, "converter"), f"converter={cfg.converter}"
        right = "must return a torch.nn.Module for a layer's name and shape"
        network.convert(lambda *layer: make(found, nn.Module, line, right, *layer), name)
    if cfg.precision.is_quantized:
        quantize(network, cfg.precision, name)
    return network


@contextlib.contextmanager
def _named(network: str) -> Iterator[None]:
    """Prefix the network's name to UserErrors inside: its parts know only their own settings."""
    try:
        yield
    except UserError as error:
        line = str(error)
        raise UserError(f"{network}.{line}" if line.startswith(("hidden", "memory.")) else line) from error
