"""Recurrent layers as one loop nest (arXiv 1909.13654): for each time step, for each block of hidden units.

The products with the inputs of all steps are there already. A block takes the product of h with its units'
rows of the recurrent weights, all gates at once, on the GEMM microkernel; the gates go through their
functions while they are in L1, and what is written is the block's part of the new h and c. No gate vector
ever exists in full.

Every thread that comes joins in: blocks of a step are claimed by atomic counters, a thread's own share first,
so that it reads the same weights at every step and finds them in its own L2; the shares are swept forwards
and backwards in turn, so that the end of one step's weights, still in cache, is the beginning of the next
one's. A block is claimed only when the step before is complete, so nobody waits for a thread that has not
come.

Two layers need a second pass over blocks in each step: an LSTM whose h is projected, and a GRU that applies
the reset gate before the product.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu import vecmath
from bslite.kernels.cpu.atomic import LINE, fetch_add, load_acquire, wait_until
from bslite.kernels.cpu.compile import record, step_kernel
from bslite.kernels.cpu.flag import raise_flag
from bslite.kernels.cpu.operand import operand
from bslite.kernels.cpu.partial import store_some
from bslite.kernels.cpu.simd import BYTES, LANES, load, load_cell, load_int, splat, store, vmax
from bslite.kernels.cpu.sweep import call_gemm_sweep

LSTM, GRU, GRU_BEFORE, TANH, RELU, PROJECTED = 0, 1, 2, 3, 4, 5  # kinds
F = record(
    "recurrent",
    # inputs: [T, N] rows of the products with x, per block all gates; state: two turns of h [N] rows; cell:
    # c; between: what the first pass leaves for the second, [N] rows; update: GRU_BEFORE's update gate; y:
    # the layer's value
    "inputs inputs_at state state_at cell cell_at between between_at update update_at y y_at work work_at "
    "weights weights_at bias bias_at weights2 weights2_at bias2 bias2_at peephole peephole_at "
    "offsets offsets_at offsets2 offsets2_at lengths lengths_at counters counters_at flag flag_at "
    # byte strides; state_bytes: one turn of h; row_bytes: a row of the cells, of `between` and of `update`
    "inputs_row y_time y_row state_row state_bytes row_bytes work_bytes "
    # blocks of LANES units in either pass (none in the second where there is none), floats of h and of c
    "kind steps batch blocks blocks2 width hidden shares reverse has_lengths has_peephole sweeps_back "
    "taps chunk_taps depth taps2 chunk_taps2 depth2 "
    "tiles1 rows1 tiles2 rows2 sweep sweep2 minus_inf plus_inf",
)


@register_jitable
def _product(sweep, step, a, a_row, offsets, taps, chunk_taps, depth, weights, vecs, bias, c):
    """``c[N, vecs*LANES] = a[N, K] @ weights + bias``, c dense; K in the parts of `plan.reduction`."""
    tiles1, rows1 = load_int(step + F.tiles1), load_int(step + F.rows1)
    tiles2, rows2 = load_int(step + F.tiles2), load_int(step + F.rows2)
    done1, row = tiles1 * rows1, vecs * BYTES
    end = weights + taps * depth * row
    tap = 0
    while tap < taps:
        count = min(chunk_taps, taps - tap)
        part, line = weights + tap * depth * row, offsets + 8 * tap
        call_gemm_sweep(sweep, rows1, tiles1, a, a_row, line, count, depth, part, c, row, bias, tap, 0, 0,
                        step + F.minus_inf, LANES, end, 0)  # fmt: skip
        if tiles2:
            call_gemm_sweep(sweep, rows2, tiles2, a + done1 * a_row, a_row, line, count, depth, part,
                            c + done1 * row, row, bias, tap, 0, 0, step + F.minus_inf, LANES,
                            end, 0)  # fmt: skip
        tap += count


@register_jitable
def _first(step, bases, s, block, work):
    """The first pass of time step ``s`` for a block of units."""
    kind, batch, steps = load_int(step + F.kind), load_int(step + F.batch), load_int(step + F.steps)
    vecs = 4 if kind in (LSTM, PROJECTED) else 3 if kind == GRU else 2 if kind == GRU_BEFORE else 1
    gates = 3 if kind == GRU_BEFORE else vecs
    state_bytes, state_row = load_int(step + F.state_bytes), load_int(step + F.state_row)
    old = operand(step, bases, F.state) + (s & 1) * state_bytes
    new = operand(step, bases, F.state) + (1 - (s & 1)) * state_bytes
    taps, depth = load_int(step + F.taps), load_int(step + F.depth)
    chunk, offsets = load_int(step + F.chunk_taps), operand(step, bases, F.offsets)
    weights = operand(step, bases, F.weights) + block * taps * depth * vecs * BYTES
    bias = operand(step, bases, F.bias) + block * vecs * BYTES
    sweep = load_int(step + F.sweep)
    _product(sweep, step, old, state_row, offsets, taps, chunk, depth, weights, vecs, bias, work)
    at = block * BYTES
    row_bytes = load_int(step + F.row_bytes)
    cell, between = operand(step, bases, F.cell) + at, operand(step, bases, F.between) + at
    update = operand(step, bases, F.update) + at
    inputs = operand(step, bases, F.inputs) + block * gates * BYTES
    inputs_row = load_int(step + F.inputs_row)
    y, y_time = operand(step, bases, F.y) + at, load_int(step + F.y_time)
    y_row = load_int(step + F.y_row)
    reverse, peephole = load_int(step + F.reverse), load_int(step + F.has_peephole)
    width, hidden = load_int(step + F.width) - block * LANES, load_int(step + F.hidden) - block * LANES
    p = operand(step, bases, F.peephole) + 3 * at
    one = splat(np.float32(1.0))
    for n in range(batch):
        length = _length(step, bases, n, steps)
        live = s < length
        time = length - 1 - s if reverse and live else s
        x, w = inputs + (time * batch + n) * inputs_row, work + n * vecs * BYTES
        h_old, h_new = old + n * state_row + at, new + n * state_row + at
        mine = n * row_bytes
        out = y + time * y_time + n * y_row
        last = y + steps * y_time + n * y_row
        if not live:
            if kind == PROJECTED:
                continue  # the second pass keeps h; c stays as it is
            store(h_new, load(h_old))
            store_some(out, splat(np.float32(0.0)), width)
            if kind == GRU_BEFORE:
                store(between + mine, splat(np.float32(0.0)))
            continue
        if kind in (LSTM, PROJECTED):
            c = load(cell + mine)
            i, f = load(x) + load(w), load(x + BYTES) + load(w + BYTES)
            if peephole:
                i = i + load(p) * c
                f = f + load(p + BYTES) * c
            g = vecmath.tanh(load(x + 2 * BYTES) + load(w + 2 * BYTES))
            c = vecmath.sigmoid(f) * c + vecmath.sigmoid(i) * g
            o = load(x + 3 * BYTES) + load(w + 3 * BYTES)
            if peephole:
                o = o + load(p + 2 * BYTES) * c
            h = vecmath.sigmoid(o) * vecmath.tanh(c)
            store(cell + mine, c)
            if s == length - 1:
                store_some(last + y_time, c, hidden)
            if kind == PROJECTED:
                store(between + mine, h)
                continue
        elif kind == GRU:
            r, z = vecmath.sigmoid(load(x) + load(w)), vecmath.sigmoid(load(x + BYTES) + load(w + BYTES))
            new_gate = vecmath.tanh(load(x + 2 * BYTES) + r * load(w + 2 * BYTES))
            h = (one - z) * new_gate + z * load(h_old)
        elif kind == GRU_BEFORE:
            r, z = vecmath.sigmoid(load(x) + load(w)), vecmath.sigmoid(load(x + BYTES) + load(w + BYTES))
            store(update + mine, z)
            store(between + mine, r * load(h_old))
            continue
        elif kind == TANH:
            h = vecmath.tanh(load(x) + load(w))
        else:
            h = vmax(splat(np.float32(0.0)), load(x) + load(w))
        store(h_new, h)
        store_some(out, h, width)
        if s == length - 1:
            store_some(last, h, width)


@register_jitable
def _second(step, bases, s, block, work):
    """The second pass: the projection of h, or the new gate of a GRU whose reset comes before the product."""
    kind, batch, steps = load_int(step + F.kind), load_int(step + F.batch), load_int(step + F.steps)
    state_bytes, state_row = load_int(step + F.state_bytes), load_int(step + F.state_row)
    old = operand(step, bases, F.state) + (s & 1) * state_bytes
    new = operand(step, bases, F.state) + (1 - (s & 1)) * state_bytes
    taps, depth = load_int(step + F.taps2), load_int(step + F.depth2)
    row_bytes = load_int(step + F.row_bytes)
    between = operand(step, bases, F.between)
    chunk, offsets = load_int(step + F.chunk_taps2), operand(step, bases, F.offsets2)
    weights = operand(step, bases, F.weights2) + block * taps * depth * BYTES
    bias, sweep = operand(step, bases, F.bias2) + block * BYTES, load_int(step + F.sweep2)
    _product(sweep, step, between, row_bytes, offsets, taps, chunk, depth, weights, 1, bias, work)
    at = block * BYTES
    y, y_time, y_row = operand(step, bases, F.y) + at, load_int(step + F.y_time), load_int(step + F.y_row)
    inputs = operand(step, bases, F.inputs) + (3 * block + 2) * BYTES
    inputs_row = load_int(step + F.inputs_row)
    update = operand(step, bases, F.update) + at
    reverse, width = load_int(step + F.reverse), load_int(step + F.width) - block * LANES
    one = splat(np.float32(1.0))
    for n in range(batch):
        length = _length(step, bases, n, steps)
        live = s < length
        time = length - 1 - s if reverse and live else s
        h_old = old + n * state_row + at
        out = y + time * y_time + n * y_row
        if not live:
            store(new + n * state_row + at, load(h_old))
            store_some(out, splat(np.float32(0.0)), width)
            continue
        h = load(work + n * BYTES)
        if kind == GRU_BEFORE:
            z = load(update + n * row_bytes)
            h = (one - z) * vecmath.tanh(load(inputs + (time * batch + n) * inputs_row) + h) + z * load(h_old)
        store(new + n * state_row + at, h)
        store_some(out, h, width)
        if s == length - 1:
            store_some(y + steps * y_time + n * y_row, h, width)


@register_jitable
def _length(step, bases, n, steps):
    """Length of sequence ``n``; one that cannot be is flagged, and counts as all steps."""
    if not load_int(step + F.has_lengths):
        return steps
    length = load_cell(operand(step, bases, F.lengths) + 4 * n)
    if length < 1 or length > steps:
        raise_flag(operand(step, bases, F.flag), length)
        return steps
    return length


@step_kernel("recurrent", F)
def recurrent(step, bases, item, scratch):
    """Join in all time steps until no block is left; items: as many as threads may come."""
    shares = load_int(step + F.shares)
    stride = (1 + shares) * LINE
    counters = operand(step, bases, F.counters)
    work = operand(step, bases, F.work) + item * load_int(step + F.work_bytes)
    blocks, blocks2 = load_int(step + F.blocks), load_int(step + F.blocks2)
    passes = 2 if blocks2 else 1
    back = load_int(step + F.sweeps_back)
    for stage in range(load_int(step + F.steps) * passes):
        s, second = stage // passes, stage % passes
        count = blocks2 if second else blocks
        before = blocks2 if passes == 2 and not second else blocks
        finished = counters + stage * stride
        ready = stage == 0
        for turn in range(shares):
            share = (item + turn) % shares
            first, last = count * share // shares, count * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            if first + load_acquire(claimed) >= last:
                continue
            if not ready:
                wait_until(finished - stride, before)
                ready = True
            i = first + fetch_add(claimed, 1)
            while i < last:
                block = first + last - 1 - i if back and s & 1 else i
                if second:
                    _second(step, bases, s, block, work)
                else:
                    _first(step, bases, s, block, work)
                fetch_add(finished, 1)
                i = first + fetch_add(claimed, 1)
