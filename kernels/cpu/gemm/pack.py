"""Packs a computed matrix into the panels that the GEMM microkernel reads; see conv.py."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.gemm import PackPanels
from bslite.kernels.cpu.gemm.items import matrix_of
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_int, load_scalar, load_some, store, store_scalar
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat
from bslite.kernels.cpu.vector.transpose import transpose_part, transpose_square

NEAR = 16  # rows that go to each panel in turn
F = reader(PackPanels)
f = np.float32


@register_jitable
def pack_register(x, x_row, x_col, rows, lanes, y, y_row):
    """Packs ``rows`` registers, ``y_row`` bytes apart: ``lanes`` columns from ``x``, then zeros.

    Strides are in bytes; nothing outside the columns that exist is read.
    """
    if x_col == 4:
        for k in range(rows):
            store(y + k * y_row, load_some(x + k * x_row, lanes))
        return
    if x_row == 4:
        for k in range(0, rows, LANES):
            if k + LANES <= rows and lanes >= LANES:
                transpose_square(x + 4 * k, x_col, y + k * y_row, y_row)
            else:
                transpose_part(x + 4 * k, x_col, lanes, min(LANES, rows - k), y + k * y_row, y_row)
        return
    for k in range(rows):
        store(y + k * y_row, splat(f(0.0)))
        for c in range(min(lanes, LANES)):
            store_scalar(y + k * y_row + 4 * c, load_scalar(x + k * x_row + c * x_col))


@register_jitable
def pack_panel(x, x_row, x_col, rows, cols, registers, y):
    """Packs one panel of ``rows`` times ``registers`` registers: ``cols`` columns from ``x``, then zeros."""
    for v in range(registers):
        pack_register(
            x + v * LANES * x_col, x_row, x_col, rows, cols - v * LANES, y + v * BYTES, registers * BYTES
        )


@step_kernel(PackPanels)
def pack_panels(step, bases, item, scratch):
    """Packs a block of panels of one matrix: ``y [N/nr][taps][K][nr]``, zeros in the lanes beyond N."""
    s = F(step, bases)
    x, y, first, last = matrix_of(s, item)
    x_row, x_col = s.x_row, s.x_col
    rows, cols, width, panels, taps, places = s.rows, s.cols, s.width, s.panels, s.taps, s.places
    # Where columns lie beside one another, so do those of all panels: some rows go to each of them in turn.
    # Else a panel's columns lie together.
    some, at_once = (NEAR, last - first) if x_col == 4 else (max(1, rows), 1)
    for start in range(first, last, at_once):
        for tap in range(taps):
            source = x + load_int(places + 8 * tap)
            for row in range(0, rows, some):
                for panel in range(start, start + at_once):
                    registers = width if panel < panels - 1 else s.tail
                    column = panel * width * LANES
                    out = y + 4 * column * rows * taps + (tap * rows + row) * registers * BYTES
                    pack_panel(
                        source + row * x_row + column * x_col, x_row, x_col, min(some, rows - row),
                        cols - column, registers, out,
                    )  # fmt: skip
