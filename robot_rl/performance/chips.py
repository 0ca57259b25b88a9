"""The limits of NVIDIA's chips by compute capability, and how many threads of a kernel fit on a multiprocessor.

The limits are those of the CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

from robot_rl.errors import UserError, suggest

WARP_THREADS = 32
REGISTERS = 65_536
"""Registers of a multiprocessor, on every chip here."""
REGISTER_UNIT = 256
"""Registers are given to a warp in multiples of it."""
RESERVED_SHARED = 1024
"""Bytes of shared memory that the system takes of each block."""


@dataclass(frozen=True, slots=True)
class Chip:
    """The limits of one multiprocessor.

    Attributes:
        arch: compute capability, 90 for sm_90.
        warps: resident warps.
        blocks: resident blocks.
        shared: bytes of shared memory.
        example: a card or module with it.
    """

    arch: int
    warps: int
    blocks: int
    shared: int
    example: str


CHIPS = {
    chip.arch: chip
    for chip in (
        Chip(75, 32, 16, 64 * 1024, "T4, RTX 2080"),
        Chip(80, 64, 32, 164 * 1024, "A100"),
        Chip(86, 48, 16, 100 * 1024, "A10, RTX 3090"),
        Chip(87, 48, 16, 164 * 1024, "Jetson Orin"),
        Chip(89, 48, 24, 100 * 1024, "L40S, RTX 4090"),
        Chip(90, 64, 32, 228 * 1024, "H100, H200"),
        Chip(100, 64, 32, 228 * 1024, "B200"),
        Chip(103, 64, 32, 228 * 1024, "B300"),
        Chip(110, 48, 24, 228 * 1024, "Jetson Thor"),
        Chip(120, 48, 24, 100 * 1024, "RTX 5090, RTX PRO 6000"),
        Chip(121, 48, 24, 100 * 1024, "DGX Spark"),
    )
}


def read_archs(text: str) -> list[Chip]:
    """Return the chips of a list such as "sm_90,sm_110".

    Raises:
        UserError: a word that is not a chip here.
    """
    chips = []
    known = {f"sm_{arch}": chip for arch, chip in CHIPS.items()}
    for word in text.split(","):
        name = word.strip().lower()
        if name not in known:
            raise UserError("arch", text, f"no chip of the name '{name}'", suggest(name, known))
        if known[name] not in chips:
            chips.append(known[name])
    return chips


def occupancy(chip: Chip, *, threads: int, registers: int, shared: int) -> float:
    """Return the share in [0, 1] of a multiprocessor's warps that a kernel can keep resident.

    Args:
        chip: the limits.
        threads: threads of a block.
        registers: registers of a thread.
        shared: bytes of shared memory of a block.
    """
    warps = -(-threads // WARP_THREADS)
    of_a_warp = -(-registers * WARP_THREADS // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // max(of_a_warp, 1) // warps
    by_shared = chip.shared // (shared + RESERVED_SHARED)
    blocks = min(chip.warps // warps, chip.blocks, by_registers, by_shared)
    return blocks * warps / chip.warps
