"""Gathers of elements by index, triangles of matrices, and checked lengths of sequences."""

import numpy as np

from bslite.kernels.contracts.cuda.moves import CopyVariant, Trilu, TriluVariant
from bslite.kernels.contracts.cuda.places import GatherElements, SequenceLengths, SequenceLengthsVariant
from bslite.kernels.cuda.moves.places import split, strided, wrapped
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

u = np.uint32


@kernel(GatherElements, registers=48, samples=[CopyVariant(axes, threads=256) for axes in (1, 3, 6)])
def gather_elements(threads: int, axes: int):
    """Compute ``target[i] = source[place of i + indices[i] * x_step]`` for ``count`` elements of ``axes``
    axes (0 innermost); the indexed axis has a stride of 0. A negative index counts from the end; one out of
    range is 0 and flagged. Reads of indices and writes of the target are runs, reads of the source are not.
    """

    def gather_elements(
        source, indices, target, flag, count, size, x_step, n0, n1, n2, n3, n4, x0, x1, x2, x3, x4, x5
    ):
        i = u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x)
        if i < u(count):
            wanted = wrapped(indices[i], size, flag)
            at = strided(axes, i, 0, n0, n1, n2, n3, n4, x0, x1, x2, x3, x4, x5)
            target[i] = source[np.uint64(np.int64(at) + np.int64(wanted) * x_step)]

    return gather_elements


@kernel(Trilu, registers=32, samples=[TriluVariant(256, upper) for upper in (0, 1)])
def trilu(threads: int, upper: int):
    """Keep ``count`` cells of dense matrices ``[height, width]`` on and above the diagonal (``upper``), or on
    and below it; all others are 0.
    """

    def trilu(x, y, count, height, width, diagonal):
        i = u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x)
        if i < u(count):
            row, column = split(i, width)
            above = np.int64(column) - np.int64(u(row % u(height)))
            keep = above >= diagonal if upper else above <= diagonal
            y[i] = x[i] if keep else np.int32(0)

    return trilu


@kernel(SequenceLengths, threads=1, registers=32, samples=[SequenceLengthsVariant(in_order=1)])
def sequence_lengths(in_order: int):
    """Copy ``count`` lengths to y with one thread. Flags are raised by a length outside 1 to ``most``, which
    becomes 1, by one that follows a shorter one (with ``in_order``), and by a longest below ``steps``.
    """

    def sequence_lengths(x, y, range_flag, order_flag, whole_flag, count, most, steps):
        before, longest = most, 0
        for i in range(count):
            length = x[i]
            if length < 1 or length > most:
                raise_flag(range_flag, np.int64(length))
                length = 1
            elif in_order and length > before:
                raise_flag(order_flag, np.int64(length))
            before = length
            longest = max(longest, length)
            y[i] = length
        if longest < steps:
            raise_flag(whole_flag, np.int64(longest))

    return sequence_lengths
