"""Attention whose products are dot products of bfloat16.

Queries, keys, values and exponentials are rounded to cells of two terms. Panels of cells are multiplied as
those of numbers are in `multiply_adds`.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.attention import RoundedAttention
from bslite.kernels.cpu.attention.loop import Products, attention_by
from bslite.kernels.cpu.attention.multiply_adds import clear, products
from bslite.kernels.cpu.gemm.pack import pack_panel
from bslite.kernels.cpu.rows.rounded import round_row
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.bfloat16 import larger, not_finite, paired
from bslite.kernels.cpu.vector.memory import load_some, store
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

f = np.float32


@register_jitable
def _cells(terms):
    return (terms + 1) // 2


@register_jitable
def _pack(s, scratch, k, v, count):
    """Rounds a block of keys and values, and packs it into panels of cells."""
    depth, features, key_width, width, cell_row = s.depth, s.features, s.key_width, s.width, s.cell_row
    k_row, v_row, k_panels, v_panels = s.k_row, s.v_row, scratch + s.k_panels, scratch + s.v_panels
    keys, seen = scratch + s.k_cells, splat(f(0.0))
    for i in range(count):
        seen = round_row(k + i * k_row, depth, keys + i * cell_row, seen)
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        panel = k_panels + 4 * c * _cells(depth)
        pack_panel(keys + c * cell_row, 4, cell_row, _cells(depth), count - c, registers, panel)
    for c in range(0, features, width * LANES):
        registers = min(width, (features - c + LANES - 1) // LANES)
        panel = v_panels + 4 * c * _cells(count)
        for i in range(0, count, 2):
            for r in range(registers):
                lanes = features - c - r * LANES
                x = v + i * v_row + 4 * c + r * BYTES
                even = load_some(x, lanes)
                odd = load_some(x + v_row, lanes if i + 1 < count else 0)
                seen = larger(larger(seen, even), odd)
                store(panel, paired(even, odd))
                panel += BYTES
    if not_finite(seen):
        raise_flag(s.flag, 0)


@register_jitable
def _scores(s, scratch, q, rows, count):
    """``s = q @ k^T`` for some rows and one block of keys; whole registers, zeros beyond the block."""
    q_row, depth, s_row, key_width, cell_row = s.q_row, s.depth, s.score_row, s.key_width, s.cell_row
    most, clamp, k_panels, scores = s.key_most, s.minus_inf_cell, scratch + s.k_panels, scratch + s.scores
    queries, cells, seen = scratch + s.q_cells, _cells(depth), splat(f(0.0))
    for i in range(rows):
        seen = round_row(q + i * q_row, depth, queries + i * cell_row, seen)
    if not_finite(seen):
        raise_flag(s.flag, 0)
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        sweep = s.tail_key_sweep if registers < key_width else s.key_sweep
        panel = k_panels + 4 * c * cells
        products(sweep, rows, most, queries, cell_row, cells, panel, scores + 4 * c, s_row, scratch, 0, clamp,
                 LANES, panel + registers * cells * BYTES)  # fmt: skip


@register_jitable
def _values(s, scratch, rows, count, y, resume):
    """``y (+)= scores @ v`` for some rows and one block of keys. Exponentials are at most 1, so no flag is
    raised for them.
    """
    features, width, panels, y_row, e_row = s.features, s.width, s.panels, s.y_row, s.e_row
    s_row, most, clamp, cells = s.score_row, s.most, s.minus_inf_cell, _cells(count)
    v_panels, scores, rounded = scratch + s.v_panels, scratch + s.scores, scratch + s.e_cells
    for i in range(rows):
        round_row(scores + i * s_row, count, rounded + i * e_row, splat(f(0.0)))
    for p in range(panels):
        c = p * width * LANES
        sweep, last = s.sweep, LANES
        if p == panels - 1:
            sweep = s.tail_sweep
            last = features - c - (s.tail - 1) * LANES
        panel = v_panels + 4 * c * cells
        products(sweep, rows, most, rounded, e_row, cells, panel, y + 4 * c, y_row, scratch, resume, clamp,
                 last, panel + width * cells * BYTES)  # fmt: skip


@register_jitable
def _end(s, totals):
    if totals != totals:  # NaN among the scores
        raise_flag(s.flag, 0)


rounded_attention = step_kernel(RoundedAttention)(
    attention_by(reader(RoundedAttention), Products(clear, _pack, _scores, _values, _end))
)
