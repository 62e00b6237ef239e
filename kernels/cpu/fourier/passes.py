"""Transforms of many points, of as many signals as a register has lanes: passes of small transforms.

Stockham's order: a pass of radix r reads ``x[q + s (p + m k)]`` for k < r, and writes the transform, times
twiddle factors, to ``y[q + s (r p + j)]``; s is the product of the radices before it, m of those behind it.
What comes out is in order, in the other of two buffers.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.fourier import RADICES
from bslite.kernels.cpu.fourier.butterflies import POINT, butterfly
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, store
from bslite.kernels.cpu.vector.simd import BYTES, fma, splat


def _pass_of(radix):
    """A pass of one radix: ``(x, x_by, x_im, y, y_im, m, s, twiddles)``."""
    plain, twiddled = butterfly(radix, False), butterfly(radix, True)

    @register_jitable
    def one(x, x_by, x_im, y, y_im, m, s, twiddles):
        apart, wide = x_by * s * m, POINT * s
        for q in range(s):
            plain(x + POINT * q, apart, x_im, y + POINT * q, wide, y_im, 0)
        for p in range(1, m):
            source, target = x + x_by * s * p, y + wide * radix * p
            for q in range(s):
                twiddled(source + POINT * q, apart, x_im, target + POINT * q, wide, y_im, twiddles)
            twiddles += 8 * (radix - 1)

    return one


two, three, four, five, seven, eight = map(_pass_of, RADICES)


@register_jitable
def _prime(radix, x, x_by, x_im, y, y_im, m, s, twiddles, waves, work):
    """A pass of any odd radix, by loops. ``waves``: cosine and sine of each part of a turn. ``work``: room
    for ``radix`` points.
    """
    apart, wide, half = x_by * s * m, POINT * s, radix // 2
    for p in range(m):
        for q in range(s):
            source, target = x + x_by * s * p + POINT * q, y + wide * radix * p + POINT * q
            first_re, first_im = load(source), load(source + x_im)
            sum_re, sum_im = first_re, first_im
            for k in range(1, half + 1):
                low, high, at = source + k * apart, source + (radix - k) * apart, work + 2 * POINT * (k - 1)
                a_re, a_im, b_re, b_im = load(low), load(low + x_im), load(high), load(high + x_im)
                sum_re, sum_im = sum_re + (a_re + b_re), sum_im + (a_im + b_im)
                store(at, a_re + b_re)
                store(at + BYTES, a_im + b_im)
                store(at + 2 * BYTES, a_re - b_re)
                store(at + 3 * BYTES, a_im - b_im)
            store(target, sum_re)
            store(target + y_im, sum_im)
            for j in range(1, half + 1):
                re, im = first_re, first_im
                cross_re, cross_im = splat(0.0), splat(0.0)
                part, at = 0, work
                for _ in range(half):
                    part += j
                    if part >= radix:
                        part -= radix
                    cos, sin = splat(load_scalar(waves + 8 * part)), splat(load_scalar(waves + 8 * part + 4))
                    re, im = fma(load(at), cos, re), fma(load(at + BYTES), cos, im)
                    cross_re = fma(load(at + 2 * BYTES), sin, cross_re)
                    cross_im = fma(load(at + 3 * BYTES), sin, cross_im)
                    at += 2 * POINT
                _put(target + wide * j, y_im, re + cross_im, im - cross_re, p, twiddles + 8 * (j - 1))
                j = radix - j
                _put(target + wide * j, y_im, re - cross_im, im + cross_re, p, twiddles + 8 * (j - 1))
        twiddles += 8 * (radix - 1) * min(p, 1)


@register_jitable
def _put(y, y_im, re, im, p, turn):
    """Stores a point, times its twiddle factor but for the first p."""
    if p:
        w_re, w_im = splat(load_scalar(turn)), splat(load_scalar(turn + 4))
        re, im = re * w_re - im * w_im, fma(re, w_im, im * w_re)
    store(y, re)
    store(y + y_im, im)


@register_jitable
def passes(x, x_by, x_im, points, radices, twiddles, first, second, work, swap):
    """The address of the transform of ``points`` points at ``x``: x itself where there are no passes, else
    ``first`` or ``second``, buffers of as many points. ``x_by``, ``x_im``: as of a `butterfly`.

    With the parts exchanged, of x by the caller and of the result where ``swap``, it is the inverse.
    """
    s, m = 1, points
    radix = load_int(radices)
    while radix:
        radices += 8
        following = load_int(radices)
        m //= radix
        y, y_im = first, BYTES
        if swap and following == 0:
            y, y_im = first + BYTES, -BYTES
        if radix == 8:
            eight(x, x_by, x_im, y, y_im, m, s, twiddles)
        elif radix == 4:
            four(x, x_by, x_im, y, y_im, m, s, twiddles)
        elif radix == 2:
            two(x, x_by, x_im, y, y_im, m, s, twiddles)
        elif radix == 3:
            three(x, x_by, x_im, y, y_im, m, s, twiddles)
        elif radix == 5:
            five(x, x_by, x_im, y, y_im, m, s, twiddles)
        elif radix == 7:
            seven(x, x_by, x_im, y, y_im, m, s, twiddles)
        else:
            waves = twiddles
            twiddles += 8 * radix
            _prime(radix, x, x_by, x_im, y, y_im, m, s, twiddles, waves, work)
        twiddles += 8 * (radix - 1) * (m - 1)
        s *= radix
        x, x_by, x_im = first, POINT, BYTES
        first, second = second, first
        radix = following
    return x
