"""Scaled dot-product attention, depth-first: the scores of a few rows at a time, never all of them.

``y = softmax(q @ k^T * scale + mask) @ v`` for one head at a time. An item is a run of rows of q. It goes
through the keys block by block; for each block it packs k and v, and takes tile after tile of its rows
through scores, exponentials and the product with v while they lie in cache. Between blocks a row has two
statistics: its largest score so far and the sum of its exponentials relative to that; where a later block has
a larger score, the sums so far are scaled down (online softmax: Milakov & Gimelshein, arXiv 1805.02867; as a
schedule for attention: FlashAttention, arXiv 2205.14135). The partial answer is kept in y itself.

The number of keys alone sets the blocks, so nothing else decides the order of a sum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.attention.softmax import ADDED, drop_out, no_keys, softmax_rows, times
from bslite.kernels.cpu.vector.across import hsum
from bslite.kernels.cpu.vector.memory import load_scalar, load_some
from bslite.kernels.cpu.vector.simd import LANES, fma, splat

f = np.float32


class Products(NamedTuple):
    """How the two products are computed. All take the record ``s`` and the thread's ``scratch`` memory."""

    begin: Callable[..., Any]  # (s, scratch), before an item
    pack: Callable[..., Any]  # (s, scratch, k, v, count): a block of so many keys
    scores: Callable[..., Any]  # (s, scratch, q, rows, count): into s.scores, whole registers
    values: Callable[..., Any]  # (s, scratch, rows, count, y, resume): from s.scores; resume: add to y
    end: Callable[..., Any]  # (s, totals): after an item; totals is NaN if a score was


@register_jitable
def operands(s, matrix):
    """Where q, k, v, y, the mask and the noise of a matrix begin, and its place along each axis."""
    n1, n2 = s.n1, s.n2
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    q = s.q + i0 * s.q_axes0 + i1 * s.q_axes1 + i2 * s.q_axes2
    k = s.k + i0 * s.k_axes0 + i1 * s.k_axes1 + i2 * s.k_axes2
    v = s.v + i0 * s.v_axes0 + i1 * s.v_axes1 + i2 * s.v_axes2
    y = s.y + i0 * s.y_axes0 + i1 * s.y_axes1 + i2 * s.y_axes2
    mask = s.mask + i0 * s.mask_axes0 + i1 * s.mask_axes1 + i2 * s.mask_axes2
    noise = s.noise + i0 * s.noise_axes0 + i1 * s.noise_axes1 + i2 * s.noise_axes2
    return q, k, v, y, mask, noise, (i0, i1, i2)


@register_jitable
def nothing(x, x_row, rows, length):
    """The sum of 0 times each element: 0, or NaN if there is a NaN or an infinity among them."""
    acc = splat(f(0.0))
    for _ in range(rows):
        for c in range(0, length, LANES):
            acc = fma(load_some(x + 4 * c, length - c), splat(f(0.0)), acc)
        x += x_row
    return hsum(acc)


def attention_by(read: Any, products: Products) -> Callable[..., None]:
    """The kernel of a step whose records ``read`` reads."""
    begin, pack, scores, values, end = products

    def attention(step, bases, item, scratch):
        """Computes a run of rows of one matrix of queries."""
        s = read(step, bases)
        share, matrix = item % s.shares, item // s.shares
        q, k, v, y, mask, noise, _ = operands(s, matrix)
        q_row, y_row, k_row, v_row = s.q_row, s.y_row, s.k_row, s.v_row
        keys, depth, features = s.keys, s.depth, s.features
        block, tile_rows, causal = s.block, s.tile_rows, s.causal
        first = share * s.share_rows
        last = min(s.rows, first + s.share_rows)
        begin(s, scratch)
        no_keys(s, scratch, last - first)
        key = 0
        while key < keys:
            count = min(block, keys - key)
            block_k, block_v = k + key * k_row, v + key * v_row
            # Keys ahead of all rows of a tile can be skipped, unless there is a NaN or an infinity among
            # them.
            may_skip = False
            if causal and key:
                may_skip = (
                    nothing(block_k, k_row, count, depth) + nothing(block_v, v_row, count, features) == 0
                )
            packed = False
            row = first
            while row < last:
                rows = min(tile_rows, last - row)
                tile = q + row * q_row
                skips = may_skip and key >= row + rows and nothing(tile, q_row, rows, depth) == 0
                if skips and s.mask_kind == ADDED:
                    skips = nothing(mask + row * s.mask_row + 4 * key, s.mask_row, rows, count) == 0
                if skips and s.dropped:
                    skips = nothing(noise + row * s.noise_row + 4 * key, s.noise_row, rows, count) == 0
                if not skips:
                    if not packed:
                        pack(s, scratch, block_k, block_v, count)
                        packed = True
                    out = y + row * y_row
                    scores(s, scratch, tile, rows, count)
                    softmax_rows(s, scratch, mask, out, y_row, rows, row - first, row, key, count)
                    if s.dropped:
                        drop_out(s, scratch + s.scores, noise, rows, row, key, count)
                    values(s, scratch, rows, count, out, key)
                row += rows
            key += count
        y += first * y_row
        seen = f(0.0)
        for r in range(last - first):
            total = load_scalar(scratch + s.totals + 4 * r)
            seen += total
            if not (s.safe and total == f(0.0)):  # if no key took part: zeros if safe, else 0/0
                times(y, features, f(1.0) / total)
            y += y_row
        end(s, seen)

    return attention
