"""Fourier transforms of signals side by side, one in each lane of the registers."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.fourier import Form, FourierLanes, Numbers
from bslite.kernels.cpu.fourier.butterflies import POINT
from bslite.kernels.cpu.fourier.chirp import chirped
from bslite.kernels.cpu.fourier.halves import of_pairs, to_pairs
from bslite.kernels.cpu.fourier.passes import passes
from bslite.kernels.cpu.rows.rows import after
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import negated
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_some
from bslite.kernels.cpu.vector.parts import load_pairs, store_pairs
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat
from bslite.kernels.cpu.vector.transpose import transpose_only, transpose_part, transpose_square

F = reader(FourierLanes)
f = np.float32
ROWS, PAIRS, SIDE = int(Form.ROWS), int(Form.PAIRS), int(Form.SIDE)
REAL, HALF = int(Numbers.REAL), int(Numbers.HALF)


@register_jitable
def rows_to_lanes(source, source_row, rows, cols, target, target_row):
    """Transposes ``rows`` rows, at most LANES, of ``cols`` cells into as many registers."""
    for start in range(0, cols, LANES):
        count = min(LANES, cols - start)
        at, to = source + 4 * start, target + target_row * start
        if rows == LANES and count == LANES:
            transpose_square(at, source_row, to, target_row)
        else:
            transpose_part(at, source_row, rows, count, to, target_row)


@register_jitable
def lanes_to_rows(source, source_row, cols, rows, target, target_row):
    """Transposes ``cols`` registers into ``rows`` rows, at most LANES, of as many cells."""
    for start in range(0, cols, LANES):
        count = min(LANES, cols - start)
        at, to = source + source_row * start, target + 4 * start
        if rows == LANES and count == LANES:
            transpose_square(at, source_row, to, target_row)
        else:
            transpose_only(at, source_row, count, rows, to, target_row)


@register_jitable
def _read(s, x, left, to, step, count, paired):
    """``count`` points as registers: parts of pairs, or real numbers ``step`` apart."""
    x_by, x_part, form = s.x_by, s.x_part, s.x_form
    if form == ROWS:
        rows = min(left, LANES)
        if paired:
            rows_to_lanes(x, s.x_lane, rows, 2 * count, to, BYTES)
        else:
            rows_to_lanes(x, s.x_lane, rows, count, to, step)
    elif not paired:
        for i in range(count):
            store(to + step * i, load_some(x + x_by * i, left))
    elif form == PAIRS:
        for i in range(count):
            re, im = load_pairs(x + x_by * i, 2 * left)
            store(to + POINT * i, re)
            store(to + POINT * i + BYTES, im)
    else:
        for i in range(count):
            store(to + POINT * i, load_some(x + x_by * i, left))
            store(to + POINT * i + BYTES, load_some(x + x_by * i + x_part, left))


@register_jitable
def _write(s, y, left, at, step, count, real):
    """``count`` points of registers: pairs, or real numbers ``step`` apart."""
    y_by, y_part, form = s.y_by, s.y_part, s.y_form
    if form == ROWS:
        rows = min(left, LANES)
        if real:
            lanes_to_rows(at, step, count, rows, y, s.y_lane)
        else:
            lanes_to_rows(at, BYTES, 2 * count, rows, y, s.y_lane)
    elif real:
        for i in range(count):
            store_some(y + y_by * i, load(at + step * i), left)
    elif form == PAIRS:
        for i in range(count):
            store_pairs(y + y_by * i, load(at + POINT * i), load(at + POINT * i + BYTES), min(left, LANES))
    else:
        for i in range(count):
            store_some(y + y_by * i, load(at + POINT * i), left)
            store_some(y + y_by * i + y_part, load(at + POINT * i + BYTES), left)


@register_jitable
def _tapered(at, step, count, window):
    """Multiplies registers, ``step`` bytes apart, by a number each."""
    for i in range(count):
        store(at + step * i, load(at + step * i) * splat(load_scalar(window + 4 * i)))


@register_jitable
def _zeros(at, stop, by):
    """Zeros in registers ``by`` bytes apart."""
    while at < stop:
        store(at, splat(0.0))
        at += by


@register_jitable
def _whole(at, length, have):
    """Appends, to the first half of the transform of real numbers, the other: its mirror image."""
    for k in range(have, length):
        store(at + POINT * k, load(at + POINT * (length - k)))
        store(at + POINT * k + BYTES, negated(load(at + POINT * (length - k) + BYTES)))


@register_jitable
def _halved(at, length, negative):
    """Leaves out what does not count of the first half of a transform of real numbers, the imaginary parts of
    its ends; and makes it the conjugate of it.
    """
    store(at + BYTES, splat(0.0))
    if length % 2 == 0:
        store(at + POINT * (length // 2) + BYTES, splat(0.0))
    if negative:
        for k in range(1, (length + 1) // 2):
            store(at + POINT * k + BYTES, negated(load(at + POINT * k + BYTES)))


@register_jitable
def _ends(at, core, waves, factor, inverse):
    """`to_pairs` or `of_pairs` of all points, in place, from both ends; of the latter the first is the last,
    too.
    """
    scale = splat(factor)
    for k in range(core // 2 + 1):
        near, end = at + POINT * k, at + POINT * (core - k)
        far = end if k or inverse else near
        w_re, w_im = splat(load_scalar(waves + 8 * k)), splat(load_scalar(waves + 8 * k + 4))
        re, im, far_re, far_im = load(near), load(near + BYTES), load(far), load(far + BYTES)
        if inverse:
            s_re, s_im, t_re, t_im = to_pairs(re, im, far_re, far_im, w_re, w_im, scale)
        else:
            s_re, s_im, t_re, t_im = of_pairs(re, im, far_re, far_im, w_re, w_im, scale)
        store(near, s_re + t_re)
        store(near + BYTES, s_im + t_im)
        if k < core - k:
            store(end, s_re - t_re)
            store(end + BYTES, t_im - s_im)


@register_jitable
def _scaled(at, stop, by, scale):
    """Multiplies registers ``by`` bytes apart."""
    while at < stop:
        store(at, load(at) * splat(scale))
        at += by


@register_jitable
def _negative(at, count):
    """The conjugates of points."""
    for k in range(count):
        store(at + POINT * k + BYTES, negated(load(at + POINT * k + BYTES)))


@register_jitable
def _lane(s, x, y, left, first, second, work):
    """One register's worth of signals."""
    source, core, length, given, inverse = s.source, s.core, s.length, s.given, s.inverse
    scale, made, swap = s.scale, s.made, s.inverse
    in_halves = core < length
    step = BYTES if in_halves and source == REAL else POINT
    _read(s, x, left, first, step, given, source != REAL)
    if s.windowed:
        _tapered(first, step, given, s.window)
        if source != REAL:
            _tapered(first + BYTES, step, given, s.window)
    if source == HALF:
        have = length // 2 + 1
        _zeros(first + POINT * given, first + POINT * have, BYTES)
        _halved(first, length, in_halves and not inverse)
        if in_halves:
            _ends(first, core, s.halves, scale, 1)
            swap = 1
        else:
            _whole(first, length, have)
    elif source == REAL:
        if in_halves:
            swap = 0
        else:
            _zeros(first + BYTES, first + POINT * length, POINT)
        _zeros(first + step * given, first + step * length, step)
    else:
        _zeros(first + POINT * given, first + POINT * length, BYTES)
    if s.padded:
        at = chirped(first, second, core, s.padded, s.radices, s.twiddles, s.chirp, work, swap)
    elif core > 1:
        at = first + BYTES if swap else first
        at = passes(
            at, POINT, -BYTES if swap else BYTES, core, s.radices, s.twiddles, second, first, work, swap
        )
    else:
        at = first
    if in_halves and source == HALF:
        _write(s, y, left, at, BYTES, made, True)
        return
    if in_halves:
        _ends(at, core, s.halves, scale * f(0.5), 0)
        if inverse:
            _negative(at, core + 1)
        _whole(at, made, core + 1)
    elif scale != f(1.0):
        _scaled(at, at + POINT * made, BYTES, scale)
    _write(s, y, left, at, POINT, made, s.real)


@step_kernel(FourierLanes)
def fourier_lanes(step, bases, item, scratch):
    """Block after block of signals, a register's worth at a time."""
    s = F(step, bases)
    n1, n2, block, channels, x_lane, y_lane = s.n1, s.n2, s.block, s.channels, s.x_lane, s.y_lane
    room = POINT * s.room
    first = item * s.item_rows
    i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
    for _ in range(first, min(s.rows, first + s.item_rows)):
        x = s.x + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
        y = s.y + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
        left = min(block, channels - i2 * block)
        while left > 0:
            _lane(s, x, y, left, scratch, scratch + room, scratch + 2 * room)
            x, y, left = x + LANES * x_lane, y + LANES * y_lane, left - LANES
        i0, i1, i2 = after(i0, i1, i2, n1, n2)
