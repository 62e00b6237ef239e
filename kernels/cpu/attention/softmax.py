"""The softmax of scores as they come, block of keys by block of keys, rows of a tile at a time.

Each pass takes all rows of a tile before the next pass begins. Steps along one row wait for each other (its
largest score, the exponentials, their sum); those of different rows do not, and fill the processor meanwhile.

A NaN among the scores is no largest one. Its exponential is NaN, and so are the row's sum and answer.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.attention import Mask
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.vector.across import hmax_of_numbers, hsum
from bslite.kernels.cpu.vector.lanes import blocked_where_zero
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, select_lt, splat, vmax
from bslite.kernels.cpu.vector.wide import first_of

ADDED, ALLOWED = int(Mask.ADDED), int(Mask.ALLOWED)
f = np.float32
LOWEST = f(-np.inf)
LOG2E = f(math.log2(math.e))


@register_jitable
def _masked(x, scales, mask, left, kind):
    """A register of scores, scaled and masked by the first ``left`` lanes at ``mask``."""
    if kind == ADDED:
        return fma(x, scales, load_some(mask, left))
    x = x * scales
    if kind == ALLOWED:
        x = x + blocked_where_zero(load_some(mask, left))
    return x


@register_jitable
def _scaled(scores, mask, count, seen, kind, scale):
    """Scales and masks a row of scores in place; returns the largest. ``seen`` keys are not ahead of it."""
    scales, most = splat(scale), splat(LOWEST)
    whole = max(0, min(count, seen)) // LANES * LANES
    for c in range(0, whole, LANES):
        x = _masked(load(scores + 4 * c), scales, mask + 4 * c, LANES, kind)
        store(scores + 4 * c, x)
        most = vmax(x, most)
    for c in range(whole, count, LANES):
        left = count - c
        x = _masked(load(scores + 4 * c), scales, mask + 4 * c, left, kind)
        if seen - c < LANES:  # like adding a mask of -inf: NaN and +inf give NaN
            x = first_of(x, x + splat(LOWEST), max(0, seen - c))
        if left < LANES:
            x = first_of(x, splat(LOWEST), left)
        store(scores + 4 * c, x)
        most = vmax(x, most)
    return hmax_of_numbers(most)


@register_jitable
def _largest(scores, count):
    """The largest score of a row; writes -inf into the lanes beyond it."""
    most = splat(LOWEST)
    whole = count // LANES * LANES
    for c in range(0, whole, LANES):
        most = vmax(load(scores + 4 * c), most)
    if whole < count:
        x = first_of(load(scores + 4 * whole), splat(LOWEST), count - whole)
        store(scores + 4 * whole, x)
        most = vmax(x, most)
    return hmax_of_numbers(most)


@register_jitable
def _exponentials(scores, count, scale, shift):
    """Replaces a row by ``2**((scores - shift) * scale)``, no exponent above 0, and returns the sum."""
    scales, shifts, acc = splat(scale), splat(shift), splat(f(0.0))
    for c in range(0, count, LANES):  # beyond the row are -infs, which become zeros
        e = vecmath.exp2_negative((load(scores + 4 * c) - shifts) * scales)
        store(scores + 4 * c, e)
        acc = acc + e
    return hsum(acc)


@register_jitable
def times(y, length, factor):
    """Multiplies a row by a number, in place."""
    factors = splat(factor)
    for c in range(0, length, LANES):
        store_some(y + 4 * c, load_some(y + 4 * c, length - c) * factors, length - c)


@register_jitable
def drop_out(s, scores, noise, rows, row, key, count):
    """Multiplies exponentials, or gradients by weights, by noise."""
    noise_row = s.noise_row
    noise += row * noise_row + 4 * key
    for _ in range(rows):
        for c in range(0, count, LANES):
            store(scores + 4 * c, load(scores + 4 * c) * load_some(noise + 4 * c, count - c))
        scores += s.score_row
        noise += noise_row


@register_jitable
def no_keys(s, scratch, rows):
    """The statistics of rows that no key has come to."""
    for r in range(0, 4 * rows, BYTES):
        store(scratch + s.largest + r, splat(LOWEST))
        store(scratch + s.totals + r, splat(f(0.0)))


@register_jitable
def _faded(largest, totals, fades, rows, rest):
    """Updates statistics to the largest scores of a block, which ``fades`` holds; those become the factors of
    sums so far. The base of exponentials is 2, their scale ``rest``.
    """
    for r in range(0, rows, LANES):
        left = rows - r
        before, here = load_some(largest + 4 * r, left), load_some(fades + 4 * r, left)
        most = vmax(here, before)
        fade = vecmath.exp2_negative((before - most) * splat(rest))
        fade = select_lt(before, most, fade, splat(f(1.0)))  # not NaN where both are infinite
        store_some(largest + 4 * r, most, left)
        store_some(totals + 4 * r, load_some(totals + 4 * r, left) * fade, left)
        store(fades + 4 * r, fade)


@register_jitable
def softmax_rows(s, scratch, mask, y, y_row, rows, first, row, key, count):
    """Turns scores into exponentials, and updates the rows' statistics and the sums in y to match.

    ``row`` is the place of the first row among all of its matrix, ``first`` that among statistics.
    """
    kind, causal, scale, features = s.mask_kind, s.causal, s.scale, s.features
    s_row, mask_row, scores = s.score_row, s.mask_row, scratch + s.scores
    fades = scratch + s.fades
    largest, totals = scratch + s.largest + 4 * first, scratch + s.totals + 4 * first
    mask += row * mask_row + 4 * key
    rest = LOG2E  # of the scaling, in the exponent, which is one of 2
    # Without a mask, the largest score is also the largest one after scaling, which is left to the exponent.
    if scale > f(0.0) and not causal and kind != ADDED and kind != ALLOWED:
        rest = scale * LOG2E
        for r in range(rows):
            store_scalar(fades + 4 * r, _largest(scores + r * s_row, count))
    else:
        for r in range(rows):
            seen = count + LANES
            if causal:
                seen = row + r + 1 - key
            here = _scaled(scores + r * s_row, mask + r * mask_row, count, seen, kind, scale)
            store_scalar(fades + 4 * r, here)
    _faded(largest, totals, fades, rows, rest)
    if key:
        for r in range(rows):
            fade = load_scalar(fades + 4 * r)
            if fade != f(1.0):
                times(y + r * y_row, features, fade)
    for r in range(rows):
        shift = load_scalar(largest + 4 * r)
        if shift == LOWEST:  # no key takes part so far
            shift = f(0.0)
        total = _exponentials(scores + r * s_row, count, rest, shift)
        store_scalar(totals + 4 * r, load_scalar(totals + 4 * r) + total)
