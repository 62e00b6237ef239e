"""Convolution and linear layers of integers: the loops of `conv` around int32 sums, each line finished in L1.

A panel's sums over a line of pixels lie in scratch memory. While they are in L1, they are scaled, rounded,
added to a residual, rounded again and packed, as far as the model has that: no value of more than 16 bits
goes to memory in between. Sums of integers are exact in any order, so all taps are one chunk.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.integer import IntConv, Made, Pairs
from bslite.kernels.cpu.gemm.conv import rows_inside
from bslite.kernels.cpu.gemm.int_tile import call_int_sweep
from bslite.kernels.cpu.gemm.tile import PREFETCHES, UNROLL
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import lane, with_lane
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.pairs import before, load_halves, packed, paired, real_of
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, fma, rint, splat, vmax, vmin

F = reader(IntConv)
SUM, PAIRS = int(Made.SUM), int(Made.PAIRS)
f = np.float32


@register_jitable
def _packed(source, acc_col, y, y_col, pixels, scale, shift, low, high):
    """Whole registers of sums, scaled and rounded, as pairs."""
    scale1, scale2, shift1, shift2 = load(scale), load(scale + BYTES), load(shift), load(shift + BYTES)
    for _ in range(pixels):
        a, b = fma(real_of(load(source)), scale1, shift1), fma(real_of(load(source + BYTES)), scale2, shift2)
        a, b = vmin(high, vmax(a, low)), vmin(high, vmax(b, low))  # of NaN the least
        store(y, packed(a, b))
        source += acc_col
        y += y_col


@register_jitable
def _added(
    source, acc_col, y, y_col, residual, r_col, pixels, scale, shift, low1, high1, own, other, low2, high2
):
    """The same, with pairs of a residual added and rounded again."""
    scale1, scale2, shift1, shift2 = load(scale), load(scale + BYTES), load(shift), load(shift + BYTES)
    for _ in range(pixels):
        a, b = fma(real_of(load(source)), scale1, shift1), fma(real_of(load(source + BYTES)), scale2, shift2)
        a, b = rint(vmin(high1, vmax(low1, a))), rint(vmin(high1, vmax(low1, b)))
        a = fma(a, own, load_halves(residual) * other)
        b = fma(b, own, load_halves(residual + BYTES // 2) * other)
        a, b = vmin(high2, vmax(a, low2)), vmin(high2, vmax(b, low2))
        store(y, packed(a, b))
        source += acc_col
        y += y_col
        residual += r_col


@register_jitable
def _rounded(t, low, high, rounds):
    t = vmin(high, vmax(low, t))
    if rounds:
        t = rint(t)
    return t


@register_jitable
def _finish(s, acc, y, residual, pixels, channels, scale, shift):
    """Makes a line of results of a line of sums: ``pixels`` by ``channels``."""
    made, acc_col, y_col, r_col, has_residual = s.made, s.acc_col, s.y_col, s.residual_col, s.has_residual
    rounds1, rounds2 = s.rounds1, s.rounds2
    low1, high1, low2, high2 = splat(s.low1), splat(s.high1), splat(s.low2), splat(s.high2)
    own, other = splat(s.own), splat(s.other)
    for c in range(0, channels, 2 * LANES):
        left, at = channels - c, 4 * c
        source, target, second = acc + at, y + at, residual + at // 2
        if made == PAIRS:
            target = y + at // 2
            if left >= 2 * LANES:
                if has_residual:
                    _added(source, acc_col, target, y_col, second, r_col, pixels, scale + at, shift + at,
                           low1, high1, own, other, low2, high2)  # fmt: skip
                    continue
                if not rounds2:
                    _packed(source, acc_col, target, y_col, pixels, scale + at, shift + at, low1, high1)
                    continue
        scale1, scale2 = load(scale + at), load(scale + at + BYTES)
        shift1, shift2 = load(shift + at), load(shift + at + BYTES)
        for _ in range(pixels):
            a, b = load(source), load(source + BYTES)
            if made != SUM:
                a, b = fma(real_of(a), scale1, shift1), fma(real_of(b), scale2, shift2)
                a, b = _rounded(a, low1, high1, rounds1), _rounded(b, low1, high1, rounds1)
                if has_residual:
                    a = fma(a, own, load_halves(second) * other)
                    b = fma(b, own, load_halves(second + BYTES // 2) * other)
                elif rounds2:
                    a, b = a * own, b * own
                a, b = _rounded(a, low2, high2, rounds2), _rounded(b, low2, high2, rounds2)
            if made == PAIRS:
                least = low2 if rounds2 else low1
                a, b = before(vmax(a, least), left), before(vmax(b, least), left - LANES)
                store_some(target, packed(a, b), (left + 1) // 2)
            else:
                store_some(target, a, left)
                store_some(target + BYTES, b, left - LANES)
            source += acc_col
            target += y_col
            second += r_col


@step_kernel(IntConv)
def int_conv(step, bases, item, scratch):
    """Computes one band of output lines by one block of output-channel panels of one image."""
    s = F(step, bases)
    images, bands, blocks = s.images, s.bands, s.blocks
    if s.blocks_outer:
        block, rest = item // (images * bands), item % (images * bands)
    else:
        block, rest = item % blocks, item // blocks
    image, band = rest // bands, rest % bands
    first_line = band * s.band_lines
    last_line = min(s.lines, first_line + s.band_lines)
    first_panel = block * s.block_panels
    last_panel = min(s.panels, first_panel + s.block_panels)
    made, has_residual = s.made, s.has_residual
    channel_bytes = 2 if made == PAIRS else 4

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
    row_taps, filter_rows, plane_lines, clip_planes = s.row_taps, s.filter_rows, s.plane_lines, s.clip_planes
    x_plane, y_plane, r_plane = s.x_plane, s.y_plane, s.residual_plane

    for panel in range(first_panel, last_panel):
        group, place = panel // group_panels, panel % group_panels
        tail = place == group_panels - 1
        vecs = tail_vecs if tail else width
        sweep = s.tail_sweep if tail else s.sweep
        channels = min(group_channels - place * width * LANES, vecs * LANES)
        y_at = channel_bytes * (group * group_channels + place * width * LANES)
        r_at = 2 * (group * group_channels + place * width * LANES)
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
        # as in `conv`: while the tiles of this panel compute, the next one is fetched
        ahead = panel_weights + taps * depth * vecs * BYTES
        fetched = ahead + taps * depth * vecs * BYTES
        share = taps * (depth // UNROLL) * PREFETCHES * 64
        for number in range(first_line, last_line):
            plane, line = number // plane_lines, number % plane_lines
            first, used = 0, taps
            if row_taps:
                row = plane if clip_planes else line
                low, high = rows_inside(start + row * row_step, dilation, filter_rows, rows)
                first, used = low * row_taps, (high - low) * row_taps
            a = panel_x + plane * x_plane + line * x_line
            line_weights = panel_weights + first * depth * vecs * BYTES
            line_offsets = offsets + 8 * first
            call_int_sweep(sweep, rows1, tiles1, a, x_col, line_offsets, used, depth, line_weights, scratch,
                           acc_col, offset + own, ahead, share)  # fmt: skip
            ahead += tiles1 * share
            if tiles2:
                rest = scratch + done1 * acc_col
                call_int_sweep(sweep, rows2, tiles2, a + done1 * x_col, x_col, line_offsets, used, depth,
                               line_weights, rest, acc_col, offset + own, ahead, share)  # fmt: skip
                ahead += tiles2 * share
            if ahead >= fetched:  # all of it: from here on, fetch lines that are in cache anyway
                ahead, share = panel_weights, 0
            c = y + plane * y_plane + line * y_line + y_at
            r = 0
            if has_residual:
                r = residual + plane * r_plane + line * r_line + r_at
            _finish(s, scratch, c, r, pixels, channels, by, shift + own)


P = reader(Pairs)


@step_kernel(Pairs)
def pairs(step, bases, item, scratch):
    """Rounds rows of numbers to int16 and puts two into each cell."""
    s = P(step, bases)
    n1, n2, groups, channels, scaled = s.n1, s.n2, s.groups, s.channels, s.scaled
    x0, x1, x2, y0, y1, y2 = s.x0, s.x1, s.x2, s.y0, s.y1, s.y2
    source, target = s.source, s.target
    scale, inverse, low, high = f(1.0), f(1.0), f(-32768.0), f(32767.0)
    if scaled:
        scale, zero = load_scalar(s.scale), load_scalar(s.zero)
        if zero != zero:  # bounds that are NaN would be passed over
            scale = zero
        inverse, low, high = f(1.0) / scale, -zero, f(255.0) - zero
    scales, inverses, lows, highs = splat(scale), splat(inverse), splat(low), splat(high)
    cells = (channels + 1) // 2
    first = item * s.item_rows
    for row in range(first, min(s.rows, first + s.item_rows)):
        i0, i1, i2 = row // (n1 * n2), row // n2 % n1, row % n2
        x, y = source + i0 * x0 + i1 * x1 + i2 * x2, target + i0 * y0 + i1 * y1 + i2 * y2
        for _ in range(groups):
            if channels < LANES:  # cell by cell: a few masked stores take longer
                for c in range(0, channels, 2):
                    a = splat(load_scalar(x + 4 * c))
                    if c + 1 < channels:
                        a = with_lane(a, 1, load_scalar(x + 4 * c + 4))
                    if scaled:
                        a = vmin(highs, vmax(lows, rint(divide(a, scales, inverses))))
                    if c + 1 == channels:
                        a = before(a, 1)
                    store_scalar(y + 2 * c, lane(paired(a, a), 0))
                x += 4 * channels
                y += 4 * cells
                continue
            for c in range(0, channels, 2 * LANES):
                a, b = load_some(x + 4 * c, channels - c), load_some(x + 4 * c + BYTES, channels - c - LANES)
                if scaled:
                    a, b = divide(a, scales, inverses), divide(b, scales, inverses)
                    a, b = vmin(highs, vmax(lows, rint(a))), vmin(highs, vmax(lows, rint(b)))
                    if channels % 2:
                        a, b = before(a, channels - c), before(b, channels - c - LANES)
                store_some(y + 2 * c, paired(a, b), cells - c // 2)
            x += 4 * channels
            y += 4 * cells
