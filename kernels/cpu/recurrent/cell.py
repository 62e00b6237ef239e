"""The cells of recurrent layers: the arithmetic on a block's products while they are in L1.

A block is one register of hidden units with all its gates. Its products with h lie in ``work``, those with x
in ``inputs``; from them a cell computes the block's part of the new h and c and of the layer's output.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.recurrent import Recurrent
from bslite.kernels.contracts.recurrent import Cell
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, load_cell, load_some, store, store_some
from bslite.kernels.cpu.vector.pairs import real_of
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat, vmax

F = reader(Recurrent)
LSTM, GRU, GRU_BEFORE, PROJECTED = int(Cell.LSTM), int(Cell.GRU), int(Cell.BEFORE), int(Cell.PROJECTED)
TANH = int(Cell.TANH)


@register_jitable
def gates_of(kind):
    """The registers of a block's products with h in the first pass."""
    return 4 if kind in (LSTM, PROJECTED) else 3 if kind == GRU else 2 if kind == GRU_BEFORE else 1


@register_jitable
def length_of(s, n, steps):
    """The length of sequence ``n``; an invalid one is flagged, and counts as all steps."""
    if not s.has_lengths:
        return steps
    length = load_cell(s.lengths + 4 * n)
    if length < 1 or length > steps:
        raise_flag(s.flag, length)
        return steps
    return length


@register_jitable
def _sum(rounds, x, w, by, step, left):
    """A gate's sum for a block: the products with x and those with h, scaled where they are whole numbers."""
    if rounds:
        return load_some(x, left) + real_of(load(w)) * (load(by) * step)
    return load_some(x, left) + load(w)


@register_jitable
def _forget(out, keeps, gate, left):
    """Zeros in what is kept of a step behind a sequence's end."""
    for before in range(gate, keeps + 1, gate):
        store_some(out - before, splat(np.float32(0.0)), left)


