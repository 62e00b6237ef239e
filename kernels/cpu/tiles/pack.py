"""Splits and packs a computed matrix into the tiles that the microkernel reads as B."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import COLS, LINE, PAIR, TERMS, TILE, SplitPanels
from bslite.kernels.cpu.gemm.items import matrix_of
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.tiles.split import any_bit, most_of_all, note_least, note_rest, parts_store, tell
from bslite.kernels.cpu.vector.bfloat16 import larger, paired_ir
from bslite.kernels.cpu.vector.lanes import with_lane
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, load_some
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


def _block_splitter(parts):
    """`split_block` into so many parts."""
    one = parts == 1
    store_parts = parts_store(parts, 2 * TILE, paired_ir)
    # Rows from a cell to the next, and from its one term to the other.
    near, far = (2, 1) if one else (1, PAIR)

    @register_jitable
    def split(x, x_row, x_col, rows, cols, y, seen):
        whole = x_col == 4 and rows == TERMS and cols >= 2 * COLS
        most, least, rest = splat(f(0.0)), most_of_all(), splat(f(0.0))
        for pair in range(PAIR):
            first, second = pair * near, pair * near + far
            low, high = x + first * x_row, x + second * x_row
            for column in range(0, 2 * COLS, LANES):
                to = y + column // COLS * TILE + pair * LINE + column % COLS * 4
                if whole:
                    a, b = load(low + 4 * column), load(high + 4 * column)
                else:
                    count = cols - column
                    a = _columns(low + column * x_col, x_col, count if first < rows else 0)
                    b = _columns(high + column * x_col, x_col, count if second < rows else 0)
                leading = store_parts(to, a, b)
                most = larger(most, leading)
                if not one:
                    least, rest = note_least(least, leading), note_rest(rest, a, b)
        return tell(seen, most, least, rest)

    return split


_into_three, _into_two, _into_one = map(_block_splitter, (3, 2, 1))


@register_jitable
def split_block(x, x_row, x_col, rows, cols, parts, y, seen):
    """Splits ``rows`` x ``cols`` numbers (at most 32 rows; columns from 32 on are left out) into ``parts``
    times two tiles, zeros beyond them. Returns ``seen`` with the bits of lanes that are not exact.
    """
    if parts == 3:
        return _into_three(x, x_row, x_col, rows, cols, y, seen)
    if parts == 2:
        return _into_two(x, x_row, x_col, rows, cols, y, seen)
    return _into_one(x, x_row, x_col, rows, cols, y, seen)


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
        of_panel = x + panel * 2 * COLS * x_col
        for row in range(0, rows, TERMS):
            for tap in range(taps):
                source = of_panel + load_int(places + 8 * tap)
                seen = split_block(
                    source + row * x_row, x_row, x_col, min(TERMS, rows - row), cols - panel * 2 * COLS,
                    parts, y, seen,
                )  # fmt: skip
                y += parts * 2 * TILE
    if any_bit(seen):
        raise_flag(s.flag, 0)
