"""Convolutions and products on tiles of bfloat16: a band is split into parts, then multiplied panel by panel.

An item's band of pixels is split once, into scratch memory that stays in L2, and all panels of weights go
over it (over one chunk of long sums after the other). In scratch memory strided windows are phases, and zeros
lie wherever a window leaves the image, so that the outputs of all lines form one line, of which tiles take 32
at a time.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import (
    BLOCK,
    COLS,
    CONFIG,
    FIRST,
    HEAD,
    LINE,
    ROW,
    ROWS,
    SPLIT,
    STREAMS,
    TERMS,
    TILE,
    UNIT,
    Added,
    Reads,
    SplitConv,
)
from bslite.kernels.cpu.gemm.items import part_of
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.tiles.results import fetch_places, store_float32, store_rounded
from bslite.kernels.cpu.tiles.split import any_bit, fetch_far, split_pixels, split_scaled_pixels
from bslite.kernels.cpu.tiles.sweep import call_tile_sweep
from bslite.kernels.cpu.tiles.unit import configure, release
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, store, store_int
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

F = reader(SplitConv)
f = np.float32
CELLS, IN_PLACE = Added.CELLS.value, Reads.IN_PLACE.value


@register_jitable
def _zeros(address, size):
    for place in range(0, size, BYTES):
        store(address + place, splat(f(0.0)))


@register_jitable
def _split_band(s, x, plane_number, first_line, lines, depth, band, fetch, apart, scale, shift):
    """Splits ``depth`` channels of the rows that ``lines`` lines read; rows outside the image are zeros.
    Meanwhile weights are fetched from ``fetch`` on, in streams of ``apart`` bytes. ``scale`` and ``shift``:
    those of the first channel, if numbers are scaled.
    """
    row_phases, col_phases, pitch, pixel, plane = s.row_phases, s.col_phases, s.pitch, s.pixel, s.plane
    groups, cols, kind = s.groups, s.cols, 0 if s.reads else s.parts
    x_row, x_col, fetched, fetch_end = s.x_row, s.x_col, s.first_lines if apart else 0, fetch + apart
    above, scaled = s.start + first_line * s.row_step, s.scaled
    how = scale, shift if scaled == 2 else 0, s.least, s.largest
    x += first_line * s.x_line
    seen = splat(f(0.0))
    for deep in range(s.deep_taps):
        number = s.deep_start + plane_number * s.deep_step + deep * s.deep_dilation
        to_deep, of_deep = band + deep * s.slab, x + deep * s.x_deep
        for row in range((lines - 1) * s.row_step + s.filter_rows):
            if row % row_phases >= s.filter_rows:
                continue  # between windows: nobody reads it
            line = to_deep + row % row_phases * col_phases * plane + row // row_phases * pitch * pixel
            inside = 0 <= above + row < s.rows and 0 <= number < s.deep_have
            for phase in range(col_phases):
                count = (cols - phase + col_phases - 1) // col_phases
                if first_line + row == s.lines - 1:
                    count -= s.short  # which only filters of one pixel have
                to = line + phase * plane
                if inside:
                    source, step = of_deep + row * x_row + phase * x_col, col_phases * x_col
                    ahead = fetched if fetch < fetch_end else 0
                    if scaled:
                        seen = split_scaled_pixels(
                            source, step, count, depth, kind, to, pixel, fetch, apart, ahead, seen, how
                        )
                    else:
                        seen = split_pixels(
                            source, step, count, groups, depth, kind, to, pixel, fetch, apart, ahead, seen
                        )
                    fetch += LINE * fetched * count
                else:
                    _zeros(to, count * pixel)
    if any_bit(seen):
        raise_flag(s.flag, 0)


@register_jitable
def _add(sums, chunk, rows):
    """Adds the sums of a chunk to those before it."""
    for place in range(0, rows * ROW, BYTES):
        store(sums + place, load(sums + place) + load(chunk + place))


@register_jitable
def _are_new(s, item, first):
    """Whether a thread whose first item of the step was ``first`` has not met the weights of this one."""
    if s.blocks_outer:
        return item == first or item % (s.images * s.bands) == 0
    return item - first < s.blocks


@step_kernel(SplitConv)
def split_conv(step, bases, item, scratch):
    """Computes one band of output lines by one block of panels of one image."""
    s = F(step, bases)
    image, first_line, last_line, first_panel, last_panel = part_of(s, item)
    lines = last_line - first_line

    number, plane = image // s.planes, image % s.planes
    y = s.y + number * s.y_image + plane * s.y_plane + first_line * s.y_line
    cells = s.cells + number * s.cells_image + plane * s.cells_plane + first_line * s.cells_line
    residual = s.residual + number * s.residual_image + plane * s.residual_plane
    residual += first_line * s.residual_line
    weights, biases = s.weights + number * s.weights_image, s.bias
    y_line, y_col, r_line, r_col = s.y_line, s.y_col, s.residual_line, s.residual_col
    has_cells, cells_line, cells_col = s.has_cells, s.cells_line, s.cells_col
    steps, offsets, pixel, pitch, pixels = s.steps, s.offsets, s.pixel, s.pitch, s.pixels
    group_panels, channels, blocks, parts = s.group_panels, s.group_channels, s.blocks_of_terms, s.parts
    sweep, depth = s.sweep, s.depth
    added = s.added
    step_bytes = s.b_parts * 2 * TILE
    panel_bytes = steps * step_bytes
    padded = (channels + LANES - 1) // LANES * LANES  # biases of a group
    low, high = splat(load_scalar(s.lo_cell)), splat(load_scalar(s.hi_cell))
    short = s.short if last_line == s.lines else 0
    runs, outputs = (lines, pixels) if s.run else (1, (lines - 1) * pitch + pixels - short)
    run_blocks = (outputs + 2 * ROWS - 1) // (2 * ROWS)
    chunk, by_chunks, goes_on, panel_sums = s.chunk, s.by_chunks, s.goes_on, s.panel_sums

    x = s.x + number * s.x_image + plane * s.x_plane
    scale, shift = s.scale + number * s.scale_image, s.shift + number * s.shift_image
    band, mine, held = scratch + HEAD, 1 + image * s.lines + first_line, load_int(scratch + SPLIT)
    if held == 0:
        store_int(scratch + FIRST, item)
    store_int(scratch + SPLIT, mine)
    fetches = s.far or _are_new(s, item, load_int(scratch + FIRST))
    first_weights = weights + first_panel // group_panels * s.group_weight_bytes
    first_weights += first_panel % group_panels * panel_bytes
    most = s.quarters if fetches else 0
    of_first = s.part * step_bytes // STREAMS if fetches else 0  # bytes of each stream
    if s.reads == IN_PLACE:
        band = x + first_line * s.x_line
        for place in range(0, of_first, LINE):
            for stream in range(STREAMS):
                fetch_far(first_weights + stream * of_first + place)
    elif not by_chunks and held != mine:
        _split_band(s, x, plane, first_line, lines, depth, band, first_weights, of_first, scale, shift)
    configure(scratch + CONFIG)
    for turn in range((last_panel - first_panel) * ((steps + chunk - 1) // chunk if by_chunks else 1)):
        begin, panel = 0, first_panel + turn
        stop = steps
        if by_chunks:
            panel = first_panel + turn % (last_panel - first_panel)
            begin = turn // (last_panel - first_panel) * chunk
            stop = min(steps, begin + chunk)
            if panel == first_panel:
                terms = min(chunk * TERMS, depth - begin * TERMS)
                there, on = x + (2 if s.reads else 4) * TERMS * begin, 4 * TERMS * begin
                _split_band(
                    s, there, plane, first_line, lines, terms, band, first_weights, 0 if begin else of_first,
                    scale + on, shift + on,
                )  # fmt: skip
        group, nth = panel // group_panels, panel % group_panels
        panel_weights = weights + group * s.group_weight_bytes + nth * panel_bytes
        here = min(2 * COLS, channels - nth * 2 * COLS)
        channel_bytes = 4 * (group * channels + nth * 2 * COLS)
        residual_bytes = channel_bytes // 2 if added == CELLS else channel_bytes
        bias = biases + 4 * (group * padded + nth * 2 * COLS)
        group_band = band + group * blocks * parts * LINE
        done, start, split_from = begin, begin, begin if by_chunks else 0
        sums_of_panel = s.sums + (panel - first_panel) * panel_sums
        while done < stop:
            end = min(steps, begin + chunk)
            count = min(s.part, end - done)
            begun, add = done > (0 if goes_on else begin), begin > 0 and not goes_on
            b = panel_weights + done * step_bytes
            ahead, apart = b + s.ahead, count * step_bytes // STREAMS
            # Behind the last panel comes the first one's next chunk, or the next item's first panel.
            if by_chunks and panel == last_panel - 1:
                next_chunk = end if end < steps else (last_panel - first_panel) * steps
                ahead = first_weights + (next_chunk + done - start) * step_bytes
            line, col = 0, 0
            fetched = 0
            for nth_block in range(runs * run_blocks):
                first = nth_block % run_blocks * 2 * ROWS
                at_block = group_band + nth_block // run_blocks * s.run + first * pixel
                rows = min(2 * ROWS, outputs - first)
                quarters = min(most, 4 - fetched)
                terms = offsets + 8 * (done - split_from)
                which = 8 * quarters + 4 * begun + 2 * (rows > ROWS) + (here > COLS)
                whole = scratch + sums_of_panel + (nth_block * BLOCK if s.part < steps else 0)
                sums = scratch + s.chunk_sums + nth_block * BLOCK if add else whole
                if done + count == steps and not has_cells:
                    fetch_places(
                        s, rows, line, col, pitch, pixels, y + channel_bytes, residual + residual_bytes
                    )
                call_tile_sweep(sweep, which, scratch + UNIT, at_block, pixel,
                                terms, count, b, sums, ROW, ahead, apart)  # fmt: skip
                ahead += count * step_bytes * quarters // (4 * STREAMS)
                fetched += quarters
                if done + count < end:
                    continue
                if add:
                    _add(whole, sums, rows)
                if end < steps:
                    continue
                row = 0
                while row < rows:
                    width = min(rows - row, pixels - col)
                    if width > 0:
                        at, to = whole + row * ROW, y + line * y_line + col * y_col + channel_bytes
                        r = residual + line * r_line + col * r_col + residual_bytes
                        if has_cells:
                            place = cells + line * cells_line + col * cells_col + channel_bytes // 2
                            store_rounded(s, at, width, here, to, place, r, bias, low, high)
                        else:
                            store_float32(s, at, width, here, to, y_col, r, bias, low, high)
                    else:  # between lines: nobody's outputs
                        width = min(rows - row, pitch - col)
                    row += width
                    col += width
                    if col == pitch:
                        line, col = line + 1, 0
            done += count
            if done == end:
                begin = end
    release()
