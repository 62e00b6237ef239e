"""Triangles of matrices."""

from bslite.kernels.contracts.cpu.moves import Trilu
from bslite.kernels.cpu.moves.move import ZERO, copy_run, fill_run
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader

F = reader(Trilu)


@step_kernel(Trilu)
def trilu(step, bases, item, scratch):
    """Rows of dense matrices, with zeros where ``j - i`` is below (``upper``) or above the diagonal."""
    s = F(step, bases)
    height, width, rows = s.height, s.width, s.rows
    diagonal, upper, x, y = s.diagonal, s.upper, s.x, s.y
    first = item * s.item_rows
    for row in range(first, min(rows, first + s.item_rows)):
        edge = row % height + diagonal
        low = min(max(edge, 0), width) if upper else 0
        high = width if upper else min(max(edge + 1, 0), width)
        at = row * width * 4
        fill_run(y + at, low, ZERO)
        copy_run(x + at + 4 * low, y + at + 4 * low, high - low)
        fill_run(y + at + 4 * high, width - high, ZERO)
