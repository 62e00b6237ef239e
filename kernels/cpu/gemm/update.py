"""Gradients of filters: products of pixels and gradients, summed over windows.

Nothing is unfolded: under every tap, x is a matrix of pixels by channels as it lies in memory. A chunk of
windows is small enough for its gradients, packed in panels, and its pixels to stay in L2 while all tiles pass
over all panels. Pixels at distances that share few sets of a cache are packed, too, in tiles of channels.
Windows whose tap lies above or below the image are not in the chunk's table; beside it lie zeros.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.update import UpdateSweep, WeightUpdate
from bslite.kernels.cpu.gemm.update_tile import update_tile
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, load_int, load_some, store, store_int
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

call_update_sweep = caller(9)
f = np.float32
F = reader(WeightUpdate)


@register_jitable
def tile_rows(depth, most):
    """The rows of the first of the fewest tiles of at most ``most`` rows, whose heights differ by one."""
    tiles = (depth + most - 1) // most
    return (depth + tiles - 1) // tiles


@makes(UpdateSweep)
@functools.cache
def update_sweep(vecs: int, most: int) -> Kernel:
    """A kernel of the tiles that ``depth`` rows are cut into: packed ones, ``a_tile`` bytes apart, or with 0
    neighbouring elements of pixels.
    """
    tile = update_tile(vecs, most)

    def sweep(depth, a, a_tile, a_col, table, count, b, c, c_row):
        while depth > 0:
            rows = tile_rows(depth, most)
            tile(rows, a, a_col, table, count, b, c, c_row)
            a += a_tile if a_tile else 4 * rows
            c += rows * c_row
            depth -= rows

    return Kernel(sweep, f"update_sweep_{most}x{vecs}", 9)


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
def _pack_panel(s, g, first, last, columns, vecs, panel):
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
def _pack_pixels(x, x_col, count, depth, most, out, tile_bytes, lane_bytes):
    """Copies the ``depth`` elements of some pixels to their tiles, pixel by pixel, as they lie in memory."""
    tiles = (depth + most - 1) // most
    low, high = depth // tiles, depth % tiles  # the first `high` tiles have a row more
    width = lane_bytes // 4
    safe_high = min(high, max(0, (depth - width) // (low + 1) + 1)) if depth >= width else 0
    safe_low = 0
    if safe_high == high and depth - high * (low + 1) >= width:
        safe_low = min(tiles - high, (depth - high * (low + 1) - width) // low + 1)
    done = safe_high * (low + 1) + safe_low * low
    for _ in range(count):
        at, to = x, out
        if width == LANES:
            for _ in range(safe_high):
                store(to, load(at))
                at += 4 * (low + 1)
                to += tile_bytes
            for _ in range(safe_low):
                store(to, load(at))
                at += 4 * low
                to += tile_bytes
        else:
            for tile in range(safe_high + safe_low):
                lane = 0
                while lane < width:
                    store(to + 4 * lane, load(at + 4 * lane))
                    lane += LANES
                at += 4 * (low + (tile < high))
                to += tile_bytes
        row, tile = done, safe_high + safe_low
        while row < depth:
            lane = 0
            while lane < width:
                store(to + 4 * lane, load_some(at + 4 * lane, depth - row - lane))
                lane += LANES
            rows = low + (tile < high)
            at += 4 * rows
            row += rows
            to += tile_bytes
            tile += 1
        x += x_col
        out += lane_bytes


@register_jitable
def list_segments(s, first, last, deep, row, g_col, table):
    """Lists the segments whose windows meet x with this row of taps: their places in x, and in g where
    neighbouring windows are ``g_col`` apart, or with 0 which number they have in the chunk; returns how many.
    """
    found, at = 0, 0
    for number in range(first, last):
        image, plane, line, start, count = place_of(s, number)
        if is_inside(s, plane, line, deep, row):
            place = image * s.x_image + plane * s.x_plane + line * s.x_line + start * s.x_col
            grad = image * s.g_image + plane * s.g_plane + line * s.g_line + start * g_col
            store_int(table + 24 * found, place)
            store_int(table + 24 * found + 8, grad if g_col else at)
            store_int(table + 24 * found + 16, count)
            found += 1
        at += count
    return found


@register_jitable
def _pack_zeros(count, depth, most, out, tile_bytes, lane_bytes):
    """Zeros in the tiles, where pixels lie beside the image."""
    row = 0
    while row < depth:
        at = out
        for _ in range(count * (lane_bytes // BYTES)):
            store(at, splat(f(0.0)))
            at += BYTES
        row += tile_rows(depth - row, most)
        out += tile_bytes


@register_jitable
def _pack_tap(s, x, first, last, deep, row, col, depth, out, table):
    """Packs the pixels of x under one tap; lists the runs of windows that meet x, returns their number."""
    found, at, end = 0, 0, -1
    lane_bytes, most, tile_bytes, x_col = s.lane_bytes, s.most, s.tile_bytes, s.x_col
    step, size = s.col_step, s.col_size
    for number in range(first, last):
        image, plane, line, start, count = place_of(s, number)
        if is_inside(s, plane, line, deep, row):
            place = x + image * s.x_image + plane * s.x_plane + line * s.x_line + start * x_col
            column = s.col_start + start * step + col * s.col_dilation
            before, inside = 0, count
            if step:
                if column < 0:
                    before = min(count, (step - 1 - column) // step)
                inside = max(0, min(count, (size - 1 - column) // step + 1) - before)
            to = out + at * lane_bytes
            _pack_zeros(before, depth, most, to, tile_bytes, lane_bytes)
            to += before * lane_bytes
            _pack_pixels(place + before * x_col, x_col, inside, depth, most, to, tile_bytes, lane_bytes)
            after = count - before - inside
            _pack_zeros(after, depth, most, to + inside * lane_bytes, tile_bytes, lane_bytes)
            if at != end:
                store_int(table + 24 * found, at * lane_bytes)
                store_int(table + 24 * found + 8, at)
                store_int(table + 24 * found + 16, 0)
                found += 1
            end = at + count
            store_int(table + 24 * found - 8, load_int(table + 24 * found - 8) + count)
        at += count
    return found


@step_kernel(WeightUpdate)
def weight_update(step, bases, item, scratch):
    """Computes a block of rows by a block of panels of one group, for one part of the windows."""
    s = F(step, bases)
    block, rest = item % s.blocks, item // s.blocks
    row_block, rest = rest % s.row_blocks, rest // s.row_blocks
    group, part = rest % s.groups, rest // s.groups
    first_panel, width, rows, cols = block * s.block_panels, s.width, s.rows, s.cols
    last_panel = min(s.panels, first_panel + s.block_panels)
    first_row = row_block * s.block_rows
    height = min(s.block_rows, s.depth - first_row)
    c_row, c_tap = 4 * s.padded, 4 * s.padded * s.depth
    taps = s.deep * rows * cols
    y = s.y + (part * s.groups + group) * taps * c_tap + first_row * c_row + first_panel * width * BYTES
    x, g = s.x + group * s.x_group + 4 * first_row, s.g + group * s.g_group
    panels, panel_bytes, tile_bytes, lane_bytes = s.panels, s.panel_bytes, s.tile_bytes, s.lane_bytes
    tiles, table = scratch + s.tiles_at, scratch + s.table_at
    col = lane_bytes if tile_bytes else s.x_col
    wide = min(last_panel * width * BYTES, 4 * s.padded) - first_panel * width * BYTES
    for tap in range(taps):
        for i in range(height):
            at = y + tap * c_tap + i * c_row
            stop = at + wide
            while at < stop:
                store(at, splat(f(0.0)))
                at += BYTES
    share = part // s.each
    begin = share * s.share + part % s.each * s.part
    end = min((share + 1) * s.share, begin + s.part)
    while begin < end:
        last = min(end, begin + s.chunk)
        for panel in range(first_panel, last_panel):
            column, vecs = panel * width * LANES, s.tail if panel == panels - 1 else width
            at = scratch + (panel - first_panel) * panel_bytes
            _pack_panel(s, g + 4 * column, begin, last, s.columns - column, vecs, at)
        for tap in range(taps):
            z, r, q = tap // (rows * cols), tap // cols % rows, tap % cols
            origin = x + z * s.x_deep + r * s.x_row + q * s.x_tap
            if tile_bytes:
                count = _pack_tap(s, origin, begin, last, z, r, q, height, tiles, table)
                origin = tiles
            else:
                count = list_segments(s, begin, last, z, r, 0, table)
            if count:
                for panel in range(first_panel, last_panel):
                    sweep = s.tail_sweep if panel == panels - 1 else s.sweep
                    at = scratch + (panel - first_panel) * panel_bytes
                    c = y + tap * c_tap + (panel - first_panel) * width * BYTES
                    call_update_sweep(sweep, height, origin, tile_bytes, col, table, count, at, c, c_row)
        begin = last
