"""Convolution and linear layers of integers: the loops of `conv` around int32 sums, each line finished in L1.

A panel's sums over a line of pixels lie in scratch memory. While they are in L1, they are scaled, rounded,
added to a residual, rounded again and packed, as far as the model has that (`int_finish`): no value of more
than 16 bits goes to memory in between. Sums of integers are exact in any order, so all taps are one chunk;
where two products of bytes do not fit 16 bits, the weights are parts whose products do, and the extra parts
are added in a second sum over their cells.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.integer import IntConv, Made
from bslite.kernels.cpu.gemm.int_finish import finish
from bslite.kernels.cpu.gemm.int_tile import call_int_sweep
from bslite.kernels.cpu.gemm.items import part_of, places_inside
from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import FEW, LINE, PREFETCHES
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, store, store_int
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

F = reader(IntConv)
PAIRS, QUADS = int(Made.PAIRS), int(Made.QUADS)


@register_jitable
def _find(cells, count, offsets, depth, found):
    """Writes the offset of each of a list of cells."""
    for i in range(count):
        cell = load_int(cells + 8 * i)
        store_int(found + 8 * i, load_int(offsets + 8 * (cell // depth)) + 4 * (cell % depth))


@step_kernel(IntConv)
def int_conv(step, bases, item, scratch):
    """Computes one band of output lines by one block of output-channel panels of one image."""
    s = F(step, bases)
    image, first_line, last_line, first_panel, last_panel = part_of(s, item)
    made, has_residual = s.made, s.has_residual
    channel_bytes = 2 if made == PAIRS else 1 if made == QUADS else 4
    residual_bytes = 1 if s.adds_quads else 2

    x_line, y_line, r_line, x_col, acc_col = s.x_line, s.y_line, s.residual_line, s.x_col, s.acc_col
    x, y, residual = s.x + image * s.x_image, s.y + image * s.y_image, s.residual + image * s.residual_image
    weights, offset, scale, shift, offsets = s.weights, s.offset, s.scale, s.shift, s.offsets
    scaled = scratch + s.scaled
    taps, depth, width, tail_vecs = s.taps, s.depth, s.width, s.tail_vecs
    group_panels, group_channels = s.group_panels, s.group_channels
    tiles1, tiles2, rows1, rows2 = s.tiles1, s.tiles2, s.rows1, s.rows2
    done1 = tiles1 * rows1
    pixels = done1 + tiles2 * rows2
    start, row_step, dilation, rows = s.start, s.row_step, s.row_dilation, s.rows
    extras, extra_rows = s.extras, s.extra_rows
    cells, found = extras + 8 * s.panels * (extra_rows + 2), scratch + s.extra_at
    row_taps, filter_rows, plane_lines, clip_planes = s.row_taps, s.filter_rows, s.plane_lines, s.clip_planes
    x_plane, y_plane, r_plane = s.x_plane, s.y_plane, s.residual_plane

    for panel in range(first_panel, last_panel):
        group, place = panel // group_panels, panel % group_panels
        tail = place == group_panels - 1
        vecs = tail_vecs if tail else width
        sweep = s.tail_sweep if tail else s.sweep
        channels = min(group_channels - place * width * LANES, vecs * LANES)
        y_at = channel_bytes * (group * group_channels + place * width * LANES)
        r_at = residual_bytes * (group * group_channels + place * width * LANES)
        panel_weights = weights + group * s.group_weight_bytes + place * taps * depth * width * BYTES
        # each group's numbers per channel are padded to whole registers
        own = BYTES * (group * ((group_panels - 1) * width + tail_vecs) + place * width)
        by = scale + own
        if s.has_factor:
            factor = splat(load_scalar(s.factor))
            for v in range(vecs):
                store(scaled + v * BYTES, load(by + v * BYTES) * factor)
            by = scaled
        panel_x = x + group * s.x_group_bytes
        index = extras + 8 * panel * (extra_rows + 2)
        extra_first, extra_weights = 0, extras
        if extra_rows:
            extra_first, extra_weights = load_int(index), extras + load_int(index + 8 * (extra_rows + 1))
            _find(
                cells + 8 * extra_first, load_int(index + 8 * extra_rows) - extra_first, offsets, depth, found
            )
        # as in `conv`: while the tiles of this panel compute, the next one is fetched
        ahead = panel_weights + taps * depth * vecs * BYTES
        fetched = ahead + taps * depth * vecs * BYTES
        share = taps * (depth // UNROLL) * PREFETCHES * LINE
        if (last_line - first_line) * (tiles1 + tiles2) <= FEW:
            ahead, share, fetched = 0, 0, 1  # each its own
        for number in range(first_line, last_line):
            plane, line = number // plane_lines, number % plane_lines
            first, used, low, high = 0, taps, 0, extra_rows
            if row_taps:
                row = plane if clip_planes else line
                low, high = places_inside(start + row * row_step, dilation, filter_rows, rows)
                first, used = low * row_taps, (high - low) * row_taps
            a = panel_x + plane * x_plane + line * x_line
            line_weights = panel_weights + first * depth * vecs * BYTES
            line_offsets = offsets + 8 * first
            call_int_sweep(sweep, rows1, tiles1, a, x_col, line_offsets, used, depth, line_weights, scratch,
                           acc_col, offset + own, 0, ahead, share)  # fmt: skip
            ahead += tiles1 * share
            if tiles2:
                rest = scratch + done1 * acc_col
                call_int_sweep(sweep, rows2, tiles2, a + done1 * x_col, x_col, line_offsets, used, depth,
                               line_weights, rest, acc_col, offset + own, 0, ahead, share)  # fmt: skip
                ahead += tiles2 * share
            if extra_rows:
                extra, end = load_int(index + 8 * low), load_int(index + 8 * high)
                if extra < end:
                    line_offsets = found + 8 * (extra - extra_first)
                    line_weights = extra_weights + (extra - extra_first) * vecs * BYTES
                    call_int_sweep(sweep, rows1, tiles1, a, x_col, line_offsets, end - extra, 1, line_weights,
                                   scratch, acc_col, offset, 1, panel_weights, 0)  # fmt: skip
                    if tiles2:
                        rest = scratch + done1 * acc_col
                        call_int_sweep(sweep, rows2, tiles2, a + done1 * x_col, x_col, line_offsets,
                                       end - extra, 1, line_weights, rest, acc_col, offset, 1, panel_weights,
                                       0)  # fmt: skip
            if ahead >= fetched:  # all of it: from here on, fetch lines that are in cache anyway
                ahead, share = panel_weights, 0
            c = y + plane * y_plane + line * y_line + y_at
            r = 0
            if has_residual:
                r = residual + plane * r_plane + line * r_line + r_at
            finish(s, scratch, c, r, pixels, channels, by, shift + own)
