"""Kernels that turn each row of a tensor into a row of another: softmax, layer norm and the like.

A row is contiguous; the axes around it are merged into at most three, each with its own stride, so that
images inside a halo, channel slices and permuted tensors are walked in place.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import RowRecord
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_int


def row_kernel(contract: type[RowRecord], body):
    """Register a step kernel: ``body(step, bases, item, x, y, length)`` for each row of an item."""
    body, layout = register_jitable(body), offsets(contract)

    def rows(step, bases, item, scratch):
        first = item * load_int(step + layout.item_rows)
        last = min(load_int(step + layout.rows), first + load_int(step + layout.item_rows))
        n1, n2 = load_int(step + layout.n1), load_int(step + layout.n2)
        x0, x1, x2 = load_int(step + layout.x0), load_int(step + layout.x1), load_int(step + layout.x2)
        y0, y1, y2 = load_int(step + layout.y0), load_int(step + layout.y1), load_int(step + layout.y2)
        length = load_int(step + layout.length)
        i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
        x = operand(step, bases, layout.x) + i0 * x0 + i1 * x1 + i2 * x2
        y = operand(step, bases, layout.y) + i0 * y0 + i1 * y1 + i2 * y2
        for _ in range(first, last):
            body(step, bases, item, x, y, length)
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
