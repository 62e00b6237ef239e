"""Kernels that turn each row of a tensor into a row of another: softmax, layer norm and the like.

A row is contiguous; the axes around it are merged into at most three, each with its own stride, so that
images inside a halo, channel slices and permuted tensors are walked in place. Some work is done as well along
another axis than the contiguous one, whose lanes then stand side by side.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import LaneRecord, RowRecord
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.simd import BYTES, LANES


@register_jitable
def after(i0, i1, i2, n1, n2):
    """The place of the next row, along three axes of which the inner two have these sizes."""
    i2 += 1
    if i2 == n2:
        i1, i2 = i1 + 1, 0
        if i1 == n1:
            i0, i1 = i0 + 1, 0
    return i0, i1, i2


def row_kernel(contract: type[RowRecord], body):
    """Register a step kernel: ``body(s, item, x, y, length)`` for each row of an item."""
    body, of = register_jitable(body), reader(contract)

    def rows(step, bases, item, scratch):
        s = of(step, bases)
        first = item * s.item_rows
        last = min(s.rows, first + s.item_rows)
        n1, n2, length = s.n1, s.n2, s.length
        x0, x1, x2, y0, y1, y2 = s.x0, s.x1, s.x2, s.y0, s.y1, s.y2
        i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
        x = s.x + i0 * x0 + i1 * x1 + i2 * x2
        y = s.y + i0 * y0 + i1 * y1 + i2 * y2
        for _ in range(first, last):
            body(s, item, x, y, length)
            i2 += 1
            x += x2
            y += y2
            if i2 == n2:
                i2 = 0
                i1 += 1
                x += x1 - n2 * x2
                y += y1 - n2 * y2
                if i1 == n1:
                    i1 = 0
                    x += x0 - n1 * x1
                    y += y0 - n1 * y1

    return step_kernel(contract)(rows)


def lane_kernel(contract: type[LaneRecord], body):
    """Register a step kernel: ``body(s, x, y, length, left)`` for each register of lanes of an item, of which
    ``left`` exist.
    """
    body, of = register_jitable(body), reader(contract)

    def lanes(step, bases, item, scratch):
        s = of(step, bases)
        first = item * s.item_rows
        n1, n2, length, block, channels = s.n1, s.n2, s.length, s.block, s.channels
        i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
        for _ in range(first, min(s.rows, first + s.item_rows)):
            x = s.x + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
            y = s.y + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
            left = min(block, channels - i2 * block)
            while left > 0:
                body(s, x, y, length, left)
                x, y, left = x + BYTES, y + BYTES, left - LANES
            i0, i1, i2 = after(i0, i1, i2, n1, n2)

    return step_kernel(contract)(lanes)
