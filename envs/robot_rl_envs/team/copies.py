"""Kernels that copy between the worlds of a team and the rows of a crew; A robots are ``at.shape[0]``."""

import warp as wp

from robot_rl_envs import engine

OWN, SHARED = wp.constant(1), wp.constant(0)
PLACED_BIT = wp.constant(engine.DIRTY_PLACED)


@wp.kernel(enable_backward=False)
def gather(
    world: wp.array2d(dtype=wp.float32),
    at: wp.array2d(dtype=wp.int32),
    # outputs
    row_out: wp.array2d(dtype=wp.float32),
):
    """Fill the rows of a crew from the arrays of the worlds."""
    i = wp.tid()
    w, a = i / at.shape[0], i % at.shape[0]
    for k in range(row_out.shape[1]):
        row_out[i, k] = world[w, at[a, k]]


@wp.kernel(enable_backward=False)
def gather_shared(
    dirty: wp.array(dtype=wp.int32),
    bit: int,
    world: wp.array2d(dtype=wp.float32),
    at: wp.array2d(dtype=wp.int32),
    own: wp.array(dtype=wp.int32),
    # outputs
    row_out: wp.array2d(dtype=wp.float32),
):
    """Take the world's own fields as they are there, in rows with a bit of ``dirty``."""
    i = wp.tid()
    if (dirty[i] & bit) != 0:
        w, a = i / at.shape[0], i % at.shape[0]
        for k in range(row_out.shape[1]):
            if own[k] == SHARED:
                row_out[i, k] = world[w, at[a, k]]


@wp.kernel(enable_backward=False)
def gather_more(
    world: wp.array2d(dtype=wp.float32),
    more: wp.array2d(dtype=wp.int32),
    size: int,
    # outputs
    row_out: wp.array2d(dtype=wp.float32),
):
    """Add further values of the worlds, (robot, value, place) each."""
    w = wp.tid()
    for n in range(more.shape[0]):
        i = w * size + more[n, 0]
        row_out[i, more[n, 1]] = row_out[i, more[n, 1]] + world[w, more[n, 2]]


@wp.kernel(enable_backward=False)
def gather_faults(
    overflow: wp.array(dtype=wp.int32),
    needed: wp.array2d(dtype=wp.int32),
    size: int,
    # outputs
    overflow_out: wp.array(dtype=wp.int32),
    needed_out: wp.array2d(dtype=wp.int32),
):
    """Take over the engine's report about a row's world."""
    i = wp.tid()
    overflow_out[i] = overflow_out[i] | overflow[i / size]
    needed_out[i, 0] = needed[i / size, 0]
    needed_out[i, 1] = needed[i / size, 1]


@wp.kernel(enable_backward=False)
def scatter_all(
    row: wp.array2d(dtype=wp.float32),
    at: wp.array2d(dtype=wp.int32),
    # outputs
    world_out: wp.array2d(dtype=wp.float32),
):
    """Put the rows of a crew into the arrays of the worlds."""
    i = wp.tid()
    w, a = i / at.shape[0], i % at.shape[0]
    for k in range(row.shape[1]):
        world_out[w, at[a, k]] = row[i, k]


@wp.kernel(enable_backward=False)
def scatter(
    dirty: wp.array(dtype=wp.int32),
    bits: int,
    leads: int,
    row: wp.array3d(dtype=wp.float32),
    at: wp.array2d(dtype=wp.int32),
    own: wp.array(dtype=wp.int32),
    # outputs
    world_out: wp.array3d(dtype=wp.float32),
):
    """Put rows with one of ``bits`` in ``dirty`` into the arrays of the worlds."""
    w = wp.tid()
    size = at.shape[0]
    for a in range(size):
        i = w * size + a
        found = dirty[i] & bits
        if found != 0:
            # What belongs to no robot is written once, and not by one that joins a running episode.
            shared = leads
            if a > 0 or found == PLACED_BIT:
                shared = int(0)
            for k in range(row.shape[1]):
                if own[k] == OWN or shared == 1:
                    for n in range(row.shape[2]):
                        world_out[w, at[a, k], n] = row[i, k, n]


@wp.kernel(enable_backward=False)
def merge_dirty(
    dirty: wp.array(dtype=wp.int32),
    size: int,
    # outputs
    world_out: wp.array(dtype=wp.int32),
):
    """Add the bits of a world's rows to the world's."""
    w = wp.tid()
    for a in range(size):
        world_out[w] = world_out[w] | dirty[w * size + a]
