"""The gradients of attention, depth-first: weights and their gradients of a block of queries at a time.

With P the weights, dy the gradient from behind and scores ``q @ k^T * scale + mask``: ``dP = dy @ v^T`` and
``dS = P * (dP - sum(P * dP))``. The gradients by q, k and v are ``dS @ k`` and ``dS^T @ q``, both times the
scale, and ``P^T @ dy`` (FlashAttention, arXiv 2205.14135, appendix B.2). All keys of a block of queries are
at hand, so nothing of the forward pass is needed. Of the five products for each block, the last two add up
over blocks: rank-one updates, as those of a filter's gradient are.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.attention import AttentionGrad
from bslite.kernels.cpu.attention.loop import nothing, operands
from bslite.kernels.cpu.attention.multiply_adds import (
    clear,
    column_products,
    pack_columns,
    pack_rows,
    row_products,
)
from bslite.kernels.cpu.attention.softmax import ADDED, drop_out, no_keys, softmax_rows
from bslite.kernels.cpu.gemm.update import call_update_sweep
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.across import hsum
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_int, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat

F = reader(AttentionGrad)
f = np.float32


@register_jitable
def _slopes(e, slopes, count, inverse, scale, kept):
    """Of a row: turns exponentials into weights, and their gradients into those of q @ k^T; those of the
    scores go to ``kept``, unless it is 0.
    """
    inverses, scales, acc = splat(inverse), splat(scale), splat(f(0.0))
    for c in range(0, count, LANES):
        weights = load(e + 4 * c) * inverses
        store(e + 4 * c, weights)
        acc = fma(weights, load(slopes + 4 * c), acc)
    along = splat(hsum(acc))
    for c in range(0, count, LANES):
        by_scores = load(e + 4 * c) * (load(slopes + 4 * c) - along)
        if kept:
            store_some(kept + 4 * c, by_scores, count - c)
        store(slopes + 4 * c, by_scores * scales)


@register_jitable
def _zeros(x, length):
    """Zeros in so many whole registers and the rest of one."""
    for c in range(0, length, LANES):
        store_some(x + 4 * c, splat(f(0.0)), length - c)


@register_jitable
def _unpadded(x, x_row, rows, length, y):
    """Copies rows side by side."""
    for _ in range(rows):
        for c in range(0, length, LANES):
            store_some(y + 4 * c, load_some(x + 4 * c, length - c), length - c)
        x += x_row
        y += 4 * length


@register_jitable
def _updates(sweep, tail_sweep, count, a, a_row, table, rows, panels, width, packed, c, c_row):
    """``c += a^T @ b`` for ``count`` columns of some rows of a, and as many packed rows b."""
    for p in range(panels):
        call_update_sweep(tail_sweep if p == panels - 1 else sweep, count, a, 0, a_row, table, 1,
                          packed + p * width * BYTES * rows, c + p * width * BYTES, c_row)  # fmt: skip


@step_kernel(AttentionGrad)
def attention_grad(step, bases, item, scratch):
    """Computes the gradients of a run of rows of one matrix of queries."""
    s = F(step, bases)
    share, matrix = item % s.shares, item // s.shares
    q, k, v, y, mask, noise, (i0, i1, i2) = operands(s, matrix)
    grad = s.grad + i0 * s.grad_axes0 + i1 * s.grad_axes1 + i2 * s.grad_axes2
    q_row, k_row, v_row, grad_row, s_row = s.q_row, s.k_row, s.v_row, s.grad_row, s.score_row
    rows, keys, depth, features, block = s.rows, s.keys, s.depth, s.features, s.block
    causal, safe, scale, key_panel = s.causal, s.safe, s.scale, s.key_width * LANES
    scores, slopes = scratch + s.scores, scratch + s.slopes
    q_rows, grad_rows, k_rows = scratch + s.q_rows, scratch + s.grad_rows, scratch + s.k_rows
    k_panels, v_panels, table = scratch + s.k_panels, scratch + s.v_panels, scratch + s.table
    k_sums, v_sums = scratch + s.k_sums, scratch + s.v_sums
    k_wide = ((s.panels - 1) * s.width + s.tail) * BYTES
    v_wide = ((s.wide_panels - 1) * s.wide + s.wide_tail) * BYTES
    by_keys = y + 4 * rows * depth
    by_scores = by_keys + 4 * keys * (depth + features)
    if s.shares > 1:
        by_keys = s.sums + (share * s.matrices + matrix) * 4 * keys * (depth + features)
    by_values = by_keys + 4 * keys * depth
    clear(s, scratch)
    _zeros(k_sums, keys * (k_wide // 4))
    _zeros(v_sums, keys * (v_wide // 4))
    pack_columns(s, k, k_row, depth, keys, k_panels)
    pack_columns(s, v, v_row, features, keys, v_panels)
    for key in range(0, keys, block):
        pack_rows(k + key * k_row, k_row, depth, min(block, keys - key), s.width, k_rows + key * k_wide)
    row = share * s.share_rows
    last = min(rows, row + s.share_rows)
    # Keys ahead of all queries of a block can be left out, unless there is a NaN or an infinity.
    may_skip = False
    if causal:
        here = last - row
        found = nothing(q + row * q_row, q_row, here, depth) + nothing(k, k_row, keys, depth)
        found += nothing(grad + row * grad_row, grad_row, here, features) + nothing(v, v_row, keys, features)
        if s.dropped:
            found += nothing(noise + row * s.noise_row, s.noise_row, here, keys)
        if s.mask_kind == ADDED:
            found += nothing(mask + row * s.mask_row, s.mask_row, here, keys)
        may_skip = found == 0 and (safe or not s.mask_kind)  # rows without a key are NaN, if not safe
    while row < last:
        count, high = keys, min(s.tile_rows, last - row)
        if may_skip:
            count = min(keys, (row + high + key_panel - 1) // key_panel * key_panel)
        tile, behind = q + row * q_row, grad + row * grad_row
        pack_rows(tile, q_row, depth, high, s.width, q_rows)
        pack_rows(behind, grad_row, features, high, s.wide, grad_rows)
        column_products(s, scratch, tile, q_row, depth, k_panels, high, count, scores)
        column_products(s, scratch, behind, grad_row, features, v_panels, high, count, slopes)
        if s.dropped:
            drop_out(s, slopes, noise, high, row, 0, count)
        no_keys(s, scratch, high)
        softmax_rows(s, scratch, mask, y, 0, high, 0, row, 0, count)
        for r in range(high):
            total = load_scalar(scratch + s.totals + 4 * r)
            inverse = f(1.0) / total
            if safe and total == f(0.0):  # no key took part
                inverse = f(0.0)
            kept = 0
            if s.by_mask:
                kept = by_scores + 4 * (row + r) * keys
                _zeros(kept + 4 * count, keys - count)
            _slopes(scores + r * s_row, slopes + r * s_row, count, inverse, scale, kept)
        if s.dropped:
            drop_out(s, scores, noise, high, row, 0, count)
        store_int(table, 0)
        store_int(table + 8, 0)
        store_int(table + 16, high)
        key = 0
        while key < count:
            many = min(block, count - key)
            weights, by_weights = scores + 4 * key, slopes + 4 * key
            row_products(s, scratch, by_weights, s_row, many, k_rows + key * k_wide, min(block, keys - key),
                         depth, high, y + 4 * row * depth, 4 * depth, key)  # fmt: skip
            _updates(s.update, s.tail_update, many, by_weights, s_row, table, high, s.panels, s.width, q_rows,
                     k_sums + key * k_wide, k_wide)  # fmt: skip
            _updates(s.wide_update, s.tail_wide_update, many, weights, s_row, table, high, s.wide_panels,
                     s.wide, grad_rows, v_sums + key * v_wide, v_wide)  # fmt: skip
            key += many
        row += high
    _unpadded(k_sums, k_wide, keys, depth, by_keys)
    _unpadded(v_sums, v_wide, keys, features, by_values)
