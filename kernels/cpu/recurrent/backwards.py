"""Recurrent layers backwards as one loop nest: for each time step from the last, for each block of units.

A block multiplies the deltas of the step after by its columns of the recurrent weights, on the GEMM
microkernel; `deltas` then makes the block's own while the products are in L1. Threads claim groups of blocks
as in `loop`; none of the planner's choices changes a bit.
"""

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import RecurrentDeltas
from bslite.kernels.cpu.recurrent.deltas import F, first_deltas, second_deltas
from bslite.kernels.cpu.recurrent.loop import product
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.vector.atomic import LINE, fetch_add, load_acquire, wait_until
from bslite.kernels.cpu.vector.simd import BYTES


@register_jitable
def _products(s, a, a_row, second, first, count, work):
    """Multiplies ``a`` [N, K] for ``count`` blocks from ``first`` into ``work``, tile by tile."""
    tile, cut, sweep, batch, bias = s.tile_units, s.cut0_cell, s.sweep, s.batch, s.bias
    weights, offsets, taps, chunk, depth = s.weights, s.offsets, s.taps, s.chunk_taps, s.depth
    if second:
        weights, offsets, taps, chunk, depth = s.weights2, s.offsets2, s.taps2, s.chunk_taps2, s.depth2
    for i in range(count // tile):
        start = weights + (first // tile + i) * taps * depth * tile * BYTES
        product(sweep, s, cut, a, a_row, offsets, taps, chunk, depth, start, tile, bias,
                work + i * batch * tile * BYTES)  # fmt: skip


@register_jitable
def _group(s, t, second, group, work):
    """Computes a pass of time step ``t`` for a group of blocks."""
    first, units = group * s.units, s.units
    count = min(units, s.blocks - first)
    if second:
        _products(s, s.between, s.row_bytes, 1, first, count, work)
        second_deltas(s, t, first, count, s.tile_units, work)
        return
    if t < s.steps - 1:
        _products(s, s.state + ((t + 1) & 1) * s.state_bytes, s.state_row, 0, first, count, work)
    first_deltas(s, t, first, count, s.tile_units, work)


@step_kernel(RecurrentDeltas)
def recurrent_deltas(step, bases, item, scratch):
    """Joins in all time steps until no group is left; there are as many items as threads may come."""
    s = F(step, bases)
    shares, steps, counters, passes = s.shares, s.steps, s.counters, s.passes
    stride = (1 + shares) * LINE
    work = s.work + item * s.work_bytes
    groups = -(-s.blocks // s.units)
    for stage in range(steps * passes + s.has_start):
        t, second = steps - 1 - stage // passes, stage % passes
        finished = counters + stage * stride
        ready = stage == 0
        for turn in range(shares):
            share = (item + turn) % shares
            first, last = groups * share // shares, groups * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            while first + load_acquire(claimed) < last:
                if not ready:
                    wait_until(finished - stride, groups)
                    ready = True
                i = first + fetch_add(claimed, 1)
                if i < last:
                    _group(s, t, second, i, work)
                    fetch_add(finished, 1)
