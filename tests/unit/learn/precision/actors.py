"""Small policies of every structure, in any precision."""

from dataclasses import replace

import torch

from robot_rl.learn.networks.actor_critic import Actor
from robot_rl.learn.networks.layout import ObservationLayout
from robot_rl.learn.precision.conversion import measure, quantize
from robot_rl.settings import ConvCfg, MemoryCfg, NetworkCfg, PrecisionCfg

KINDS = ("plain", "symmetric", "gru", "lstm", "images", "mirrored")
"""Structures; "mirrored" has images and left-right symmetry, so that one encoder computes twice."""
MODES = ("bf16", "fp8", "int8")
MIRROR = (torch.tensor([1, 0, *range(2, 47)]), torch.tensor([1.0, 1.0] + [-1.0] * 45))
FLIPPED = torch.cat((torch.arange(7), 7 + torch.arange(198).view(2, 9, 11).flip(-1).flatten()))
SWAP = (torch.tensor([1, 0, 3, 2]), torch.ones(4))


def make_actor(kind: str, mode: str, *, hidden=(100, 64), activation="elu", measured=True, **settings) -> Actor:
    """Return a policy of 47 observations, or 7 and an image of 2 x 9 x 11, and 4 actions."""
    cfg, layout = NetworkCfg(hidden=hidden, activation=activation, output_gain=1.0), ObservationLayout({"": (47,)})
    if kind in ("gru", "lstm"):
        cfg = replace(cfg, memory=MemoryCfg(kind=kind, hidden=50))
    if kind in ("images", "mirrored"):
        cfg = replace(cfg, conv=ConvCfg(groups=("image",), features=20))
        layout = ObservationLayout({"": (7,), "image": (2, 9, 11)})
    mirror = (MIRROR, SWAP) if kind == "symmetric" else None
    if kind == "mirrored":
        mirror = ((FLIPPED, torch.ones(205)), SWAP)
    generator = torch.Generator().manual_seed(1)
    actor = Actor(layout, 4, cfg, mirror=mirror, generator=generator)
    if mode != "fp32" or settings:
        quantize(actor, PrecisionCfg(mode=mode, **settings), "actor")
        if measured:
            x = torch.randn(256, layout.size, generator=generator)
            with torch.no_grad():
                measure(actor, lambda: outputs(actor, x))
    return actor


def outputs(actor: Actor, x: torch.Tensor) -> torch.Tensor:
    """Return the outputs at raw observations (B, D), of a recurrent policy from a state that is a function of them."""
    return actor.step(actor.encode(x), state_of(actor, x))[0]


def state_of(actor: Actor, x: torch.Tensor) -> torch.Tensor | None:
    """Return a state (B, S) for observations; None without a memory."""
    return x[:, :1].expand(-1, actor.state_size).sin().contiguous() if actor.state_size else None
