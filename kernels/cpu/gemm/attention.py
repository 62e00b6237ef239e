"""Scaled dot-product attention, depth-first: the scores of a few rows at a time, never all of them.

``y = softmax(q @ k^T * scale + mask) @ v`` for one head at a time. An item is a run of rows of q. It goes
through the keys block by block; for each block it packs k and v into panels, and takes tile after tile of its
rows through scores, exponentials and the product with v while they lie in L1. Between blocks a row has two
statistics: its largest score so far and the sum of its exponentials relative to that; where a later block has
a larger score, the sums so far are scaled down (online softmax: Milakov & Gimelshein, arXiv 1805.02867; as a
schedule for attention: FlashAttention, arXiv 2205.14135). The partial answer is kept in y itself.

The number of keys alone sets the blocks, so nothing else decides the order of a sum.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.attention import Mask
from bslite.kernels.contracts.cpu.gemm import Attention
from bslite.kernels.cpu.gemm.pack import pack_panel
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.gemm.tile import PREFETCHES, UNROLL
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.across import hmax, hsum
from bslite.kernels.cpu.vector.lanes import blocked_where_zero
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat, vmax_nan
from bslite.kernels.cpu.vector.wide import first_of

F = reader(Attention)
ADDED, ALLOWED = int(Mask.ADDED), int(Mask.ALLOWED)
f = np.float32
LOWEST = f(-np.inf)
CLEAR = 8  # registers of zeros: a bias for the widest panel, and a table of one offset


@register_jitable
def _products(sweep, rows, most, a, a_row, depth, b, c, c_row, zeros, resume, clamp, last, ahead):
    """``c (+)= a @ b`` for ``rows`` rows and one panel b, in tiles of at most ``most`` rows, each of which
    fetches a part of the panel ``ahead``.
    """
    tiles = (rows + most - 1) // most
    low = rows // tiles
    high = rows - tiles * low  # this many tiles are one row taller
    share = depth // UNROLL * PREFETCHES * 64
    if high:
        call_gemm_sweep(sweep, low + 1, high, a, a_row, zeros, 1, depth, b, c, c_row, zeros, resume, 0, 0,
                        clamp, last, ahead, share)  # fmt: skip
        a += high * (low + 1) * a_row
        c += high * (low + 1) * c_row
        ahead += high * share
    call_gemm_sweep(sweep, low, tiles - high, a, a_row, zeros, 1, depth, b, c, c_row, zeros, resume, 0, 0,
                    clamp, last, ahead, share)  # fmt: skip


@register_jitable
def _nothing(x, x_row, rows, length):
    """The sum of 0 times each element: 0, or NaN if there is a NaN or an infinity among them."""
    acc = splat(f(0.0))
    for _ in range(rows):
        for c in range(0, length, LANES):
            acc = fma(load_some(x + 4 * c, length - c), splat(f(0.0)), acc)
        x += x_row
    return hsum(acc)


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
    """Replaces a row by ``exp(scores * scale - shift)``, no exponent above 0, and returns the sum."""
    scales, shifts, acc = splat(scale), splat(shift), splat(f(0.0))
    for c in range(0, count, LANES):  # beyond the row are -infs, which become zeros
        e = vecmath.exp_negative(load(scores + 4 * c) * scales - shifts)
        store(scores + 4 * c, e)
        acc = acc + e
    return hsum(acc)


@register_jitable
def _times(y, length, factor):
    """Multiplies a row by a number, in place."""
    factors = splat(factor)
    for c in range(0, length, LANES):
        store_some(y + 4 * c, load_some(y + 4 * c, length - c) * factors, length - c)


@register_jitable
def _softmax_rows(s, scores, stats, mask, y, y_row, rows, row, key, count):
    """Turns scores into exponentials, and updates the rows' statistics and the sums in y to match."""
    kind, causal, scale, features = s.mask_kind, s.causal, s.scale, s.features
    mask_row = s.mask_row
    mask += 4 * key
    rest = f(1.0)  # of the scaling, in the exponent
    # Without a mask, the largest score is also the largest one after scaling, which is left to the exponent.
    # It is rounded there as here: the exponent of the largest is 0, however large that is.
    plain = scale > f(0.0) and not causal and kind != ADDED and kind != ALLOWED
    if plain:
        rest = scale
    for r in range(rows):
        if plain:
            here = _largest(scores, count) * scale
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
                fade = f(math.exp(np.float64(before) - np.float64(most)))
                _times(y, features, fade)
                total += load_scalar(stats + 4) * fade
            else:
                total += load_scalar(stats + 4)
        store_scalar(stats, most)
        store_scalar(stats + 4, total)
        scores += s.score_row
        stats += 8
        y += y_row


