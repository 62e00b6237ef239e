"""Transposing copies from channels-last memory to planes and back, a square of registers at a time."""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.moves import Transpose
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_pair, load_scalar, store_pair, store_scalar
from bslite.kernels.cpu.vector.simd import LANES
from bslite.kernels.cpu.vector.transpose import transpose_pairs, transpose_square

F = reader(Transpose)


@register_jitable
def transpose_block(x, y, rows, cols, x_col, y_row, side, cell, square, move):
    """Cells of ``cell`` bytes: whole squares of ``side`` by ``square``, the rest at the edges by ``move``."""
    c = 0
    while c < cols:
        width = min(side, cols - c)
        r = 0
        if width == side:
            while r + side <= rows:
                square(x + c * x_col + cell * r, x_col, y + r * y_row + cell * c, y_row)
                r += side
        while r < rows:
            for k in range(c, c + width):
                move(y + r * y_row + cell * k, x + k * x_col + cell * r)
            r += 1
        c += width


@register_jitable
def move_cell(y, x):
    store_scalar(y, load_scalar(x))


@register_jitable
def move_pair(y, x):
    store_pair(y, load_pair(x))


@step_kernel(Transpose)
def transpose(step, bases, item, scratch):
    """``y[i0, i1, i2, r, c] = x[i0, i1, i2, c, r]``, r contiguous in x, c in y, of single cells or of pairs;
    an item is a block of c.
    """
    s = F(step, bases)
    n1, n2, x_col, y_row = s.n1, s.n2, s.x_col, s.y_row
    block, matrix = item % s.blocks, item // s.blocks
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    x = s.source + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
    y = s.target + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
    rows, first, run = s.rows, block * s.block_cols, s.run
    cols = min(s.block_cols, s.cols - first)
    x += first * x_col
    y += 4 * run * first
    if run == 1:
        transpose_block(x, y, rows, cols, x_col, y_row, LANES, 4, transpose_square, move_cell)
    else:
        transpose_block(x, y, rows, cols, x_col, y_row, LANES // 2, 8, transpose_pairs, move_pair)