@register_jitable
def first_cells(s, t, first, count, tile, work, x_work, step):
    """Computes the first pass of time step ``t`` for ``count`` blocks from ``first``; products with x, if
    any, lie at ``x_work``. ``step`` is what the numbers of a rounded h stand for.
    """
    kind, batch, steps = s.kind, s.batch, s.steps
    vecs = gates_of(kind)
    state_bytes, state_row = s.state_bytes, s.state_row
    old = s.state + (t & 1) * state_bytes
    new = s.state + (1 - (t & 1)) * state_bytes
    row_bytes, cell, between, update = s.row_bytes, s.cell, s.between, s.update
    inputs, inputs_row, peephole, peepholes = s.inputs, s.inputs_row, s.has_peephole, s.peephole
    y, y_time, y_row, reverse = s.y, s.y_time, s.y_row, s.reverse
    floats, hiddens, rounds = s.width, s.hidden, s.rounds
    inputs_block, gate, scales, number = s.inputs_block, BYTES, s.scale, splat(step)
    keeps, unit, last_c = s.keeps, 4 * s.hidden, s.last_c
    if not x_work:
        gate = s.inputs_gate
    row = tile * vecs * BYTES
    one = splat(np.float32(1.0))
    for n in range(batch):
        length = length_of(s, n, steps)
        live = t < length
        time = length - 1 - t if reverse and live else t
        for j in range(count):
            block = first + j
            at = block * BYTES
            # A tile's products are stored by rows of the batch, each row by blocks.
            place = (j // tile * batch + n) * row + j % tile * vecs * BYTES
            w = work + place
            x = x_work + place if x_work else inputs + (time * batch + n) * inputs_row + block * inputs_block
            width, hidden = floats - block * LANES, hiddens - block * LANES
            h_old, h_new = old + n * state_row + at, new + n * state_row + at
            mine = n * row_bytes + at
            out = y + time * y_time + n * y_row + at
            last = y + steps * y_time + n * y_row + at
            if not live:
                if kind == PROJECTED:
                    continue  # the second pass keeps h; c does not change
                _forget(out, keeps, unit, hidden)
                store(h_new, load(h_old))
                store_some(out, splat(np.float32(0.0)), width)
                if kind == GRU_BEFORE:
                    store(between + mine, splat(np.float32(0.0)))
                continue
            if kind in (LSTM, PROJECTED):
                p = peepholes + 3 * at
                c = load(cell + mine)
                by = scales + 4 * at
                i = _sum(rounds, x, w, by, number, hidden)
                f = _sum(rounds, x + gate, w + BYTES, by + BYTES, number, hidden)
                if peephole:
                    i = i + load(p) * c
                    f = f + load(p + BYTES) * c
                g = _sum(rounds, x + 2 * gate, w + 2 * BYTES, by + 2 * BYTES, number, hidden)
                i, f, g = vecmath.sigmoid(i), vecmath.sigmoid(f), vecmath.tanh(g)
                c = f * c + i * g
                o = _sum(rounds, x + 3 * gate, w + 3 * BYTES, by + 3 * BYTES, number, hidden)
                if peephole:
                    o = o + load(p + 2 * BYTES) * c
                o = vecmath.sigmoid(o)
                h = o * vecmath.tanh(c)
                store(cell + mine, c)
                if keeps:
                    kept = out - keeps
                    store_some(kept, i, hidden)
                    store_some(kept + unit, f, hidden)
                    store_some(kept + 2 * unit, g, hidden)
                    store_some(kept + 3 * unit, o, hidden)
                    store_some(kept + 4 * unit, c, hidden)
                if t == length - 1:
                    store_some(last + last_c, c, hidden)
                if kind == PROJECTED:
                    store(between + mine, h)
                    continue
            elif kind == GRU:
                r = vecmath.sigmoid(load_some(x, hidden) + load(w))
                z = vecmath.sigmoid(load_some(x + gate, hidden) + load(w + BYTES))
                seen = load(w + 2 * BYTES)
                new_gate = vecmath.tanh(load_some(x + 2 * gate, hidden) + r * seen)
                h = (one - z) * new_gate + z * load(h_old)
                if keeps:
                    kept = out - keeps
                    store_some(kept, r, hidden)
                    store_some(kept + unit, z, hidden)
                    store_some(kept + 2 * unit, new_gate, hidden)
                    store_some(kept + 3 * unit, seen, hidden)
            elif kind == GRU_BEFORE:
                r = vecmath.sigmoid(load_some(x, hidden) + load(w))
                z = vecmath.sigmoid(load_some(x + gate, hidden) + load(w + BYTES))
                store(update + mine, z)
                store(between + mine, r * load(h_old))
                if keeps:
                    store_some(out - keeps, r, hidden)
                    store_some(out - keeps + unit, z, hidden)
                continue
            elif kind == TANH:
                h = vecmath.tanh(load_some(x, hidden) + load(w))
            else:
                h = vmax(splat(np.float32(0.0)), load_some(x, hidden) + load(w))
            store(h_new, h)
            store_some(out, h, width)
            if t == length - 1:
                store_some(last, h, width)


@register_jitable
def second_cells(s, t, first, count, tile, work):
    """The second pass: the projection of h, or the new gate of a GRU whose reset precedes the product."""
    kind, batch, steps = s.kind, s.batch, s.steps
    state_bytes, state_row = s.state_bytes, s.state_row
    old = s.state + (t & 1) * state_bytes
    new = s.state + (1 - (t & 1)) * state_bytes
    row_bytes, inputs, inputs_row, update = s.row_bytes, s.inputs, s.inputs_row, s.update
    y, y_time, y_row, reverse, floats = s.y, s.y_time, s.y_row, s.reverse, s.width
    inputs_block, gate, keeps, unit = s.inputs_block, s.inputs_gate, s.keeps, 4 * s.hidden
    one = splat(np.float32(1.0))
    for n in range(batch):
        length = length_of(s, n, steps)
        live = t < length
        time = length - 1 - t if reverse and live else t
        for j in range(count):
            block = first + j
            at, width = block * BYTES, floats - block * LANES
            h_old = old + n * state_row + at
            h_new = new + n * state_row + at
            out = y + time * y_time + n * y_row + at
            if not live:
                store(h_new, load(h_old))
                store_some(out, splat(np.float32(0.0)), width)
                _forget(out, keeps, unit, width)
                continue
            h = load(work + (j // tile * batch + n) * tile * BYTES + j % tile * BYTES)
            if kind == GRU_BEFORE:
                z = load(update + n * row_bytes + at)
                x = inputs + (time * batch + n) * inputs_row + block * inputs_block + 2 * gate
                new_gate = vecmath.tanh(load_some(x, width) + h)
                h = (one - z) * new_gate + z * load(h_old)
                if keeps:
                    store_some(out - unit, new_gate, width)
            store(h_new, h)
            store_some(out, h, width)
            if t == length - 1:
                store_some(y + steps * y_time + n * y_row + at, h, width)
