"""Transposing copies from channels-last memory to planes and back, a square of registers at a time."""

from bslite.kernels.contracts.cpu.moves import Transpose
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import LANES, load_int, load_scalar, store_scalar
from bslite.kernels.cpu.vector.transpose import transpose_square

F = offsets(Transpose)


@step_kernel(Transpose)
def transpose(step, bases, item, scratch):
    """``y[i0, i1, i2, r, c] = x[i0, i1, i2, c, r]``: r contiguous in x, c in y; a block of c per item."""
    blocks, n1, n2 = load_int(step + F.blocks), load_int(step + F.n1), load_int(step + F.n2)
    block, matrix = item % blocks, item // blocks
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    x, y = operand(step, bases, F.source), operand(step, bases, F.target)
    x += i0 * load_int(step + F.x0) + i1 * load_int(step + F.x1) + i2 * load_int(step + F.x2)
    y += i0 * load_int(step + F.y0) + i1 * load_int(step + F.y1) + i2 * load_int(step + F.y2)
    x_col, y_row = load_int(step + F.x_col), load_int(step + F.y_row)
    rows, first = load_int(step + F.rows), block * load_int(step + F.block_cols)
    last = min(load_int(step + F.cols), first + load_int(step + F.block_cols))
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
