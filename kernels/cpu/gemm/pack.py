"""Packs a computed matrix into the panels that the GEMM microkernel reads; see conv.py."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.gemm import PackPanels
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.partial import load_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, load_int, load_scalar, splat, store, store_scalar
from bslite.kernels.cpu.vector.transpose import transpose_square

F = offsets(PackPanels)
f = np.float32


@register_jitable
def pack_panel(x, x_row, x_col, rows, cols, registers, y):
    """Packs one panel of ``rows`` times ``registers`` registers: ``cols`` columns from ``x``, then zeros.

    Strides are in bytes; nothing outside the columns that exist is read.
    """
    out_row = registers * BYTES
    for v in range(registers):
        lanes = cols - v * LANES
        source, out = x + v * LANES * x_col, y + v * BYTES
        if x_col == 4:
            for k in range(rows):
                store(out + k * out_row, load_some(source + k * x_row, lanes))
            continue
        k = 0
        if x_row == 4 and lanes >= LANES:
            while k + LANES <= rows:
                transpose_square(source + 4 * k, x_col, out + k * out_row, out_row)
                k += LANES
        while k < rows:
            store(out + k * out_row, splat(f(0.0)))
            for c in range(min(lanes, LANES)):
                store_scalar(out + k * out_row + 4 * c, load_scalar(source + k * x_row + c * x_col))
            k += 1


@step_kernel(PackPanels)
def pack_panels(step, bases, item, scratch):
    """Packs a block of panels of one matrix: ``y [N/nr][K][nr]``, zeros in the lanes beyond N."""
    blocks, n1, n2 = load_int(step + F.blocks), load_int(step + F.n1), load_int(step + F.n2)
    block, matrix = item % blocks, item // blocks
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    x = operand(step, bases, F.source)
    x += i0 * load_int(step + F.x0) + i1 * load_int(step + F.x1) + i2 * load_int(step + F.x2)
    y = operand(step, bases, F.target) + matrix * load_int(step + F.matrix_bytes)
    x_row, x_col = load_int(step + F.x_row), load_int(step + F.x_col)
    rows, cols = load_int(step + F.rows), load_int(step + F.cols)
    width, panels = load_int(step + F.width), load_int(step + F.panels)
    first = block * load_int(step + F.block_panels)
    for panel in range(first, min(panels, first + load_int(step + F.block_panels))):
        registers = width if panel < panels - 1 else load_int(step + F.tail)
        column = panel * width * LANES
        pack_panel(x + column * x_col, x_row, x_col, rows, cols - column, registers, y + 4 * column * rows)
