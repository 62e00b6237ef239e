"""Attention whose products are batch-reduce GEMMs over panels in scratch memory: float32 multiply-adds."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.attention import Attention
from bslite.kernels.cpu.attention.loop import Products, attention_by
from bslite.kernels.cpu.gemm.items import cut_run
from bslite.kernels.cpu.gemm.pack import pack_panel
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import PREFETCHES
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import store
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

f = np.float32
PART = 256  # terms of one running sum of scores: softmax makes an error of a score one of its exponential
CLEAR = 8  # registers of zeros: a bias for the widest panel, and a table of one offset


@register_jitable
def _products(sweep, rows, most, a, a_row, depth, b, c, c_row, zeros, resume, clamp, last, ahead):
    """``c (+)= a @ b`` for ``rows`` rows and one panel b, in tiles of at most ``most`` rows, each of which
    fetches a part of the panel ``ahead``.
    """
    share = depth // UNROLL * PREFETCHES * 64
    tiles1, rows1, tiles2, rows2 = cut_run(rows, most)
    call_gemm_sweep(sweep, rows1, tiles1, a, a_row, zeros, 1, depth, b, c, c_row, zeros, resume, 0, 0, clamp,
                    last, ahead, share, 1, 0, 0, 0)  # fmt: skip
    if tiles2:
        first = tiles1 * rows1
        call_gemm_sweep(sweep, rows2, tiles2, a + first * a_row, a_row, zeros, 1, depth, b,
                        c + first * c_row, c_row, zeros, resume, 0, 0, clamp, last, ahead + tiles1 * share,
                        share, 1, 0, 0, 0)  # fmt: skip


@register_jitable
def clear(s, scratch):
    for i in range(CLEAR):
        store(scratch + i * BYTES, splat(f(0.0)))


@register_jitable
def pack_columns(s, x, x_row, terms, count, panels):
    """Packs ``count`` rows x of so many ``terms`` as columns: panels of keys, as `Attention` has them."""
    key_width = s.key_width
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        pack_panel(x + c * x_row, 4, x_row, terms, count - c, registers, panels + 4 * c * terms)


@register_jitable
def pack_rows(x, x_row, columns, count, width, panels):
    """Packs ``count`` rows x: panels of ``width`` registers of their ``columns``."""
    for c in range(0, columns, width * LANES):
        registers = min(width, (columns - c + LANES - 1) // LANES)
        pack_panel(x + 4 * c, x_row, 4, count, columns - c, registers, panels + 4 * c * count)


@register_jitable
def _pack(s, scratch, k, v, count):
    """Packs a block of keys and values into panels."""
    pack_columns(s, k, s.k_row, s.depth, count, scratch + s.k_panels)
    pack_rows(v, s.v_row, s.features, count, s.width, scratch + s.v_panels)


@register_jitable
def column_products(s, scratch, a, a_row, terms, panels, rows, count, scores):
    """Products of some rows of a, of so many ``terms`` each, with ``count`` packed columns, in parts of
    `PART` terms: whole registers, zeros beyond the columns.
    """
    s_row, key_width, most, clamp = s.score_row, s.key_width, s.key_most, s.minus_inf_cell
    for c in range(0, count, key_width * LANES):
        registers = min(key_width, (count - c + LANES - 1) // LANES)
        sweep = s.tail_key_sweep if registers < key_width else s.key_sweep
        panel = panels + 4 * c * terms
        for first in range(0, terms, PART):
            part = min(PART, terms - first)
            ahead = panel + registers * part * BYTES
            _products(sweep, rows, most, a + 4 * first, a_row, part, panel, scores + 4 * c, s_row, scratch,
                      min(first, 1), clamp, LANES, ahead)  # fmt: skip
            panel = ahead


@register_jitable
def row_products(s, scratch, a, a_row, terms, packed, high, columns, rows, y, y_row, resume):
    """``y (+)= a @ b`` for some rows of a, and the first ``terms`` of ``high`` packed rows b."""
    width, panels, most, clamp = s.width, s.panels, s.most, s.minus_inf_cell
    for p in range(panels):
        c = p * width * LANES
        sweep, last = s.sweep, LANES
        if p == panels - 1:
            sweep = s.tail_sweep
            last = columns - c - (s.tail - 1) * LANES
        panel = packed + 4 * c * high
        ahead = panel + width * high * BYTES
        _products(sweep, rows, most, a, a_row, terms, panel, y + 4 * c, y_row, scratch, resume, clamp, last,
                  ahead)  # fmt: skip


@register_jitable
def score_products(s, scratch, a, a_row, terms, rows, count):
    """Scores of some rows of a and one block of packed keys."""
    column_products(s, scratch, a, a_row, terms, scratch + s.k_panels, rows, count, scratch + s.scores)


@register_jitable
def value_products(s, scratch, a, a_row, terms, rows, y, resume):
    """``y (+)= a @ v`` for some rows of a and one block of packed values."""
    features, y_row, packed = s.features, s.y_row, scratch + s.v_panels
    row_products(s, scratch, a, a_row, terms, packed, terms, features, rows, y, y_row, resume)


@register_jitable
def _scores(s, scratch, q, rows, count):
    """``s = q @ k^T`` for some rows and one block of keys."""
    score_products(s, scratch, q, s.q_row, s.depth, rows, count)


@register_jitable
def _values(s, scratch, rows, count, y, resume):
    """``y (+)= scores @ v`` for some rows and one block of keys."""
    value_products(s, scratch, scratch + s.scores, s.score_row, count, rows, y, resume)


@register_jitable
def _end(s, totals):
    pass


attention = step_kernel(Attention)(
    attention_by(reader(Attention), Products(clear, _pack, _scores, _values, _end))
)
