"""The softmax of scores as they come, block of keys by block of keys, rows of a tile at a time."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.attention import Mask
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.vector.across import hmax, hsum
from bslite.kernels.cpu.vector.lanes import blocked_where_zero
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.simd import LANES, fma, splat, vmax_nan
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
        most = vmax_nan(x, most)
    for c in range(whole, count, LANES):
        left = count - c
        x = _masked(load(scores + 4 * c), scales, mask + 4 * c, left, kind)
        if seen - c < LANES:  # like adding a mask of -inf: NaN and +inf give NaN
            x = first_of(x, x + splat(LOWEST), max(0, seen - c))
        if left < LANES:
            x = first_of(x, splat(LOWEST), left)
        store(scores + 4 * c, x)
        most = vmax_nan(x, most)
    return hmax(most)


@register_jitable
def _largest(scores, count):
    """The largest score of a row; writes -inf into the lanes beyond it."""
    most = splat(LOWEST)
    whole = count // LANES * LANES
    for c in range(0, whole, LANES):
        most = vmax_nan(load(scores + 4 * c), most)
    if whole < count:
        x = first_of(load(scores + 4 * whole), splat(LOWEST), count - whole)
        store(scores + 4 * whole, x)
        most = vmax_nan(x, most)
    return hmax(most)


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
def no_keys(stats, rows):
    """The statistics of rows that no key has come to."""
    for r in range(rows):
        store_scalar(stats + 8 * r, LOWEST)
        store_scalar(stats + 8 * r + 4, f(0.0))


@register_jitable
def softmax_rows(s, scores, stats, mask, y, y_row, rows, row, key, count):
    """Turns scores into exponentials, and updates the rows' statistics and the sums in y to match."""
    kind, causal, scale, features = s.mask_kind, s.causal, s.scale, s.features
    mask_row = s.mask_row
    mask += 4 * key
    rest = LOG2E  # of the scaling, in the exponent, which is one of 2
    # Without a mask, the largest score is also the largest one after scaling, which is left to the exponent.
    plain = scale > f(0.0) and not causal and kind != ADDED and kind != ALLOWED
    if plain:
        rest = scale * LOG2E
    for r in range(rows):
        if plain:
            here = _largest(scores, count)
        else:
            seen = count + LANES
            if causal:
                seen = row + r + 1 - key
            here = _scaled(scores, mask + (row + r) * mask_row, count, seen, kind, scale)
        before = load_scalar(stats)
        most = here
        if before > here or before != before:
            most = before
        shift = most
        if most == LOWEST:  # no key takes part so far
            shift = f(0.0)
        total = _exponentials(scores, count, rest, shift)
        if key:
            if most != before:
                fade = f(2.0 ** ((np.float64(before) - np.float64(most)) * np.float64(rest)))
                times(y, features, fade)
                total += load_scalar(stats + 4) * fade
            else:
                total += load_scalar(stats + 4)
        store_scalar(stats, most)
        store_scalar(stats + 4, total)
        scores += s.score_row
        stats += 8
        y += y_row
