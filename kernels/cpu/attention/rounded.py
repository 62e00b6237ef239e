"""Attention whose products are dot products of bfloat16.

Queries, keys, values and exponentials are rounded to cells of two terms. Panels of cells are multiplied as
those of numbers are in `multiply_adds`.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.attention import RoundedAttention
from bslite.kernels.cpu.attention.loop import Products, attention_by
from bslite.kernels.cpu.attention.multiply_adds import clear, score_products, value_products
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
                made = paired(even, odd)
                seen = larger(seen, made)
                store(panel, made)
                panel += BYTES
    if not_finite(seen):
        raise_flag(s.flag, 0)


@register_jitable
def _scores(s, scratch, q, rows, count):
    """``s = q @ k^T`` for some rows and one block of keys."""
    q_row, depth, cell_row, cells, seen = s.q_row, s.depth, s.cell_row, scratch + s.q_cells, splat(f(0.0))
    for i in range(rows):
        seen = round_row(q + i * q_row, depth, cells + i * cell_row, seen)
    if not_finite(seen):
        raise_flag(s.flag, 0)
    score_products(s, scratch, cells, cell_row, _cells(depth), rows, count)


@register_jitable
def _values(s, scratch, rows, count, y, resume):
    """``y (+)= scores @ v`` for some rows and one block of keys. Exponentials are at most 1, so no flag is
    raised for them.
    """
    s_row, e_row, scores, cells = s.score_row, s.e_row, scratch + s.scores, scratch + s.e_cells
    for i in range(rows):
        round_row(scores + i * s_row, count, cells + i * e_row, splat(f(0.0)))
    value_products(s, scratch, cells, e_row, _cells(count), rows, y, resume)


@register_jitable
def _end(s, totals):
    if totals != totals:  # NaN among the scores
        raise_flag(s.flag, 0)


rounded_attention = step_kernel(RoundedAttention)(
    attention_by(reader(RoundedAttention), Products(clear, _pack, _scores, _values, _end))
)
