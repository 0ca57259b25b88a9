"""Counter-based random streams: a draw depends only on the seed, the world's global index, its step and the term."""

import zlib

import warp as wp


@wp.func
def stream(seed: int, world: int, counter: int, salt: int) -> wp.uint32:
    """Return a fresh random state for (seed, global world index, step counter, term)."""
    lane = wp.rand_init(seed + salt, world)
    return wp.rand_init(int(lane), counter)


@wp.func
def uniform(rng: wp.uint32, lo: float, hi: float) -> float:
    """Map one draw of ``rng`` to [lo, hi); the caller's state does not advance, so use it for a last draw."""
    return lo + (hi - lo) * wp.randf(rng)


def salt_of(name: str) -> int:
    """Return a stable 24-bit number for a term's name, so that adding a term does not change the others' draws."""
    return zlib.crc32(name.encode()) & 0xFFFFFF
