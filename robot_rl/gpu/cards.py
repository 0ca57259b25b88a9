"""What NVIDIA's cards have: memory, its bandwidth, and the compute capability; from NVIDIA's data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.errors import UserError, suggest


@dataclass(frozen=True, slots=True)
class Card:
    """A card or module.

    Attributes:
        name: as it is given.
        title: NVIDIA's name.
        arch: compute capability, 90 for sm_90.
        bandwidth: of its memory [bytes/s].
        memory: [bytes]; of a module, shared with the CPU.
    """

    name: str
    title: str
    arch: int
    bandwidth: float
    memory: float


CARDS = {
    card.name: card
    for card in (
        Card("a100", "A100 80 GB SXM", 80, 2.039e12, 80e9),
        Card("h100", "H100 SXM", 90, 3.35e12, 80e9),
        Card("h200", "H200 SXM", 90, 4.8e12, 141e9),
        Card("b200", "B200", 100, 8.0e12, 180e9),
        Card("l40s", "L40S", 89, 0.864e12, 48e9),
        Card("rtx4090", "GeForce RTX 4090", 89, 1.008e12, 24e9),
        Card("rtx5090", "GeForce RTX 5090", 120, 1.792e12, 32e9),
        Card("orin", "Jetson AGX Orin 64 GB", 87, 0.2048e12, 64e9),
        Card("thor", "Jetson AGX Thor", 110, 0.273e12, 128e9),
    )
}


def get_card(name: str) -> Card:
    """Return a card by name; raise UserError for one that is not here."""
    key = name.strip().lower().replace(" ", "").replace("_", "").replace("-", "")
    if key not in CARDS:
        raise UserError(f"card={name}: no card of this name; {suggest(key, CARDS)}")
    return CARDS[key]
