"""Convolutions and products on tiles of bfloat16: a band is split into parts, then multiplied panel by panel.

An item's band of pixels is split once, into scratch memory that stays in L2, and all panels of weights go
over it. In scratch memory strided windows are phases, and zeros lie wherever a window leaves the image, so
that the outputs of all lines form one line, of which tiles take 32 at a time.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import (
    CHUNK,
    COLS,
    CONFIG,
    HEAD,
    ROW,
    ROWS,
    SUMS,
    TILE,
    UNIT,
    SplitConv,
)
from bslite.kernels.cpu.math.activation import call_activation
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.tiles.split import any_bit, split_pixels
from bslite.kernels.cpu.tiles.sweep import call_tile_sweep
from bslite.kernels.cpu.tiles.unit import configure, release
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat, vmax, vmin

F = reader(SplitConv)
f = np.float32


@register_jitable
def _zeros(address, size):
    for place in range(0, size, BYTES):
        store(address + place, splat(f(0.0)))


@register_jitable
def _split_band(s, x, first_line, lines, band):
    """Splits the rows that ``lines`` lines read; those outside the image become zeros."""
    row_phases, col_phases, pitch, pixel, plane = s.row_phases, s.col_phases, s.pitch, s.pixel, s.plane
    depth, blocks, parts, cols = s.depth, s.blocks_of_terms, s.parts, s.cols
    x_row, x_col = s.x_row, s.x_col
    above = s.start + first_line * s.row_step
    x += first_line * s.x_line
    seen = splat(f(0.0))
    for row in range((lines - 1) * s.row_step + s.filter_rows):
        line = band + row % row_phases * col_phases * plane + row // row_phases * pitch * pixel
        inside = 0 <= above + row < s.rows
        for phase in range(col_phases):
            count = (cols - phase + col_phases - 1) // col_phases
            if first_line + row == s.lines - 1:
                count -= s.short  # which only filters of one pixel have
            to = line + phase * plane
            if inside:
                source = x + row * x_row + phase * x_col
                seen = split_pixels(source, col_phases * x_col, count, depth, blocks, parts, to, pixel, seen)
            else:
                _zeros(to, count * pixel)
    if any_bit(seen):
        raise_flag(s.flag, 0)


@register_jitable
def _add(sums, chunk, rows):
    """Adds the sums of a chunk to those before it."""
    for place in range(0, rows * ROW, BYTES):
        store(sums + place, load(sums + place) + load(chunk + place))


@step_kernel(SplitConv)
def split_conv(step, bases, item, scratch):
    """Computes one band of output lines by one block of panels of one image."""
    s = F(step, bases)
    images, bands, blocks = s.images, s.bands, s.blocks
    if s.blocks_outer:
        block, rest = item // (images * bands), item % (images * bands)
    else:
        block, rest = item % blocks, item // blocks
    image, band_number = rest // bands, rest % bands
    first_line = band_number * s.band_lines
    lines = min(s.lines, first_line + s.band_lines) - first_line
    first_panel = block * s.block_panels
    last_panel = min(s.panels, first_panel + s.block_panels)

    band = scratch + HEAD
    _split_band(s, s.x + image * s.x_image, first_line, lines, band)

    y = s.y + image * s.y_image + first_line * s.y_line
    residual = s.residual + image * s.residual_image + first_line * s.residual_line
    y_line, y_col, r_line, r_col = s.y_line, s.y_col, s.residual_line, s.residual_col
    steps, chunk, offsets, pixel, pitch, pixels = s.steps, s.chunk, s.offsets, s.pixel, s.pitch, s.pixels
    has_residual, channels, sweep, activation = s.has_residual, s.channels, s.sweep, s.activation
    panel_bytes = steps * s.parts * 2 * TILE
    low, high = splat(load_scalar(s.lo_cell)), splat(load_scalar(s.hi_cell))
    short = s.short if first_line + lines == s.lines else 0
    outputs = (lines - 1) * pitch + pixels - short
    configure(scratch + CONFIG)
    for panel in range(first_panel, last_panel):
        weights = s.weights + panel * panel_bytes
        here = min(2 * COLS, channels - panel * 2 * COLS)
        channel_bytes = 4 * panel * 2 * COLS
        bias = s.bias + channel_bytes
        line, col = 0, 0
        for first in range(0, outputs, 2 * ROWS):
            rows = min(2 * ROWS, outputs - first)
            which = 2 * (rows > ROWS) + (here > COLS)
            a = band + first * pixel
            done = 0
            while done < steps:
                count = min(chunk, steps - done)
                sums = scratch + (CHUNK if done else SUMS)
                call_tile_sweep(sweep, which, scratch + UNIT, a, pixel, offsets + 8 * done, count,
                                weights + done * s.parts * 2 * TILE, sums)  # fmt: skip
                if done:
                    _add(scratch + SUMS, scratch + CHUNK, rows)
                done += count
            for row in range(rows):
                if col < pixels:
                    c = y + line * y_line + col * y_col + channel_bytes
                    r = residual + line * r_line + col * r_col + channel_bytes
                    for lane in range(0, here, LANES):
                        value = load(scratch + SUMS + row * ROW + 4 * lane) + load(bias + 4 * lane)
                        if has_residual:
                            value = value + load_some(r + 4 * lane, here - lane)
                        store_some(c + 4 * lane, vmin(high, vmax(low, value)), here - lane)
                col += 1
                if col == pitch:
                    line, col = line + 1, 0
        if activation:
            for number in range(lines):
                count = pixels - short if number == lines - 1 else pixels
                call_activation(activation, y + number * y_line + channel_bytes, count, y_col, here,
                                s.act_a_cell)  # fmt: skip
    release()
