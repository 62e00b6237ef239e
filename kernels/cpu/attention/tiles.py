"""Attention whose products are computed on tiles of bfloat16, as `tiles/conv.py` computes convolutions.

A block of keys and values is split and packed into tiles that stay in L2. A panel of them, which stays in L1,
meets all rows of a tile of queries before the next one does.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.attention import SplitAttention
from bslite.kernels.contracts.cpu.tiles import COLS, CONFIG, ROW, ROWS, SUMS, TERMS, TILE, UNIT
from bslite.kernels.cpu.attention.loop import Products, attention_by
from bslite.kernels.cpu.gemm.pack import pack_panel
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.tiles.pack import split_block
from bslite.kernels.cpu.tiles.split import any_bit, split_pixels
from bslite.kernels.cpu.tiles.sweep import call_tile_sweep
from bslite.kernels.cpu.tiles.unit import configure, release
from bslite.kernels.cpu.vector.memory import load, load_some, store_some
from bslite.kernels.cpu.vector.simd import LANES, splat

f = np.float32
PANEL = 2 * COLS  # columns of a panel


@register_jitable
def _begin(s, scratch):
    configure(scratch + CONFIG)


@register_jitable
def _blocks(terms):
    """Blocks of terms of a sum."""
    return (terms + TERMS - 1) // TERMS


@register_jitable
def _pack(s, scratch, k, v, count):
    """Splits and packs a block of keys and values: tiles of all blocks of terms of a panel, then the next."""
    depth, features, parts, k_row, v_row = s.depth, s.features, s.parts, s.k_row, s.v_row
    panel, seen = scratch + s.panel, splat(f(0.0))
    to = scratch + s.k_tiles
    for c in range(0, count, PANEL):
        cols = min(PANEL, count - c)
        pack_panel(k + c * k_row, 4, k_row, depth, cols, PANEL // LANES, panel)
        for d in range(0, depth, TERMS):
            rows = min(TERMS, depth - d)
            seen = split_block(panel + 4 * PANEL * d, 4 * PANEL, 4, rows, cols, parts, to, seen)
            to += parts * 2 * TILE
    to = scratch + s.v_tiles
    for c in range(0, features, PANEL):
        cols = min(PANEL, features - c)
        for d in range(0, count, TERMS):
            rows = min(TERMS, count - d)
            seen = split_block(v + d * v_row + 4 * c, v_row, 4, rows, cols, parts, to, seen)
            to += parts * 2 * TILE
    if any_bit(seen):
        raise_flag(s.flag, 0)


@register_jitable
def _scores(s, scratch, q, rows, count):
    """``s = q @ k^T`` for some rows and one block of keys; zeros beyond the block, in whole tiles."""
    depth, parts, sweep, s_row, pixel = s.depth, s.parts, s.sweep, s.score_row, s.q_pixel
    a, b, scores, offsets = scratch + s.q_parts, scratch + s.k_tiles, scratch + s.scores, s.offsets
    steps = _blocks(depth)
    seen = split_pixels(q, s.q_row, rows, 1, depth, parts, a, pixel, 0, 0, 0, splat(f(0.0)))
    if any_bit(seen):
        raise_flag(s.flag, 0)
    for c in range(0, count, PANEL):
        for r in range(0, rows, 2 * ROWS):
            which = 2 * (rows - r > ROWS) + (count - c > COLS)
            call_tile_sweep(sweep, which, scratch + UNIT, a + r * pixel, pixel, offsets, steps, b,
                            scores + r * s_row + 4 * c, s_row, 0, 0)  # fmt: skip
        b += steps * parts * 2 * TILE


@register_jitable
def _values(s, scratch, rows, count, y, resume):
    """``y (+)= scores @ v`` for some rows and one block of keys.

    Exponentials are at most 1. What their parts lose below the normal range is less than what the exponential
    itself takes for zero, so no flag is raised.
    """
    features, parts, sweep, y_row, pixel = s.features, s.parts, s.sweep, s.y_row, s.e_pixel
    a, b, scores, offsets = scratch + s.e_parts, scratch + s.v_tiles, scratch + s.scores, s.offsets
    steps = _blocks(count)
    split_pixels(scores, s.score_row, rows, 1, count, parts, a, pixel, 0, 0, 0, splat(f(0.0)))
    sums = scratch + SUMS
    for c in range(0, features, PANEL):
        here = min(PANEL, features - c)
        for r in range(0, rows, 2 * ROWS):
            high = min(2 * ROWS, rows - r)
            which = 2 * (high > ROWS) + (here > COLS)
            call_tile_sweep(sweep, which, scratch + UNIT, a + r * pixel, pixel, offsets, steps, b, sums,
                            ROW, 0, 0)  # fmt: skip
            for row in range(high):
                line = y + (r + row) * y_row + 4 * c
                for lane in range(0, here, LANES):
                    value = load(sums + row * ROW + 4 * lane)
                    if resume:
                        value = value + load_some(line + 4 * lane, here - lane)
                    store_some(line + 4 * lane, value, here - lane)
        b += steps * parts * 2 * TILE


@register_jitable
def _end(s, totals):
    release()
    if totals != totals:  # NaN among the scores: of numbers that have parts, but not their products
        raise_flag(s.flag, 0)


split_attention = step_kernel(SplitAttention)(
    attention_by(reader(SplitAttention), Products(_begin, _pack, _scores, _values, _end))
)
