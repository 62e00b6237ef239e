"""Copies of 4-byte cells between strided views: by elements, or by tiles where contiguous axes differ."""

import numpy as np

from bslite.kernels.contracts.cuda.moves import Copy, CopyPairs, CopyVariant, Transpose, TransposeVariant
from bslite.kernels.cuda.moves.places import split, strided
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

EACH = Copy.EACH
u = np.uint32


def _copying(axes: int, threads: int, cell: type):
    def copy(
        source, target, count, x_start, y_start, n0, n1, n2, n3, n4, x0, x1, x2, x3, x4, x5, y0, y1, y2, y3,
        y4, y5,
    ):  # fmt: skip
        held = cuda.local.array(EACH, cell)  # all loads come before the first store, which might change x
        start = u(cuda.blockIdx.x) * u(threads * EACH) + u(cuda.threadIdx.x)
        for e in range(EACH):
            i = u(start + u(e * threads))
            if i < u(count):
                held[e] = source[strided(axes, i, x_start, n0, n1, n2, n3, n4, x0, x1, x2, x3, x4, x5)]
        for e in range(EACH):
            i = u(start + u(e * threads))
            if i < u(count):
                target[strided(axes, i, y_start, n0, n1, n2, n3, n4, y0, y1, y2, y3, y4, y5)] = held[e]

    return copy


@kernel(Copy, registers=40, samples=[CopyVariant(axes, threads=256) for axes in (1, 3, 6)])
def copy(axes: int, threads: int):
    """Copy ``count`` cells of ``axes`` axes (0 innermost) from x to y; a block copies ``threads * EACH``.

    Neighbouring threads write neighbours, as axis 0 is contiguous in y; the strides of x determine its reads.
    The only arithmetic is divisions by sizes, some ten instructions each, hidden behind EACH loads of each of
    the 1,536 threads that an SM holds at 40 registers.
    """
    return _copying(axes, threads, np.int32)


@kernel(CopyPairs, registers=40, samples=[CopyVariant(axes, threads=256) for axes in (1, 3, 6)])
def copy_pairs(axes: int, threads: int):
    """Copy two neighbouring cells at a time, with 8-byte accesses; sizes, starts and strides count pairs."""
    return _copying(axes, threads, np.float64)


@kernel(Transpose, registers=40, samples=[TransposeVariant(tile=32)])
def transpose(tile: int):
    """Compute ``y[.., r, c] = x[.., c, r]`` by tiles: rows r are ``x_row`` apart in x and contiguous in y,
    columns c contiguous in x and ``y_col`` apart in y; three axes around them, the first as long as there are
    blocks.

    A block of ``[tile, tile / EACH]`` threads takes a tile through shared memory with EACH loads per thread
    under way. Rows there have ``tile + 1`` cells, so that a column's 32 cells lie in 32 banks. Reads and
    writes are runs of 32 cells, whole sectors. An SM holds 8 blocks of 4 KB: 2,048 loads under way.
    """
    step = tile // EACH
    pitch = tile + 1

    def transpose(source, target, rows, cols, x_row, y_col, across, down, n1, n2, x0, x1, x2, y0, y1, y2):
        held = cuda.shared.array((tile, pitch), np.int32)
        b = u(cuda.blockIdx.x)
        b, across_at = split(b, across)
        b, down_at = split(b, down)
        b, i2 = split(b, n2)
        i0, i1 = split(b, n1)
        first_c, first_r = u(across_at * u(tile)), u(down_at * u(tile))
        tx, ty = u(cuda.threadIdx.x), u(cuda.threadIdx.y)
        x_first = i0 * x0 + i1 * x1 + i2 * x2
        y_first = i0 * y0 + i1 * y1 + i2 * y2
        c = u(first_c + tx)
        for e in range(EACH):
            r = u(first_r + ty + u(e * step))
            if r < u(rows) and c < u(cols):
                held[ty + u(e * step), tx] = source[np.uint64(x_first + r * x_row + c)]
        cuda.syncthreads()
        r = u(first_r + tx)
        for e in range(EACH):
            c = u(first_c + ty + u(e * step))
            if r < u(rows) and c < u(cols):
                target[np.uint64(y_first + c * y_col + r)] = held[tx, ty + u(e * step)]

    return transpose
