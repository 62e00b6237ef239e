"""Results of tiles: bias, residual and clamp, stored as float32, as cells of bfloat16, or both."""

import numpy as np
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import LINE, ROW, Added
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.rows.rounded import round_pixels
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.bfloat16 import first_half, larger, not_finite, second_half
from bslite.kernels.cpu.vector.bfloat16 import rounded as cells_of
from bslite.kernels.cpu.vector.ir import const
from bslite.kernels.cpu.vector.memory import load, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, i64, primitive, splat, vmax, vmin

f = np.float32
FLOAT32, CELLS = Added.FLOAT32.value, Added.CELLS.value


def _toucher(write):
    """A function that brings the two lines of memory at an address near, to be written or read."""

    @primitive(types.void, i64)
    def touch(builder, address):
        for place in (0, LINE):
            simd.prefetch_ir(builder, builder.add(address, const(place)), write=write)

    return touch


_touch_results, _touch_residual = _toucher(True), _toucher(False)


@register_jitable
def fetch_places(s, rows, line, col, pitch, pixels, y, r):
    """Brings near what the results of ``rows`` outputs are stored to, and what is added to them, while their
    products are summed.
    """
    y_line, y_col, r_line, r_col = s.y_line, s.y_col, s.residual_line, s.residual_col
    has_residual = 0 < s.added < CELLS
    row = 0
    while row < rows:
        width = min(rows - row, pixels - col)
        if width > 0:
            to, other = y + line * y_line + col * y_col, r + line * r_line + col * r_col
            for _ in range(width):
                _touch_results(to)
                if has_residual:
                    _touch_residual(other)
                to += y_col
                other += r_col
        else:
            width = min(rows - row, pitch - col)
        row += width
        col += width
        if col == pitch:
            line, col = line + 1, 0


@register_jitable
def _finish(s, sums, count, channels, c, c_col, r, bias, low, high):
    """Stores the results of ``count`` outputs, of ``channels`` channels of a panel: of two registers at a
    time, whole lines of memory, or of what remains.
    """
    has_residual, r_col = s.added == FLOAT32, s.residual_col
    lane = 0
    while lane < channels:
        left, added = channels - lane, load(bias + 4 * lane)
        x, to, other = sums + 4 * lane, c + 4 * lane, r + 4 * lane
        if left >= 2 * LANES:
            more = load(bias + 4 * lane + BYTES)
            if has_residual:
                for _ in range(count):
                    first = load(x) + added + load(other)
                    second = load(x + BYTES) + more + load(other + BYTES)
                    store(to, vmin(high, vmax(low, first)))
                    store(to + BYTES, vmin(high, vmax(low, second)))
                    x += ROW
                    to += c_col
                    other += r_col
            else:
                for _ in range(count):
                    store(to, vmin(high, vmax(low, load(x) + added)))
                    store(to + BYTES, vmin(high, vmax(low, load(x + BYTES) + more)))
                    x += ROW
                    to += c_col
            lane += 2 * LANES
            continue
        if has_residual:
            for _ in range(count):
                value = load(x) + added + load_some(other, left)
                store_some(to, vmin(high, vmax(low, value)), left)
                x += ROW
                to += c_col
                other += r_col
        else:
            for _ in range(count):
                store_some(to, vmin(high, vmax(low, load(x) + added)), left)
                x += ROW
                to += c_col
        lane += LANES


@register_jitable
def _cells_at(address, left, added):
    """The next ``left`` numbers of a residual, of a register of cells at most, as cells."""
    if added == CELLS:
        return load_some(address, (left + 1) // 2)
    return cells_of(load_some(address, left), load_some(address + BYTES, left - LANES))


@register_jitable
def _finish_pairs(s, sums, count, channels, c, c_col, as_cells, r, bias, low, high, seen):
    """`_finish` for results that are stored as cells alone, or for a residual that is rounded. Returns
    ``seen`` with the larger magnitudes.
    """
    added, r_col = s.added, s.residual_col
    for lane in range(0, channels, 2 * LANES):
        left = channels - lane
        x, to = sums + 4 * lane, c + (2 if as_cells else 4) * lane
        other = r + (2 if added == CELLS else 4) * lane
        a_bias, b_bias = load_some(bias + 4 * lane, left), load_some(bias + 4 * lane + BYTES, left - LANES)
        for _ in range(count):
            a, b = load(x) + a_bias, load_some(x + BYTES, left - LANES) + b_bias
            if added:
                more = _cells_at(other, left, added)
                seen = larger(seen, more)
                a, b = a + first_half(more), b + second_half(more)
            a, b = vmin(high, vmax(low, a)), vmin(high, vmax(low, b))
            if as_cells:
                made = cells_of(a, b)
                seen = larger(seen, made)
                store_some(to, made, (left + 1) // 2)
            else:
                store_some(to, a, left)
                store_some(to + BYTES, b, left - LANES)
            x += ROW
            to += c_col
            other += r_col
    return seen


@register_jitable
def store_float32(s, sums, count, channels, c, c_col, r, bias, low, high):
    """Stores the results of ``count`` neighbouring outputs as float32, the activation applied."""
    if s.added > FLOAT32:
        seen = _finish_pairs(s, sums, count, channels, c, c_col, False, r, bias, low, high, splat(f(0.0)))
        if not_finite(seen):
            raise_flag(s.flag, 0)
    else:
        _finish(s, sums, count, channels, c, c_col, r, bias, low, high)
    if s.activation:
        activate(s.activation, c, count, c_col, channels, s.act_a_cell)


@register_jitable
def store_rounded(s, sums, count, channels, c, place, r, bias, low, high):
    """Stores the results of ``count`` neighbouring outputs, rounded at ``place``, and as float32 at ``c``
    unless they are stored as cells alone. The activation comes in between.
    """
    only, seen = s.cells_only, splat(f(0.0))
    if only and not s.activation:
        seen = _finish_pairs(s, sums, count, channels, place, s.cells_col, True, r, bias, low, high, seen)
    else:
        col = ROW if only else s.y_col
        if only:
            c = sums
        store_float32(s, sums, count, channels, c, col, r, bias, low, high)
        seen = round_pixels(c, count, col, channels, place, s.cells_col, seen)
    if not_finite(seen):
        raise_flag(s.flag, 0)
