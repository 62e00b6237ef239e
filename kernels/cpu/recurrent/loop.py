"""Recurrent layers as one loop nest (arXiv 1909.13654): for each time step, for each block of hidden units.

A block multiplies h by its units' rows of the recurrent weights, all gates at once, on the GEMM microkernel;
the gates' functions run while the products are in L1 (`cell`), and the block writes its part of the
new h and c. No gate vector ever exists in full. The products with the inputs of all steps are there already;
those of a single step are computed here.

Every thread that comes joins in: threads claim groups of blocks by atomic counters, their own share first, so
that a thread reads the same weights at every step and finds them in its own L2; the sweeps over the shares
alternate between forwards and backwards, so that the end of one step's weights, still in cache, is the
beginning of the next one's. A group is claimed only when the pass before is complete, so no thread waits for
one that has not come.

Two layers need a second pass over blocks in each step: an LSTM whose h is projected, and a GRU that applies
the reset gate before the product.

The planner chooses the blocks of a group and of a tile, the number of threads and the direction of the sweep
(`explore.cpu`); none of these changes a bit of the answer.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import Recurrent
from bslite.kernels.cpu.gemm.int_tile import call_int_sweep
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep
from bslite.kernels.cpu.recurrent.cell import F, first_cells, gates_of, second_cells
from bslite.kernels.cpu.recurrent.rounding import round_state
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.vector.atomic import LINE, fetch_add, load_acquire, wait_until
from bslite.kernels.cpu.vector.memory import load_int, prefetch
from bslite.kernels.cpu.vector.simd import BYTES, LANES


@register_jitable
def product(sweep, s, cut, a, a_row, offsets, taps, chunk_taps, depth, weights, vecs, bias, c):
    """``c[N, vecs*LANES] = a[N, K] @ weights + bias``, c dense; K in parts: `plan/cpu/reduction.py`."""
    tiles1, rows1 = load_int(cut), load_int(cut + 8)
    tiles2, rows2 = load_int(cut + 16), load_int(cut + 24)
    done1, row = tiles1 * rows1, vecs * BYTES
    tap = 0
    while tap < taps:
        count = min(chunk_taps, taps - tap)
        part, line = weights + tap * depth * row, offsets + 8 * tap
        call_gemm_sweep(sweep, rows1, tiles1, a, a_row, line, count, depth, part, c, row, bias, tap, 0, 0,
                        s.minus_inf_cell, LANES, 0, 0, 1, 0, 0, 0)  # fmt: skip
        if tiles2:
            call_gemm_sweep(sweep, rows2, tiles2, a + done1 * a_row, a_row, line, count, depth, part,
                            c + done1 * row, row, bias, tap, 0, 0, s.minus_inf_cell, LANES, 0, 0,
                            1, 0, 0, 0)  # fmt: skip
        tap += count


@register_jitable
def _whole_product(sweep, cut, a, a_row, offsets, depth, weights, vecs, zeros, c):
    """The same of whole numbers: pairs of h, and sums of int32, which are exact in one part."""
    tiles1, rows1 = load_int(cut), load_int(cut + 8)
    tiles2, rows2 = load_int(cut + 16), load_int(cut + 24)
    done1, row = tiles1 * rows1, vecs * BYTES
    call_int_sweep(sweep, rows1, tiles1, a, a_row, offsets, 1, depth, weights, c, row, zeros, 0, weights,
                   0)  # fmt: skip
    if tiles2:
        call_int_sweep(sweep, rows2, tiles2, a + done1 * a_row, a_row, offsets, 1, depth, weights,
                       c + done1 * row, row, zeros, 0, weights, 0)  # fmt: skip


@register_jitable
def _products(s, a, a_row, which, cut, sweep, gates, tile, first, count, work, back):
    """Multiplies ``a`` [N, K] for ``count`` blocks from ``first`` into ``work``, tile by tile.

    ``which``: 0 for the weights of h, 1 for those of the second pass, 2 for those of x.
    """
    batch = s.batch
    if which == 0:
        weights, bias, offsets, taps = s.weights, s.bias, s.offsets, s.taps
        chunk, depth = s.chunk_taps, s.depth
    elif which == 1:
        weights, bias, offsets, taps = s.weights2, s.bias2, s.offsets2, s.taps2
        chunk, depth = s.chunk_taps2, s.depth2
    else:
        weights, bias, offsets, taps = s.weights_x, s.bias_x, s.offsets_x, s.taps_x
        chunk, depth = s.chunk_taps_x, s.depth_x
    vecs, whole = gates * tile, s.rounds
    panel = taps * depth * vecs * (s.weight_register if whole else BYTES)
    tiles = count // tile
    for i in range(tiles):
        j = tiles - 1 - i if back else i
        own = first // tile + j
        start = weights + own * panel
        if whole:
            _whole_product(sweep, cut, a, a_row, offsets, depth, start, vecs, bias + own * vecs * BYTES,
                           work + j * batch * vecs * BYTES)  # fmt: skip
            continue
        product(sweep, s, cut, a, a_row, offsets, taps, chunk, depth, start, vecs,
                 bias + own * vecs * BYTES, work + j * batch * vecs * BYTES)  # fmt: skip


@register_jitable
def _first(s, t, group, old, old_row, work, back, step):
    """Computes the first pass of time step ``t`` for a group of blocks; the products are those of ``old``,
    rounded in units of ``step``.
    """
    units, tile, sweep, cut = s.units, s.tile_units, s.sweep, s.cut0_cell
    first = group * units
    count = min(units, s.blocks - first)
    gates = gates_of(s.kind)
    x_work = 0
    if s.taps_x:
        x_work = work + s.work_bytes // 2
        _products(s, s.x, s.x_row, 2, cut, sweep, gates, tile, first, count, x_work, back)
    _products(s, old, old_row, 0, cut, sweep, gates, tile, first, count, work, back)
    first_cells(s, t, first, count, tile, work, x_work, step)


@register_jitable
def _second(s, t, group, work, back):
    """Computes the second pass of time step ``t`` for a group of blocks."""
    units, tile = s.units2, s.tile_units2
    first = group * units
    count = min(units, s.blocks2 - first)
    _products(s, s.between, s.row_bytes, 1, s.cut_second0_cell, s.sweep2, 1, tile, first, count, work, back)
    second_cells(s, t, first, count, tile, work)


@register_jitable
def _fetch_state(s, t):
    """Prefetches all of h: other cores wrote half of it, and each of its lines takes long to arrive."""
    state = s.state + (t & 1) * s.state_bytes
    for line in range(0, s.state_bytes, LINE):
        prefetch(state + line)


@register_jitable
def _groups(s, second):
    """The number of groups of blocks in a pass."""
    if second:
        return -(-s.blocks2 // s.units2)
    return -(-s.blocks // s.units)


@step_kernel(Recurrent)
def recurrent(step, bases, item, scratch):
    """Joins in all time steps until no group is left; there are as many items as threads may come."""
    s = F(step, bases)
    shares, steps, counters, alternate = s.shares, s.steps, s.counters, s.sweeps_back
    stride = (1 + shares) * LINE
    work = s.work + item * s.work_bytes
    passes = 2 if s.blocks2 else 1
    rounded, rounded_for, unit = s.rounded + item * s.batch * s.rounded_row, -1, np.float32(1.0)
    old_row = s.rounded_row if s.rounds else s.state_row
    before = 0
    for stage in range(steps * passes):
        t, second = stage // passes, stage % passes
        back = alternate & t & 1
        old = rounded if s.rounds else s.state + (t & 1) * s.state_bytes
        finished = counters + stage * stride
        ready = stage == 0
        groups = _groups(s, second)
        for turn in range(shares):
            share = (item + turn) % shares
            first, last = groups * share // shares, groups * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            while first + load_acquire(claimed) < last:
                if not ready:
                    wait_until(finished - stride, before)
                    ready = True
                    _fetch_state(s, t)
                if s.rounds and rounded_for != t:
                    unit = round_state(s, t, rounded)
                    rounded_for = t
                i = first + fetch_add(claimed, 1)
                if i < last:
                    group = first + last - 1 - i if back else i
                    if second:
                        _second(s, t, group, work, back)
                    else:
                        _first(s, t, group, old, old_row, work, back, unit)
                    fetch_add(finished, 1)
        before = groups
