"""Fourier transforms of long rows, each as a matrix whose columns are the lanes of the registers."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.fourier import FourierRows, Numbers
from bslite.kernels.cpu.fourier.butterflies import POINT
from bslite.kernels.cpu.fourier.halves import of_pairs, to_pairs
from bslite.kernels.cpu.fourier.passes import passes
from bslite.kernels.cpu.rows.rows import after
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import negated
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.parts import backwards, load_pairs, store_pairs
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat
from bslite.kernels.cpu.vector.transpose import transpose_square

F = reader(FourierRows)
f = np.float32
REAL, HALF = int(Numbers.REAL), int(Numbers.HALF)


@register_jitable
def _zeros(at, im, start, stop):
    """Zeros from the register that ``start`` is in, or begins, to ``stop``."""
    for k in range(-(-start // LANES) * LANES, stop, LANES):
        store(at + 4 * k, splat(0.0))
        store(at + im + 4 * k, splat(0.0))


@register_jitable
def _from_pairs(x, count, at, im):
    """``count`` numbers, pairs, as a plane of first ones and one of second ones."""
    for k in range(0, count, 2 * LANES):
        re, parts = load_pairs(x + 4 * k, count - k)
        store(at + 2 * k, re)
        store(at + im + 2 * k, parts)


@register_jitable
def _tapered(at, im, count, window):
    """Multiplies the points of both planes by a number each."""
    for k in range(0, count, LANES):
        taper = load_some(window + 4 * k, count - k)
        store(at + 4 * k, load(at + 4 * k) * taper)
        store(at + im + 4 * k, load(at + im + 4 * k) * taper)


@register_jitable
def _whole(at, im, length, have):
    """Appends, to the first half of the transform of real numbers, the other: its mirror image."""
    for k in range(have, length, LANES):
        far = at + 4 * (length - k - LANES + 1)
        re, parts = backwards(load(far), load(far)), backwards(load(far + im), load(far + im))
        store(at + 4 * k, re)
        store(at + im + 4 * k, negated(parts))


@register_jitable
def _halved(at, im, length, negative):
    """As of lanes: the imaginary parts of the ends do not count; ``negative``: the conjugate."""
    store_scalar(at + im, f(0.0))
    if length % 2 == 0:
        store_scalar(at + im + 4 * (length // 2), f(0.0))
    if negative:
        _negative(at, im, length // 2 + 1)


@register_jitable
def _negative(at, im, count):
    """The conjugates of points, and of those that follow in the same register."""
    for k in range(0, count, LANES):
        store(at + im + 4 * k, negated(load(at + im + 4 * k)))


@register_jitable
def _ends(at, im, to, core, waves, inverse):
    """`to_pairs` or `of_pairs` of the points 0 to ``core`` at ``at``, to ``to``; of the latter the caller has
    written the first once more as the last.
    """
    sines = waves + 4 * (-(-(core + 1) // LANES) * LANES)
    for k in range(0, core + 1, LANES):
        far = at + 4 * (core - k - LANES + 1)
        far_re, far_im = backwards(load(far), load(far)), backwards(load(far + im), load(far + im))
        re, parts = load(at + 4 * k), load(at + im + 4 * k)
        w_re, w_im = load(waves + 4 * k), load(sines + 4 * k)
        if inverse:
            s_re, s_im, t_re, t_im = to_pairs(re, parts, far_re, far_im, w_re, w_im, splat(1.0))
        else:
            s_re, s_im, t_re, t_im = of_pairs(re, parts, far_re, far_im, w_re, w_im, splat(0.5))
        store(to + 4 * k, s_re + t_re)
        store(to + im + 4 * k, s_im + t_im)


@register_jitable
def _planes(s, x, first, second, im, in_halves):
    """The core's points of a row as two planes, and where they are."""
    source, length, given = s.source, s.length, s.given
    if source == REAL:
        for k in range(0, given, LANES):
            store(first + 4 * k, load_some(x + 4 * k, given - k))
            store(first + im + 4 * k, splat(0.0))
    else:
        _from_pairs(x, 2 * given, first, im)
    if s.windowed:
        _tapered(first, im, given, s.window)
    if source != HALF:
        _zeros(first, im, given, length)
        return first
    _zeros(first, im, given, length // 2 + 1)
    _halved(first, im, length, in_halves and not s.inverse)
    if in_halves:
        _ends(first, im, second, s.core, s.halves, 1)
        return second
    _whole(first, im, length, length // 2 + 1)
    return first


@register_jitable
def _columns(s, x, to, column, swap):
    """Points of a row of pairs, one of each row of the matrix from ``column`` on, as registers."""
    low, windowed, window = s.low, s.windowed, s.window
    numbers = s.given if s.source == REAL else 2 * s.given
    for j in range(s.high):
        start = 2 * (low * j + column)  # what is missing behind the end is zeros
        count = min(2 * (low - column), numbers - start)
        re, im = load_pairs(x + 4 * start, count)
        if windowed:
            by_re, by_im = load_pairs(window + 4 * start, count)
            re, im = re * by_re, im * by_im
        if swap:
            re, im = im, re
        store(to + POINT * j, re)
        store(to + POINT * j + BYTES, im)


@register_jitable
def _results(s, y, at, column):
    """Stores points of the transform, one of each row from ``column`` on."""
    high, made, real = s.high, s.made, s.real
    pairs = s.core if s.source == HALF and s.core < s.length else made
    for m in range(s.low):
        place = high * m + column
        here = at + POINT * m
        count = min(high - column, pairs - place)
        if real and pairs == made:
            store_some(y + 4 * place, load(here), count)
        else:
            store_pairs(y + 8 * place, load(here), load(here + BYTES), min(LANES, count))


@register_jitable
def _matrix(s, x, x_im, y, y_im, swap, columns, first, second, work):
    """The transform of the core's points at ``x`` to ``y``; ``columns``: room for the matrix. Points are
    planes, the imaginary ones ``x_im`` and ``y_im`` behind the others, or, where that is 0, a row's pairs.
    """
    high, low = s.high, s.low
    across = -(-high // LANES)  # registers
    between = s.between
    for g in range(-(-low // LANES)):
        at, by, im = x + BYTES * g, 4 * low, x_im
        if x_im == 0:
            _columns(s, x, second, LANES * g, swap)
            at, by, im = second, POINT, BYTES
        elif swap:
            at, im = at + x_im, -x_im
        made = passes(at, by, im, high, s.radices, s.twiddles, first, second, work, 0)
        for j in range(high):
            here = made + POINT * j
            re, parts, w_re, w_im = load(here), load(here + BYTES), load(between), load(between + BYTES)
            store(here, re * w_re - parts * w_im)
            store(here + BYTES, fma(re, w_im, parts * w_re))
            between += POINT
        target = columns + POINT * across * LANES * g
        for j in range(across):
            here = made + POINT * LANES * j
            transpose_square(here, POINT, target + POINT * j, POINT * across)
            transpose_square(here + BYTES, POINT, target + POINT * j + BYTES, POINT * across)
    for g in range(across):
        at = columns + POINT * g
        radices, twiddles = s.low_radices, s.low_twiddles
        made = passes(at, POINT * across, BYTES, low, radices, twiddles, first, second, work, swap)
        if y_im == 0:
            _results(s, y, made, LANES * g)
            continue
        left = high - LANES * g
        for m in range(low):
            here = y + 4 * (high * m) + BYTES * g
            store_some(here, load(made + POINT * m), left)
            store_some(here + y_im, load(made + POINT * m + BYTES), left)


@register_jitable
def _row(s, x, y, scratch):
    """One row."""
    core, length, made, inverse = s.core, s.length, s.made, s.inverse
    high, low, room, source = s.high, s.low, s.room, s.source
    in_halves = core < length
    plane = 4 * (LANES + -(-(length + 1) // LANES) * LANES + LANES)  # with room at both ends
    first, second = scratch + BYTES, scratch + 2 * plane + BYTES
    columns = scratch + 4 * plane
    buffers = columns + POINT * -(-high // LANES) * -(-low // LANES) * LANES
    swap = inverse
    if in_halves:
        swap = 1 if source == HALF else 0
    at, im, to, to_im = x, 0, y, 0
    if source == HALF or (source == REAL and not in_halves) or (s.windowed and source != REAL):
        at, im = _planes(s, x, first, second, plane, in_halves), plane
    if source == REAL and in_halves:
        to, to_im = second, plane
    _matrix(s, at, im, to, to_im, swap, columns, buffers, buffers + POINT * room, buffers + 2 * POINT * room)
    if to == y:
        return
    store_scalar(to + 4 * core, load_scalar(to))
    store_scalar(to + plane + 4 * core, load_scalar(to + plane))
    _ends(to, plane, first, core, s.halves, 0)
    if inverse:
        _negative(first, plane, core + 1)
    _whole(first, plane, made, core + 1)
    for k in range(0, made, LANES):
        store_pairs(y + 8 * k, load(first + 4 * k), load(first + plane + 4 * k), min(LANES, made - k))


@step_kernel(FourierRows)
def fourier_rows(step, bases, item, scratch):
    """Row after row."""
    s = F(step, bases)
    n1, n2 = s.n1, s.n2
    first = item * s.item_rows
    i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
    for _ in range(first, min(s.rows, first + s.item_rows)):
        x = s.x + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
        y = s.y + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
        _row(s, x, y, scratch)
        i0, i1, i2 = after(i0, i1, i2, n1, n2)
