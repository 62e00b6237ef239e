"""Triangles of matrices."""

from bslite.kernels.contracts.cpu.moves import Trilu
from bslite.kernels.cpu.moves.move import ZERO, copy_run, fill_run
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_int

F = offsets(Trilu)


@step_kernel(Trilu)
def trilu(step, bases, item, scratch):
    """Rows of dense matrices, with zeros where ``j - i`` is below (``upper``) or above the diagonal."""
    height, width, rows = load_int(step + F.height), load_int(step + F.width), load_int(step + F.rows)
    diagonal, upper = load_int(step + F.diagonal), load_int(step + F.upper)
    first = item * load_int(step + F.item_rows)
    x = operand(step, bases, F.x)
    y = operand(step, bases, F.y)
    for row in range(first, min(rows, first + load_int(step + F.item_rows))):
        edge = row % height + diagonal
        low = min(max(edge, 0), width) if upper else 0
        high = width if upper else min(max(edge + 1, 0), width)
        at = row * width * 4
        fill_run(y + at, low, ZERO)
        copy_run(x + at + 4 * low, y + at + 4 * low, high - low, 4, 4, 1)
        fill_run(y + at + 4 * high, width - high, ZERO)
