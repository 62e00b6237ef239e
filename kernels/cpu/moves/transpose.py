"""Transposing copies from channels-last memory to planes and back, a square of registers at a time."""

from bslite.kernels.contracts.cpu.moves import Transpose
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_scalar, store_scalar
from bslite.kernels.cpu.vector.simd import LANES
from bslite.kernels.cpu.vector.transpose import transpose_square

F = reader(Transpose)


@step_kernel(Transpose)
def transpose(step, bases, item, scratch):
    """``y[i0, i1, i2, r, c] = x[i0, i1, i2, c, r]``: r contiguous in x, c in y; a block of c per item."""
    s = F(step, bases)
    n1, n2, x_col, y_row = s.n1, s.n2, s.x_col, s.y_row
    block, matrix = item % s.blocks, item // s.blocks
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    x = s.source + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
    y = s.target + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
    rows, first = s.rows, block * s.block_cols
    last = min(s.cols, first + s.block_cols)
    c = first
    while c < last:
        width = min(LANES, last - c)
        r = 0
        if width == LANES:
            while r + LANES <= rows:
                transpose_square(x + c * x_col + 4 * r, x_col, y + r * y_row + 4 * c, y_row)
                r += LANES
        while r < rows:
            for k in range(c, c + width):
                store_scalar(y + r * y_row + 4 * k, load_scalar(x + k * x_col + 4 * r))
            r += 1
        c += width
