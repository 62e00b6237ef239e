"""Gradients of filters: products of pixels and gradients, summed over windows.

Nothing is unfolded. Under every tap, x is a matrix of pixels by channels as it lies in memory. A chunk of
windows is small enough for its pixels to stay in L2 and its panel of gradients in L1 while all tiles of rows
and taps pass over them. Windows whose tap lies above or below the image are not in the chunk's table; the
zeros beside the image are physical.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.update import UpdateSweep, WeightUpdate
from bslite.kernels.cpu.gemm.update_tile import update_tile
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_some, store, store_int
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

call_update_sweep = caller(8)
f = np.float32
F = reader(WeightUpdate)


@makes(UpdateSweep)
@functools.cache
def update_sweep(vecs: int, most: int) -> Kernel:
    """A kernel of the tiles that ``depth`` rows are cut into, of heights that differ by at most one."""
    tile = update_tile(vecs, most)

    def sweep(depth, a, a_col, table, count, b, c, c_row):
        tiles = (depth + most - 1) // most
        while tiles > 0:
            rows = (depth + tiles - 1) // tiles
            tile(rows, a, a_col, table, count, b, c, c_row)
            a += 4 * rows
            c += rows * c_row
            depth -= rows
            tiles -= 1

    return Kernel(sweep, f"update_sweep_{most}x{vecs}", 8)


@register_jitable
def place_of(s, number):
    """Image, plane, line and first window of a segment, and its windows."""
    cut, rest = number % s.cuts, number // s.cuts
    line, rest = rest % s.lines, rest // s.lines
    first = cut * s.segment
    return rest // s.planes, rest % s.planes, line, first, min(s.segment, s.pixels - first)


@register_jitable
def is_inside(s, plane, line, deep, row):
    """Whether the tap in plane ``deep`` and ``row`` of the filter meets an element of x."""
    z = s.plane_start + plane * s.plane_step + deep * s.plane_dilation
    y = s.row_start + line * s.row_step + row * s.row_dilation
    return z >= 0 and z < s.plane_size and y >= 0 and y < s.row_size


@register_jitable
def _pack(s, g, first, last, columns, vecs, panel):
    """Packs ``columns`` of the gradients of some segments, zeros in the lanes beyond."""
    for number in range(first, last):
        image, plane, line, start, count = place_of(s, number)
        at = g + image * s.g_image + plane * s.g_plane + line * s.g_line + start * s.g_col
        for _ in range(count):
            for v in range(vecs):
                store(panel + v * BYTES, load_some(at + v * BYTES, columns - v * LANES))
            panel += vecs * BYTES
            at += s.g_col


@register_jitable
def _list(s, first, last, deep, row, pixel, table):
    """Writes where the segments begin whose windows meet x with this row of taps; returns their number."""
    found, at = 0, 0
    for number in range(first, last):
        image, plane, line, start, count = place_of(s, number)
        if is_inside(s, plane, line, deep, row):
            x = image * s.x_image + plane * s.x_plane + line * s.x_line + start * s.x_col
            store_int(table + 24 * found, x)
            store_int(table + 24 * found + 8, at)
            store_int(table + 24 * found + 16, count)
            found += 1
        at += count * pixel
    return found


@step_kernel(WeightUpdate)
def weight_update(step, bases, item, scratch):
    """Computes a block of rows by a block of panels of one group, for one part of the windows."""
    s = F(step, bases)
    block, rest = item % s.blocks, item // s.blocks
    row_block, rest = rest % s.row_blocks, rest // s.row_blocks
    group, part = rest % s.groups, rest // s.groups
    first_panel, width, deep, rows, cols = block * s.block_panels, s.width, s.deep, s.rows, s.cols
    last_panel = min(s.panels, first_panel + s.block_panels)
    first_row = row_block * s.block_rows
    height = min(s.block_rows, s.depth - first_row)
    c_row, c_tap = 4 * s.padded, 4 * s.padded * s.depth
    taps = deep * rows * cols
    y = s.y + (part * s.groups + group) * taps * c_tap + first_row * c_row
    x, g = s.x + group * s.x_group + 4 * first_row, s.g + group * s.g_group
    panels, table, x_col = s.panels, scratch + s.table_at, s.x_col
    for tap in range(taps):
        for i in range(height):
            at = y + tap * c_tap + i * c_row + first_panel * width * BYTES
            stop = y + tap * c_tap + i * c_row + min(last_panel * width * BYTES, 4 * s.padded)
            while at < stop:
                store(at, splat(f(0.0)))
                at += BYTES
    total = s.images * s.planes * s.lines * s.cuts
    begin = part * s.part
    end = min(total, begin + s.part)
    while begin < end:
        last = min(end, begin + s.chunk)
        for panel in range(first_panel, last_panel):
            vecs, sweep = width, s.sweep
            if panel == panels - 1:
                vecs, sweep = s.tail, s.tail_sweep
            column = panel * width * LANES
            _pack(s, g + 4 * column, begin, last, s.columns - column, vecs, scratch)
            for z in range(deep):
                for r in range(rows):
                    count = _list(s, begin, last, z, r, vecs * BYTES, table)
                    if count:
                        a = x + z * s.x_deep + r * s.x_row
                        c = y + (z * rows + r) * cols * c_tap + 4 * column
                        for _ in range(cols):
                            call_update_sweep(sweep, height, a, x_col, table, count, scratch, c, c_row)
                            a += s.x_tap
                            c += c_tap
        begin = last
