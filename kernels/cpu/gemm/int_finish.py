"""What follows a line of int32 sums: scales, rounding, a residual, and the cells of the next layer."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.integer import Made
from bslite.kernels.cpu.vector.memory import load, store, store_some
from bslite.kernels.cpu.vector.pairs import before, load_halves, packed, real_of
from bslite.kernels.cpu.vector.quads import load_bytes, quads_of, store_quads
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, rint, splat, vmax, vmin

SUM, PAIRS, QUADS = int(Made.SUM), int(Made.PAIRS), int(Made.QUADS)
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
def _packed_quads(source, acc_col, y, y_col, pixels, scale, shift, low, high, least):
    """The same as quads."""
    scale1, scale2, shift1, shift2 = load(scale), load(scale + BYTES), load(shift), load(shift + BYTES)
    for _ in range(pixels):
        a, b = fma(real_of(load(source)), scale1, shift1), fma(real_of(load(source + BYTES)), scale2, shift2)
        a, b = vmin(high, vmax(a, low)), vmin(high, vmax(b, low))
        store_quads(y, a, b, least)
        source += acc_col
        y += y_col


@register_jitable
def _added_quads(
    source, acc_col, y, y_col, residual, r_col, pixels, scale, shift, low1, high1, own, other, low2, high2,
    under, least
):  # fmt: skip
    """Whole registers of sums, scaled and rounded, plus quads of a residual, rounded again, as quads."""
    scale1, scale2, shift1, shift2 = load(scale), load(scale + BYTES), load(shift), load(shift + BYTES)
    for _ in range(pixels):
        a, b = fma(real_of(load(source)), scale1, shift1), fma(real_of(load(source + BYTES)), scale2, shift2)
        a, b = rint(vmin(high1, vmax(low1, a))), rint(vmin(high1, vmax(low1, b)))
        a = fma(a, own, (load_bytes(residual) + under) * other)
        b = fma(b, own, (load_bytes(residual + LANES) + under) * other)
        a, b = vmin(high2, vmax(a, low2)), vmin(high2, vmax(b, low2))
        store_quads(y, a, b, least)
        source += acc_col
        y += y_col
        residual += r_col


@register_jitable
def _residual(address, quads, under):
    """A register of a residual's numbers."""
    if quads:
        return load_bytes(address) + under
    return load_halves(address)


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
def finish(s, acc, y, residual, pixels, channels, scale, shift):
    """Makes a line of results of a line of sums: ``pixels`` by ``channels``."""
    made, acc_col, y_col, r_col, has_residual = s.made, s.acc_col, s.y_col, s.residual_col, s.has_residual
    rounds1, rounds2 = s.rounds1, s.rounds2
    low1, high1, low2, high2 = splat(s.low1), splat(s.high1), splat(s.low2), splat(s.high2)
    own, other, least, under = splat(s.own), splat(s.other), splat(s.least), splat(s.under)
    adds_quads = s.adds_quads
    lowest = low2 if rounds2 else low1
    half = LANES if adds_quads else 2 * LANES  # bytes of a residual's register
    for c in range(0, channels, 2 * LANES):
        left, at = channels - c, 4 * c
        source, target, second = acc + at, y + at, residual + (c if adds_quads else 2 * c)
        if made == QUADS:
            target = y + c
            if left >= 2 * LANES:
                if has_residual and adds_quads and rounds1:
                    _added_quads(source, acc_col, target, y_col, second, r_col, pixels, scale + at,
                                 shift + at, low1, high1, own, other, low2, high2, under, least)  # fmt: skip
                    continue
                if not (has_residual or rounds2):
                    _packed_quads(source, acc_col, target, y_col, pixels, scale + at, shift + at, low1, high1,
                                  least)  # fmt: skip
                    continue
        if made == PAIRS:
            target = y + at // 2
            if left >= 2 * LANES:
                if has_residual and not adds_quads and rounds1:
                    _added(source, acc_col, target, y_col, second, r_col, pixels, scale + at, shift + at,
                           low1, high1, own, other, low2, high2)  # fmt: skip
                    continue
                if not (has_residual or rounds2):
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
                    a = fma(a, own, _residual(second, adds_quads, under) * other)
                    b = fma(b, own, _residual(second + half, adds_quads, under) * other)
                elif rounds2:
                    a, b = a * own, b * own
                a, b = _rounded(a, low2, high2, rounds2), _rounded(b, low2, high2, rounds2)
            if made >= PAIRS:
                a, b = vmax(a, lowest), vmax(b, lowest)  # of NaN the least
                if made == QUADS and left >= 2 * LANES:
                    store_quads(target, a, b, least)
                elif made == QUADS:
                    a, b = before(rint(a) - least, left), before(rint(b) - least, left - LANES)
                    store_some(target, quads_of(a, b, splat(f(0.0))), min((left + 3) // 4, LANES // 2))
                else:
                    store_some(target, packed(before(a, left), before(b, left - LANES)), (left + 1) // 2)
            else:
                store_some(target, a, left)
                store_some(target + BYTES, b, left - LANES)
            source += acc_col
            target += y_col
            second += r_col
