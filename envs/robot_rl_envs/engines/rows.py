"""Rows of float32 mirrors copied into MuJoCo's float64 memory, in the worlds of a mask.

Each copy is a recorded launch over all worlds: nothing is allocated, however many worlds were changed, and the check
of an unchanged world costs a nanosecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp


@wp.kernel(enable_backward=False)
def _copy_rows(
    dirty: wp.array(dtype=wp.int32),
    bits: int,
    wanted: int,
    source: wp.array2d(dtype=wp.float32),
    target: wp.array2d(dtype=wp.float64),
):
    i = wp.tid()
    if (dirty[i] & bits) == wanted:
        for k in range(target.shape[1]):
            target[i, k] = wp.float64(source[i, k])


@wp.kernel(enable_backward=False)
def _start_rows(
    dirty: wp.array(dtype=wp.int32), bits: int, fresh: wp.array(dtype=wp.float64), target: wp.array2d(dtype=wp.float64)
):
    i = wp.tid()
    if (dirty[i] & bits) != 0:
        for k in range(target.shape[1]):
            target[i, k] = fresh[k]


@wp.kernel(enable_backward=False)
def _list_rows(
    dirty: wp.array(dtype=wp.int32), bits: int, rows: wp.array(dtype=wp.int32), count: wp.array(dtype=wp.int32)
):
    n = wp.int32(0)
    for i in range(dirty.shape[0]):
        if (dirty[i] & bits) != 0:
            rows[n] = i
            n = n + 1
    count[0] = n


class RowLister:
    """Indices of the worlds with one of ``bits`` in ``dirty`` (num_envs,), without an allocation."""

    def __init__(self, dirty: wp.array, bits: int):
        self._rows, self._count = (wp.zeros(size, dtype=wp.int32, device="cpu") for size in (dirty.shape[0], 1))
        self._list: Any = wp.launch(
            _list_rows, dim=1, inputs=[dirty, bits, self._rows, self._count], device="cpu", record_cmd=True
        )
        self._views = self._rows.numpy(), self._count.numpy()

    def list(self) -> np.ndarray:
        """Return the sorted indices, int32; a view that the next call overwrites."""
        self._list.launch()
        rows, count = self._views
        return rows[: int(count[0])]


def aliased(values: np.ndarray) -> wp.array:
    """Return a Warp array over NumPy memory of float64, with the same strides; the memory must stay alive."""
    return wp.array(
        ptr=values.ctypes.data, dtype=wp.float64, shape=values.shape, strides=values.strides, device="cpu", copy=False
    )


class RowWriter:
    """Copies recorded for one mask ``dirty`` (num_envs,) of int32 bits."""

    def __init__(self, dirty: wp.array):
        self._dirty, self._bits = dirty, dirty.numpy()
        self._commands: list[tuple[int, Any]] = []
        self._kept: list[Any] = []

    def covers(self, dirty: wp.array) -> bool:
        """Whether the copies were recorded for this mask."""
        return dirty.ptr == self._dirty.ptr

    def any(self) -> int:
        """Return the bits that any world has."""
        return int(np.bitwise_or.reduce(self._bits))

    def start(self, bits: int, fresh: np.ndarray, target: np.ndarray) -> None:
        """Record: if one of ``bits`` is set, a row of ``target`` (num_envs, k) float64 becomes ``fresh`` (k,)."""
        start = wp.array(fresh, dtype=wp.float64, device="cpu")
        self._record(_start_rows, bits, [self._dirty, bits, start, aliased(target)], (start, target))

    def copy(self, bits: int, wanted: int, source: wp.array, target: np.ndarray) -> None:
        """Record: where ``bits`` of the mask equal ``wanted``, a row of ``source`` is copied into ``target``.

        Args:
            bits: which bits to compare.
            wanted: their value; the copy is skipped when no world has one of them.
            source: (num_envs, ...) contiguous float32.
            target: (num_envs, ...) float64 NumPy memory of the same rows, alive as long as this object.
        """
        rows = len(target)
        if not target[0].flags.c_contiguous:
            raise ValueError(f"rows of shape {target.shape[1:]} and strides {target.strides[1:]} are not contiguous")
        flat = np.lib.stride_tricks.as_strided(
            target, (rows, target[0].size), (target.strides[0], target.itemsize), writeable=True
        )
        inputs = [self._dirty, bits, wanted, source.reshape((rows, -1)), aliased(flat)]
        self._record(_copy_rows, wanted, inputs, (source, target))

    def launch(self, found: int) -> None:
        """Run the copies for one of the bits ``found``, in the order they were recorded."""
        for bits, command in self._commands:
            if bits & found:
                command.launch()

    def _record(self, kernel: Any, bits: int, inputs: list[Any], kept: tuple[Any, ...]) -> None:
        command = wp.launch(kernel, dim=self._dirty.shape[0], inputs=inputs, device="cpu", record_cmd=True)
        self._commands.append((bits, command))
        self._kept.append((inputs, kept))