@register_jitable
def _pack(s, k, v, count, k_panels, v_panels):
    """Packs a block of keys and values into panels."""
    depth, features, key_width, width = s.depth, s.features, s.key_width, s.width
    k_row, v_row = s.k_row, s.v_row
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        pack_panel(k + c * k_row, 4, k_row, depth, count - c, registers, k_panels + 4 * c * depth)
    for c in range(0, features, width * LANES):
        registers = min(width, (features - c + LANES - 1) // LANES)
        pack_panel(v + 4 * c, v_row, 4, count, features - c, registers, v_panels + 4 * c * count)


@register_jitable
def _scores(s, q, q_row, rows, count, k_panels, scores, zeros):
    """``s = q @ k^T`` for some rows and one block of keys; whole registers, zeros beyond the block."""
    depth, s_row, key_width = s.depth, s.score_row, s.key_width
    most, clamp = s.key_most, s.minus_inf_cell
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        sweep = s.tail_key_sweep if registers < key_width else s.key_sweep
        panel = k_panels + 4 * c * depth
        ahead = panel + registers * depth * BYTES
        _products(sweep, rows, most, q, q_row, depth, panel, scores + 4 * c, s_row, zeros, 0, clamp, LANES,
                  ahead)  # fmt: skip


@register_jitable
def _values(s, scores, rows, count, v_panels, y, y_row, zeros, resume):
    """``y (+)= scores @ v`` for some rows and one block of keys."""
    features, width, panels = s.features, s.width, s.panels
    s_row, most, clamp = s.score_row, s.most, s.minus_inf_cell
    for p in range(panels):
        c = p * width * LANES
        sweep, last = s.sweep, LANES
        if p == panels - 1:
            sweep = s.tail_sweep
            last = features - c - (s.tail - 1) * LANES
        panel = v_panels + 4 * c * count
        ahead = panel + width * count * BYTES
        _products(sweep, rows, most, scores, s_row, count, panel, y + 4 * c, y_row, zeros, resume, clamp,
                  last, ahead)  # fmt: skip


@step_kernel(Attention)
def attention(step, bases, item, scratch):
    """Computes a run of rows of one matrix of queries."""
    s = F(step, bases)
    n1, n2 = s.n1, s.n2
    share, matrix = item % s.shares, item // s.shares
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    q = s.q + i0 * s.q_axes0 + i1 * s.q_axes1 + i2 * s.q_axes2
    k = s.k + i0 * s.k_axes0 + i1 * s.k_axes1 + i2 * s.k_axes2
    v = s.v + i0 * s.v_axes0 + i1 * s.v_axes1 + i2 * s.v_axes2
    y = s.y + i0 * s.y_axes0 + i1 * s.y_axes1 + i2 * s.y_axes2
    mask = s.mask + i0 * s.mask_axes0 + i1 * s.mask_axes1 + i2 * s.mask_axes2
    q_row, y_row, k_row, v_row = s.q_row, s.y_row, s.k_row, s.v_row
    keys, depth, features = s.keys, s.depth, s.features
    block, tile_rows, causal = s.block, s.tile_rows, s.causal
    first = share * s.share_rows
    last = min(s.rows, first + s.share_rows)
    k_panels, v_panels = scratch + s.k_panels, scratch + s.v_panels
    scores, stats = scratch + s.scores, scratch + s.stats
    for i in range(CLEAR):
        store(scratch + i * BYTES, splat(f(0.0)))
    for r in range(last - first):
        store_scalar(stats + 8 * r, LOWEST)
        store_scalar(stats + 8 * r + 4, f(0.0))
    key = 0
    while key < keys:
        count = min(block, keys - key)
        block_k, block_v = k + key * k_row, v + key * v_row
        # Keys ahead of all rows of a tile can be skipped, unless there is a NaN or an infinity among them.
        may_skip = False
        if causal and key:
            may_skip = _nothing(block_k, k_row, count, depth) + _nothing(block_v, v_row, count, features) == 0
        packed = False
        row = first
        while row < last:
            rows = min(tile_rows, last - row)
            tile = q + row * q_row
            if not (may_skip and key >= row + rows and _nothing(tile, q_row, rows, depth) == 0):
                if not packed:
                    _pack(s, block_k, block_v, count, k_panels, v_panels)
                    packed = True
                out = y + row * y_row
                _scores(s, tile, q_row, rows, count, k_panels, scores, scratch)
                _softmax_rows(s, scores, stats + 8 * (row - first), mask, out, y_row, rows, row, key, count)
                _values(s, scores, rows, count, v_panels, out, y_row, scratch, key)
            row += rows
        key += count
    y += first * y_row
    for r in range(last - first):
        total = load_scalar(stats + 8 * r + 4)
        if not (s.safe and total == f(0.0)):  # if no key took part: zeros if safe, else 0/0
            _times(y, features, f(1.0) / total)
        y += y_row
