"""Convolution and fully connected layers: loops around the batch-reduce GEMM microkernel.

Activations are NHWC with the zeros of the padding physically beside the image, so the filter taps of a line
of outputs are a table of byte offsets and the inner loops have no edge cases; filter rows that lie above or
below the image are left out of the sum (`places_inside`). Weights are packed in panels ``[K/nr][R*S*C][nr]``.
The lines of a volume are those of all its planes; its padding above and below is physical, too, and planes of
the filter outside it are left out. The loops of an item: for each panel, for each chunk of taps small enough
to stay in cache, for each line.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.gemm import Conv, Depthwise
from bslite.kernels.cpu.gemm.items import cut_run, part_of, places_inside
from bslite.kernels.cpu.gemm.sweep import call_depthwise_sweep, call_gemm_sweep, call_widen
from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import FEW, LINE, PREFETCHES
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.rows.rounded import round_pixels
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.bfloat16 import not_finite
from bslite.kernels.cpu.vector.memory import load, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat
from bslite.kernels.cpu.vector.transpose import transpose_only, transpose_square

F = reader(Conv)
f = np.float32


@register_jitable
def _pixels(sweep, first, cut, a, x_col, offsets, used, depth, weights, c, c_col, bias, resume, r, r_col,
            clamp, last, ahead, share, kept, place, place_col, flag):  # fmt: skip
    """The tiles of a line from its pixel ``first`` on. Returns what is to be fetched after them."""
    tiles1, rows1, tiles2, rows2 = cut
    if tiles1:
        call_gemm_sweep(sweep, rows1, tiles1, a + first * x_col, x_col, offsets, used, depth, weights,
                        c + first * c_col, c_col, bias, resume, r + first * r_col, r_col, clamp, last, ahead,
                        share, kept, place + first * place_col, place_col, flag)  # fmt: skip
        ahead += tiles1 * share
    if tiles2:
        first += tiles1 * rows1
        call_gemm_sweep(sweep, rows2, tiles2, a + first * x_col, x_col, offsets, used, depth, weights,
                        c + first * c_col, c_col, bias, resume, r + first * r_col, r_col, clamp, last, ahead,
                        share, kept, place + first * place_col, place_col, flag)  # fmt: skip
        ahead += tiles2 * share
    return ahead


@register_jitable
def _turn(x, x_col, pixels, channels, y, y_channel):
    """Transposes a line of pixels into lines of channels."""
    for first in range(0, pixels, LANES):
        for channel in range(0, channels, LANES):
            source, target = x + first * x_col + 4 * channel, y + channel * y_channel + 4 * first
            rows, cols = min(LANES, pixels - first), min(LANES, channels - channel)
            if rows == LANES and cols == LANES:
                transpose_square(source, x_col, target, y_channel)
            else:
                transpose_only(source, x_col, rows, cols, target, y_channel)


@step_kernel(Conv)
def conv(step, bases, item, scratch):
    """Computes one band of output lines by one block of output-channel panels of one image."""
    s = F(step, bases)
    image, first_line, last_line, first_panel, last_panel = part_of(s, item)

    x_line, y_line, r_line = s.x_line, s.y_line, s.residual_line
    x_col, y_col, r_col = s.x_col, s.y_col, s.residual_col
    x, y = s.x + image * s.x_image, s.y + image * s.y_image
    weights, bias, offsets = s.weights + image * s.weights_image, s.bias, s.offsets
    has_residual = s.has_residual
    residual = s.residual + image * s.residual_image if has_residual else 0

    taps, chunk_taps, depth, across_bytes = s.taps, s.chunk_taps, s.depth, s.across_bytes
    group_panels, group_channels, width, tail_vecs = s.group_panels, s.group_channels, s.width, s.tail_vecs
    register = s.register_bytes
    tiles1, tiles2, rows1, rows2, activation = s.tiles1, s.tiles2, s.rows1, s.rows2, s.activation
    pixels = tiles1 * rows1 + tiles2 * rows2
    tap_entries, filter_cols, most_rows = s.tap_entries, s.filter_cols, s.most_rows
    start, row_step, dilation, rows = s.start, s.row_step, s.row_dilation, s.rows
    row_taps, filter_rows, plane_lines, clip_planes = s.row_taps, s.filter_rows, s.plane_lines, s.clip_planes
    x_plane, y_plane, r_plane = s.x_plane, s.y_plane, s.residual_plane
    strips, strip_lines, strip_total = s.strips, plane_lines // s.strips, s.lines // s.strips
    has_cells, cells_only, cells = s.has_cells, s.cells_only, s.cells + image * s.cells_image
    cells_plane, cells_line, cells_col, by_tile = s.cells_plane, s.cells_line, s.cells_col, s.cells_by_tile
    flag = s.flag
    has_turned, aside = s.has_turned, cells_only or s.has_turned
    turned, turned_channel = s.turned + image * s.turned_image, s.turned_channel
    if aside:  # the lines of one panel; where sums are of one part, the same for all lines
        y = scratch + s.wide_bytes - first_line * y_line
    widen = s.widen
    seen = splat(f(0.0))

    for panel in range(first_panel, last_panel):
        group, nth = panel // group_panels, panel % group_panels
        tail = nth == group_panels - 1
        vecs = tail_vecs if tail else width
        sweep = s.tail_sweep if tail else s.sweep
        channels = min(group_channels - nth * width * LANES, vecs * LANES)
        last_lanes = channels - (vecs - 1) * LANES
        channel_bytes = 4 * (group * group_channels + nth * width * LANES)
        panel_weights = weights + group * s.group_weight_bytes + nth * taps * depth * width * register
        # each group's biases are padded to whole registers
        panel_bias = bias + BYTES * (group * ((group_panels - 1) * width + tail_vecs) + nth * width)
        panel_x = x + group * s.x_group_bytes
        panel_y = y if aside else y + channel_bytes
        tap_bytes = across_bytes if across_bytes else depth * vecs * register
        tap = 0
        while tap < taps:
            count = min(chunk_taps, taps - tap)
            final = tap + count == taps
            clamp = s.lo_cell if final else s.minus_inf_cell
            chunk_weights = panel_weights + tap * tap_bytes
            # While the tiles of this chunk compute, fetch the next chunk (the panels lie one after the
            # other), each tile a part of it; a tile's code fixes how much it fetches: PREFETCHES lines every
            # UNROLL steps.
            ahead = chunk_weights + count * tap_bytes
            fetched = ahead + count * tap_bytes
            share = count * (depth // UNROLL) * PREFETCHES * LINE
            if (last_line - first_line) * (tiles1 + tiles2) <= FEW:
                ahead, share, fetched = 0, 0, 1  # each its own
            read_bytes = tap_bytes
            if widen:
                call_widen(widen, chunk_weights, count * depth * vecs, scratch)
                chunk_weights, read_bytes = scratch, depth * vecs * BYTES
            for number in range(first_line, last_line):
                if strips > 1:
                    strip, nth_line = number // strip_total, number % strip_total
                    plane, line = nth_line // strip_lines, strip * strip_lines + nth_line % strip_lines
                else:
                    plane, line = number // plane_lines, number % plane_lines
                from_tap, used = tap, count
                if row_taps:
                    row = plane if clip_planes else line
                    low, high = places_inside(start + row * row_step, dilation, filter_rows, rows)
                    from_tap = max(tap, low * row_taps)
                    used = min(tap + count, high * row_taps) - from_tap
                    if s.row_entries:
                        first = tap - tap % row_taps
                        low, high = places_inside(
                            s.top + line * s.down, s.down_dilation, s.plane_filter_rows, s.plane_rows
                        )
                        used += from_tap
                        from_tap = max(from_tap, first + low * s.row_entries)
                        used = min(used, first + high * s.row_entries) - from_tap
                    if used <= 0:
                        if tap and not final:
                            continue
                        from_tap, used = tap, 0  # bias, residual and activation still apply
                a = panel_x + plane * x_plane + line * x_line
                c, c_col = panel_y + plane * y_plane + line * y_line, y_col
                kept, place, place_col = 1, 0, 0
                if has_cells and final:
                    place = cells + plane * cells_plane + line * cells_line + channel_bytes // 2
                    place_col = cells_col
                    if cells_only and by_tile:
                        kept = 0
                        if tap == 0:  # no part of a sum is read
                            c, c_col = place, place_col
                line_offsets = offsets + 8 * from_tap
                line_weights = chunk_weights + (from_tap - tap) * read_bytes
                r, rc = 0, 0
                if has_residual and final:
                    r, rc = residual + plane * r_plane + line * r_line + channel_bytes, r_col
                low, high = 0, pixels
                cut = (tiles1, rows1, tiles2, rows2)
                if tap_entries:
                    left = s.left + line * s.line_pixels * s.across
                    left += tap // tap_entries % filter_cols * s.across_dilation
                    low, high = places_inside(left, s.across, pixels if used else 0, s.columns)
                    if low == high:
                        if tap and not final:
                            continue
                        low, high, used = 0, pixels, 0
                    elif low or high < pixels:
                        cut = cut_run(high - low, most_rows)
                        if final or not tap:
                            _pixels(sweep, 0, cut_run(low, most_rows), a, x_col, line_offsets, 0, depth,
                                    line_weights, c, c_col, panel_bias, tap, r, rc, clamp, last_lanes,
                                    ahead, 0, kept, place, place_col, flag)  # fmt: skip
                            _pixels(sweep, high, cut_run(pixels - high, most_rows), a, x_col, line_offsets, 0,
                                    depth, line_weights, c, c_col, panel_bias, tap, r, rc, clamp, last_lanes,
                                    ahead, 0, kept, place, place_col, flag)  # fmt: skip
                ahead = _pixels(sweep, low, cut, a, x_col, line_offsets, used, depth, line_weights, c, c_col,
                                panel_bias, tap, r, rc, clamp, last_lanes, ahead, share, kept, place,
                                place_col, flag)  # fmt: skip
                if ahead >= fetched:  # all of it: from here on, fetch lines that are in cache anyway
                    ahead, share = chunk_weights, 0
                if activation and final:
                    activate(activation, c, pixels, y_col, channels, s.act_a_cell)
                if place and not by_tile:
                    seen = round_pixels(c, pixels, y_col, channels, place, place_col, seen)
                if has_turned:
                    there = turned + plane * s.turned_plane + line * s.turned_line
                    _turn(c, y_col, pixels, channels, there + channel_bytes // 4 * turned_channel,
                          turned_channel)  # fmt: skip
            tap += count
    if not_finite(seen):
        raise_flag(flag, 0)


D = reader(Depthwise)


@register_jitable
def _line_sums(x, pixels, col, channels, y):
    """Sums the pixels of a line from left to right, as an average pool of whole lines does."""
    zero = splat(f(0.0))
    while channels >= 4 * LANES:
        a, b, c, d = zero, zero, zero, zero
        place = x
        for _ in range(pixels):
            a, b = a + load(place), b + load(place + BYTES)
            c, d = c + load(place + 2 * BYTES), d + load(place + 3 * BYTES)
            place += col
        store(y, a)
        store(y + BYTES, b)
        store(y + 2 * BYTES, c)
        store(y + 3 * BYTES, d)
        x, y, channels = x + 4 * BYTES, y + 4 * BYTES, channels - 4 * LANES
    while channels > 0:
        a = zero
        place = x
        for _ in range(pixels):
            a = a + load_some(place, channels)
            place += col
        store_some(y, a, channels)
        x, y, channels = x + BYTES, y + BYTES, channels - LANES


@step_kernel(Depthwise)
def depthwise(step, bases, item, scratch):
    """Computes one band of lines by one block of channels of one image.

    A run of channels goes through all lines before the next run. A run is as wide as L1 can hold the lines
    that a filter reads, so that each line is fetched from further away only once.
    """
    s = D(step, bases)
    bands, blocks = s.bands, s.blocks
    block, rest = item % blocks, item // blocks
    image, band = rest // bands, rest % bands
    first_line = band * s.band_lines
    last_line = min(s.lines, first_line + s.band_lines)
    channels, run = s.channels, s.run
    first = block * s.block_registers
    end = min((channels + LANES - 1) // LANES, first + s.block_registers)
    x_line, x_col, x_row, x_tap, y_line, y_col = s.x_line, s.x_col, s.x_row, s.x_tap, s.y_line, s.y_col
    filter_rows, filter_cols = s.filter_rows, s.filter_cols
    inputs, outputs = s.group_inputs, s.group_outputs
    x_step = BYTES * inputs // outputs
    x, y = s.x + image * s.x_image, s.y + image * s.y_image
    weights, biases, sweep, activation = s.weights, s.bias, s.sweep, s.activation
    tiles1, rows1, tiles2, rows2 = s.tiles1, s.rows1, s.tiles2, s.rows2
    done1 = tiles1 * rows1
    start, row_step, dilation, rows = s.start, s.row_step, s.row_dilation, s.rows
    plane_lines, clip_planes, x_plane, y_plane = s.plane_lines, s.clip_planes, s.x_plane, s.y_plane
    filter_planes, x_deep = s.filter_planes, s.x_deep
    has_sums, sums, sums_line = s.has_sums, s.sums + image * s.sums_image, s.sums_line
    has_cells, cells_only, cells = s.has_cells, s.cells_only, s.cells + image * s.cells_image
    cells_plane, cells_line, cells_col, by_tile = s.cells_plane, s.cells_line, s.cells_col, s.cells_by_tile
    flag, kept, seen = s.flag, 0 if cells_only and by_tile else 1, splat(f(0.0))
    w_row = inputs * filter_cols * BYTES
    w_step = filter_planes * filter_rows * w_row
    while first < end:
        registers = min(run, end - first)
        present = min(channels - first * LANES, registers * LANES)
        last = present - (registers - 1) * LANES
        w = weights + first * w_step
        bias = biases + first * BYTES
        for number in range(first_line, last_line):
            plane, line = number // plane_lines, number % plane_lines
            a = x + plane * x_plane + line * x_line + first * x_step
            c = scratch if cells_only else y + plane * y_plane + line * y_line + first * BYTES
            c_col, place = y_col, cells + plane * cells_plane + line * cells_line + first * BYTES // 2
            if not kept:
                c, c_col = place, cells_col
            planes, used, line_w = filter_planes, filter_rows, w
            if clip_planes:
                low, high = places_inside(start + plane * row_step, dilation, filter_planes, rows)
                planes = high - low
                a += low * x_deep
                line_w += low * filter_rows * w_row
            else:
                low, high = places_inside(start + line * row_step, dilation, filter_rows, rows)
                used = high - low
                a += low * x_row
                line_w += low * w_row
            call_depthwise_sweep(sweep, rows1, tiles1, registers, a, x_col, x_tap, x_row, used,
                                 filter_cols, line_w, w_step, c, c_col, bias, s.lo_cell, last, planes,
                                 x_deep, kept, place, cells_col, flag, x_step, inputs, outputs)  # fmt: skip
            if tiles2:
                call_depthwise_sweep(sweep, rows2, tiles2, registers, a + done1 * x_col, x_col, x_tap, x_row,
                                     used, filter_cols, line_w, w_step, c + done1 * c_col, c_col, bias,
                                     s.lo_cell, last, planes, x_deep, kept, place + done1 * cells_col,
                                     cells_col, flag, x_step, inputs, outputs)  # fmt: skip
            if activation:
                activate(activation, c, done1 + tiles2 * rows2, y_col, present, s.act_a_cell)
            if has_sums:
                at = sums + number * sums_line + first * BYTES
                _line_sums(c, done1 + tiles2 * rows2, y_col, present, at)
            if has_cells and not by_tile:
                seen = round_pixels(c, done1 + tiles2 * rows2, y_col, present, place, cells_col, seen)
        first += registers
    if not_finite(seen):
        raise_flag(flag, 0)
