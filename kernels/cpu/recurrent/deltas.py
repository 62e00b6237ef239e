"""The cells of recurrent layers backwards: the arithmetic on a block's products while they are in L1.

The products are of the deltas of the step after with the recurrent weights: the gradient of h by that way.
A cell adds the gradient of the step's own output and makes of both the deltas of the block, the gradients of
its sums before the gates; what passes by the product (that of c, or a GRU's of the old h) is carried.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import RecurrentDeltas
from bslite.kernels.contracts.recurrent import Cell
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.recurrent.cell import length_of
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, select_lt, splat

F = reader(RecurrentDeltas)
LSTM, GRU, GRU_BEFORE, TANH = int(Cell.LSTM), int(Cell.GRU), int(Cell.BEFORE), int(Cell.TANH)


@register_jitable
def _old(s, t, n, before, at, left):
    """A state before step ``t``, ``before`` bytes in front of h in what is kept of the step before."""
    if t > 0:
        return load_some(s.kept + n * s.kept_row + s.keeps - before + at, left)
    if s.has_start:
        return load_some(s.start + n * s.start_row + at, left)
    return splat(np.float32(0.0))


@register_jitable
def _put(out, state, delta, left):
    """A delta, in the value and for the product of the step before."""
    store_some(out, delta, left)
    store_some(state, delta, left)


@register_jitable
def first_deltas(s, t, first, count, tile, work):
    """Computes the first pass of time step ``t`` for ``count`` blocks from ``first``; before the first step
    the gradients of the initial state.
    """
    kind, batch, steps, hidden, sums = s.kind, s.batch, s.steps, s.hidden, s.sums
    unit, reverse, row_bytes, carry, between = 4 * hidden, s.reverse, s.row_bytes, s.carry, s.between
    kept, kept_time, kept_row = s.kept, s.kept_time, s.kept_row
    grad, grad_time, grad_row = s.grad, s.grad_time, s.grad_row
    made, made_time, made_row = s.made, s.made_time, s.made_row
    state, state_row = s.state + (t & 1) * s.state_bytes, s.state_row
    zero, one = splat(np.float32(0.0)), splat(np.float32(1.0))
    for n in range(batch):
        length = length_of(s, n, steps)
        live, last = t < length, t == length - 1
        time = length - 1 - t if reverse and live else t
        if t < 0:
            time = steps
        earlier = (time + 1 if reverse else time - 1) * kept_time
        for j in range(count):
            block = first + j
            at, left = block * BYTES, hidden - block * LANES
            out = made + time * made_time + n * made_row + at
            if not live:
                for k in range(sums):
                    store_some(out + k * unit, zero, left)
                continue
            carried = carry + n * row_bytes + at
            # A tile's products are stored by rows of the batch, each row by blocks.
            w = work + ((j // tile * batch + n) * tile + j % tile) * BYTES
            by_h = zero
            if not last:
                by_h = load(w)
                if kind in (GRU, GRU_BEFORE):
                    by_h = by_h + load(carried)
            if t < 0:
                store_some(out, by_h, left)
                if kind == LSTM:
                    store_some(out + unit, load(carried), left)
                continue
            g = grad + n * grad_row + at
            by_h = by_h + load_some(g + time * grad_time, left)
            if last:
                by_h = by_h + load_some(g + steps * grad_time, left)
            x = kept + time * kept_time + n * kept_row + at
            to = state + n * state_row + at
            if kind == LSTM:
                by_c = load_some(g + (steps + 1) * grad_time, left) if last else load(carried)
                i, f = load_some(x, left), load_some(x + unit, left)
                new, o = load_some(x + 2 * unit, left), load_some(x + 3 * unit, left)
                seen = vecmath.tanh(load_some(x + 4 * unit, left))
                by_c = by_c + by_h * o * (one - seen * seen)
                c = _old(s, t, n, unit, earlier + at, left) if t else _old(s, t, n, unit, at, left)
                store(carried, by_c * f)
                _put(out, to, by_c * new * i * (one - i), left)
                _put(out + unit, to + unit, by_c * c * f * (one - f), left)
                _put(out + 2 * unit, to + 2 * unit, by_c * i * (one - new * new), left)
                _put(out + 3 * unit, to + 3 * unit, by_h * seen * o * (one - o), left)
            elif kind in (GRU, GRU_BEFORE):
                z, new = load_some(x + unit, left), load_some(x + 2 * unit, left)
                h = _old(s, t, n, 0, earlier + at, left) if t else _old(s, t, n, 0, at, left)
                by_new = by_h * (one - z) * (one - new * new)
                store(carried, by_h * z)
                _put(out + unit, to + unit, by_h * (h - new) * z * (one - z), left)
                store_some(out + 2 * unit, by_new, left)
                if kind == GRU_BEFORE:
                    store_some(between + n * row_bytes + at, by_new, left)
                else:
                    r = load_some(x, left)
                    _put(out, to, by_new * load_some(x + 3 * unit, left) * r * (one - r), left)
                    _put(out + 3 * unit, to + 2 * unit, by_new * r, left)
            else:
                h = load_some(x, left)
                if kind == TANH:
                    _put(out, to, by_h * (one - h * h), left)
                else:
                    _put(out, to, select_lt(zero, h, by_h, zero), left)


@register_jitable
def second_deltas(s, t, first, count, tile, work):
    """The second pass of a GRU whose reset gate precedes the product: ``work`` is the gradient of r * h."""
    batch, steps, hidden, row_bytes, reverse = s.batch, s.steps, s.hidden, s.row_bytes, s.reverse
    state, state_row = s.state + (t & 1) * s.state_bytes, s.state_row
    zero, one = splat(np.float32(0.0)), splat(np.float32(1.0))
    for n in range(batch):
        length = length_of(s, n, steps)
        live = t < length
        time = length - 1 - t if reverse and live else t
        earlier = (time + 1 if reverse else time - 1) * s.kept_time
        for j in range(count):
            block = first + j
            at, left = block * BYTES, hidden - block * LANES
            out = s.made + time * s.made_time + n * s.made_row + at
            if not live:
                store_some(out, zero, left)
                continue
            carried = s.carry + n * row_bytes + at
            by_seen = load(work + ((j // tile * batch + n) * tile + j % tile) * BYTES)
            r = load_some(s.kept + time * s.kept_time + n * s.kept_row + at, left)
            h = _old(s, t, n, 0, earlier + at, left) if t else _old(s, t, n, 0, at, left)
            store(carried, load(carried) + by_seen * r)
            _put(out, state + n * state_row + at, by_seen * h * r * (one - r), left)
