"""Splits and packs a computed matrix into the tiles that the microkernel reads as B."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import COLS, LINE, TERMS, TILE, SplitPanels
from bslite.kernels.cpu.gemm.items import matrix_of
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.tiles.split import any_bit, either, store_pairs
from bslite.kernels.cpu.vector.lanes import with_lane
from bslite.kernels.cpu.vector.memory import load_int, load_scalar, load_some
from bslite.kernels.cpu.vector.simd import LANES, splat

F = reader(SplitPanels)
f = np.float32


@register_jitable
def _columns(x, x_col, count):
    """A register of ``count`` columns from ``x``, zeros beyond."""
    if x_col == 4:
        return load_some(x, count)
    made = splat(f(0.0))
    for c in range(min(count, LANES)):
        made = with_lane(made, c, load_scalar(x + c * x_col))
    return made


@register_jitable
def split_block(x, x_row, x_col, rows, cols, parts, y, seen):
    """Splits ``rows`` x ``cols`` numbers (at most 32 each) into ``parts`` times two tiles, zeros beyond them.
    Returns ``seen`` with the bits of lanes that are not exact.
    """
    for pair in range(TERMS // 2):
        row = 2 * pair
        at = x + row * x_row
        for column in range(0, 2 * COLS, LANES):
            count = cols - column
            even = _columns(at + column * x_col, x_col, count if row < rows else 0)
            odd = _columns(at + x_row + column * x_col, x_col, count if row + 1 < rows else 0)
            to = y + column // COLS * TILE + pair * LINE + column % COLS * 4
            seen = either(seen, store_pairs(to, even, odd, parts))
    return seen


@step_kernel(SplitPanels)
def split_panels(step, bases, item, scratch):
    """Packs a block of panels of one matrix."""
    s = F(step, bases)
    x, y, first, last = matrix_of(s, item)
    x_row, x_col, parts = s.x_row, s.x_col, s.parts
    rows, cols, taps, places = s.rows, s.cols, s.taps, s.places
    chunks = (rows + TERMS - 1) // TERMS
    y += first * taps * chunks * parts * 2 * TILE
    seen = splat(f(0.0))
    for panel in range(first, last):
        for tap in range(taps):
            source = x + load_int(places + 8 * tap) + panel * 2 * COLS * x_col
            for chunk in range(chunks):
                row = chunk * TERMS
                seen = split_block(
                    source + row * x_row, x_row, x_col, min(TERMS, rows - row), cols - panel * 2 * COLS,
                    parts, y, seen,
                )  # fmt: skip
                y += parts * 2 * TILE
    if any_bit(seen):
        raise_flag(s.flag, 0)
