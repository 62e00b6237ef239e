"""Products of few rows with a matrix that is read once, as it lies in memory: a weight that is a value.

Panels of all of it would be written and read again, which takes longer than the product. A block of columns
keeps its running sums in cache and goes down the matrix, some terms at a time. Where columns lie beside one
another, tiles read the matrix itself; else, and where a panel is not whole, its terms are packed, in L2.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.gemm import Unpacked
from bslite.kernels.contracts.cpu.sweep import UnpackedSweep
from bslite.kernels.cpu.gemm.pack import pack_panel
from bslite.kernels.cpu.gemm.unpacked_tile import unpacked_tile
from bslite.kernels.cpu.gemm.update import tile_rows
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat, vmax, vmin

call_unpacked_sweep = caller(8)
f = np.float32
F = reader(Unpacked)


@makes(UnpackedSweep)
@functools.cache
def unpacked_sweep(vecs: int, most: int) -> Kernel:
    """A kernel of the tiles that ``rows`` rows are cut into."""
    tile = unpacked_tile(vecs, most)

    def sweep(rows, a, a_row, depth, b, b_row, c, ahead):
        while rows > 0:
            height = tile_rows(rows, most)
            tile(height, a, a_row, depth, b, b_row, c, ahead)
            ahead = b
            a += height * a_row
            c += height * vecs * BYTES
            rows -= height

    return Kernel(sweep, f"unpacked_sweep_{most}x{vecs}", 8)


@register_jitable
def _finish(sums, rows, vecs, y, y_row, columns, bias, first, final, lo, hi):
    """Adds the sums of a part to ``columns`` of y, or those of the first part to the bias."""
    for i in range(rows):
        for v in range(vecs):
            lanes, at = columns - v * LANES, y + i * y_row + v * BYTES
            total = load(sums + (i * vecs + v) * BYTES)
            if first:
                total = total + load_some(bias + v * BYTES, lanes)
            else:
                total = total + splat(f(0.0)) + load_some(at, lanes)
            if final:
                total = vmin(splat(hi), vmax(splat(lo), total))
            store_some(at, total, lanes)


@step_kernel(Unpacked)
def unpacked(step, bases, item, scratch):
    """Computes one block of panels of columns of one product, for all rows."""
    s = F(step, bases)
    product, item = item // s.blocks, item % s.blocks
    n0, n1 = product // s.n1, product % s.n1
    width, tail, panels, rows, terms, near = s.width, s.tail, s.panels, s.rows, s.terms, s.near
    first_panel = item * s.block_panels
    last_panel = min(panels, first_panel + s.block_panels)
    x, w = s.x + n0 * s.x_of0 + n1 * s.x_of1, s.w + n0 * s.w_of0 + n1 * s.w_of1
    y, bias, packed = s.y + n0 * s.y_of0 + n1 * s.y_of1, s.bias, scratch + s.packed_at
    x_row, w_row, w_col, y_row, columns = s.x_row, s.w_row, s.w_col, s.y_row, s.columns
    sums_bytes = rows * width * BYTES
    lo, hi, activation = load_scalar(s.lo_cell), load_scalar(s.hi_cell), s.activation
    start = 0
    while start < terms:
        end = min(terms, start + s.part)
        at = scratch
        stop = scratch + (last_panel - first_panel) * sums_bytes
        while at < stop:
            store(at, splat(f(0.0)))
            at += BYTES
        while start < end:
            depth = min(near, end - start)
            for panel in range(first_panel, last_panel):
                column, vecs = panel * width * LANES, tail if panel == panels - 1 else width
                b, b_row = w + start * w_row + column * w_col, w_row
                if w_col != 4 or columns - column < vecs * LANES:
                    pack_panel(b, w_row, w_col, depth, columns - column, vecs, packed)
                    b, b_row = packed, vecs * BYTES
                sweep = s.tail_sweep if panel == panels - 1 else s.sweep
                sums = scratch + (panel - first_panel) * sums_bytes
                ahead = b
                if w_col == 4:  # else the hardware prefetches, along the columns
                    ahead = w + 4 * (panel + 1) * width * LANES + start * w_row
                    if panel + 1 == last_panel:
                        ahead = w + 4 * first_panel * width * LANES + (start + depth) * w_row
                call_unpacked_sweep(sweep, rows, x + 4 * start, x_row, depth, b, b_row, sums, ahead)
            start += depth
        final = end == terms
        for panel in range(first_panel, last_panel):
            column, vecs = panel * width * LANES, tail if panel == panels - 1 else width
            sums, there = scratch + (panel - first_panel) * sums_bytes, y + 4 * column
            many = min(columns - column, vecs * LANES)
            _finish(sums, rows, vecs, there, y_row, many, bias + 4 * column, end <= s.part, final, lo, hi)
            if activation and final:
                activate(activation, there, rows, y_row, many, s.act_a_cell)
