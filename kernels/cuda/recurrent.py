"""Recurrent layers as one loop (arXiv 1909.13654): a block of threads has some hidden units, all gates of
them, and their weights in registers; products with the inputs of all steps were made before.

In each time step a block needs all of h, which the others made in the step before. It goes through L2 as
cells of 8 bytes: a float32 and the number of the step it is for, written and read at once. Who needs it reads
until the number is right. So there is no barrier and no fence: a value that is there is complete, and a step
costs one write and one read of L2. Two sets of cells change places: a block that overwrites step s with
s + 2 has seen all of s + 1, so everyone is done with s.

That needs all blocks on the GPU at once: they are launched together (cooperatively), which the driver refuses
if they do not fit. Should one be lost nonetheless, the others give up after PATIENCE reads, and make NaN from
there on. The same kernel does one time step per launch where the weights do not fit the chip; then nobody
waits.
"""

from __future__ import annotations

import numpy as np

from bslite.kernels.cuda.device import SIMULATED, cuda, device_function
from bslite.kernels.cuda.exchange import ROOM, exchange, look, publish
from bslite.kernels.cuda.flag import raise_flag
from bslite.kernels.cuda.kernel import kernel
from bslite.kernels.cuda.recurrent_cell import (
    BEFORE,
    FIRST,
    GATES,
    GRU,
    LSTM,
    NEW,
    PROJECTED,
    PROJECTION,
    RELU,
    SECOND,
    gru_cell,
    lstm_cell,
    lstm_output,
    plain_cell,
    sigmoid,
    tanh,
)

PATIENCE = 1 << 3 if SIMULATED else 1 << 23  # reads of L2, some seconds; blocks do not wait in the simulator
NAN = np.float32(np.nan)
f = np.float32


def _folding(count: int, lanes: int):
    """``(sums, lane, room)``: ``count`` sums of each lane of a warp added up over its lanes, in place.

    Both are powers of two. By halves: where lanes still share several sums, each half of them goes on with
    half of the sums, so the whole takes count - 1 + log2(lanes / count) exchanges. Afterwards sums[0] is the
    total number ``lane * count // lanes``.
    """

    def level(count, mask, rest):
        half = count // 2

        @device_function
        def fold(sums, lane, room):
            if count > 1:
                for i in range(half):
                    low, high = sums[i], sums[i + half]
                    upper = lane & mask != 0
                    given = f(exchange(low if upper else high, mask, room))
                    sums[i] = (high if upper else low) + given
            else:
                sums[0] += f(exchange(sums[0], mask, room))
            rest(sums, lane, room)

        return fold

    @device_function
    def done(sums, lane, room):
        pass

    folds, mask, counts = done, 1, []
    while (1 << len(counts)) < lanes:
        counts.append(max(1, count >> len(counts)))
    for own in reversed(counts):
        folds = level(own, mask, folds)
        mask *= 2
    return folds


def _receiving(threads: int, deep: int, together: int):
    """``(source, base, want, ...) -> patience``: all threads wait for ``together`` rows of h, which are then
    in shared memory, zeros beyond their ends. What does not come is NaN, and no patience is left (one read).
    """
    per = -(-deep // threads)

    @device_function
    def received(source, base, want, n0, n_last, depth, h, to, me, zero, patience):
        tries, missing = 0, 1
        while missing != 0 and tries < patience:
            missing = 0
            for j in range(together):
                row = base + min(n0 + j, n_last - 1) * np.int64(depth)
                for e in range(per):  # no branch before a read: all are under way before the first is there
                    k = me + e * threads
                    value, tag = look(source, np.uint64(row + (k if k < depth else 0)), tries * zero)
                    if tag != want:
                        missing = 1
                        value = NAN
                    if k < deep:
                        h[np.uint64(to + j * deep + k)] = value if k < depth else f(0.0)
            missing = cuda.syncthreads_or(missing)
            tries += 1
        return patience if missing == 0 else 1

    return received


ARRAYS = (
    "weights f4[], bias f4[], inputs f4[], state f8[], between f8[], cell f4[], update f4[], peepholes f4[], "
    "y f4[], lengths i4[], flag i4[]"
)
SCALARS = (
    "first i4, stop i4, steps i4, sequences i4, depth i4, width i4, hidden i4, units i4, inputs_row i4, "
    "gate i4, y_time i8, y_row i8, zero i4"
)
LAYER = {
    "warps": 8, "lanes": 32, "parts": 4, "rows": 8, "deep": 6, "batch": 1, "chunk": 1, "biased": 1,
    "reverse": 0, "ragged": 0, "peephole": 0, "together": 1,
}  # fmt: skip


def _recurrent(
    kind: int, warps: int, lanes: int, parts: int, rows: int, deep: int, batch: int, chunk: int,
    biased: int, reverse: int, ragged: int, peephole: int, together: int,
):  # fmt: skip
    threads, span = warps * lanes, lanes * deep
    groups, gates, longest = warps // parts, GATES[kind], parts * span
    block_rows = groups * rows
    second, lstm = kind in SECOND, kind in (LSTM, PROJECTED)
    folded, received = _folding(rows, lanes), _receiving(threads, longest, chunk)
    has_inputs = kind != PROJECTION
    keeps_h = kind not in (PROJECTED,)
    share = lanes // rows
    h_cells, partial_cells = 2 * chunk * longest, parts * block_rows * batch
    kept, sums_cells = rows * deep, max(rows, 4)

    def recurrent(
        weights, bias, inputs, state, between, cell, update, peepholes, y, lengths, flag,
        first, stop, steps, sequences, depth, width, hidden, units, inputs_row, gate, y_time, y_row, zero,
    ):  # fmt: skip
        room = cuda.shared.array(ROOM, np.float64)
        h = cuda.shared.array(h_cells, np.float32)
        partial = cuda.shared.array(partial_cells, np.float32)
        held = cuda.local.array(kept, np.float32)
        sums = cuda.local.array(sums_cells, np.float32)
        x = cuda.local.array(4, np.float32)

        me = cuda.threadIdx.x
        lane, warp = me % lanes, me // lanes
        part, group = warp % parts, warp // parts
        total = width if kind == PROJECTION else hidden  # units of all blocks
        unit0 = cuda.blockIdx.x * units
        n_first = cuda.blockIdx.y * batch
        n_last = min(sequences, n_first + batch)

        for i in range(rows):
            r = group * rows + i
            own, of_gate = unit0 + r % units, r // units
            live = own < total and of_gate < gates
            for d in range(deep):
                k = part * span + d * lanes + lane
                there = live and k < depth
                at = (of_gate * np.int64(total) + own) * depth + k
                value = weights[np.uint64(at if there else 0)]  # no branches: all loads are under way at once
                held[i * deep + d] = value if there else f(0.0)

        # This thread's unit and sequence, where there is one.
        unit, n = unit0 + me % units, n_first + me // units
        mine = unit < total and n < n_last
        length = steps
        c, old, p_i, p_f, p_o, own_bias = f(0.0), f(0.0), f(0.0), f(0.0), f(0.0), f(0.0)
        if mine:
            if ragged:
                length = lengths[np.uint64(n)]
                if length < 1 or length > steps:
                    raise_flag(flag, np.int64(length))
                    length = steps
            if lstm:
                c = cell[np.uint64(n * hidden + unit)]
            if keeps_h:
                at = ((first & 1) * sequences + n) * np.int64(width) + unit
                old, _ = look(state, np.uint64(at), 0)
            if peephole:
                p_i = peepholes[np.uint64(unit)]
                p_f, p_o = peepholes[np.uint64(hidden + unit)], peepholes[np.uint64(2 * hidden + unit)]

        patience = PATIENCE
        turn = 0
        for s in range(first, stop):
            live = mine and s < length
            time = s
            if reverse and live:
                time = length - 1 - s
            if has_inputs and live:
                at = (time * np.int64(sequences) + n) * inputs_row + gate * hidden + unit
                for g in range(gates):
                    x[g] = inputs[np.uint64(at + g * hidden)]
                    if biased and not (kind == GRU and g == 2):
                        x[g] += bias[np.uint64(g * total + unit)]
                if biased and kind == GRU:  # the reset gate sees this one
                    own_bias = bias[np.uint64(2 * total + unit)]

            want = s + 1 if second else s
            base = (want & 1) * np.int64(sequences) * depth
            for n0 in range(n_first, n_last, chunk):
                to = turn * chunk * longest
                turn = 1 - turn
                if second:
                    patience = received(between, base, want, n0, n_last, depth, h, to, me, zero, patience)
                else:
                    patience = received(state, base, want, n0, n_last, depth, h, to, me, zero, patience)
                for j in range(min(chunk, n_last - n0)):
                    for i in range(rows):
                        sums[i] = f(0.0)
                    at_h = np.uint64(to + j * longest + part * span + lane)
                    for d in range(deep):
                        value = h[at_h + np.uint64(d * lanes)]
                        for i in range(rows):
                            sums[i] += held[i * deep + d] * value
                    folded(sums, lane, room)
                    if lane % share == 0:
                        r = group * rows + lane // share
                        at = ((n0 - n_first + j) * parts + part) * block_rows + r
                        partial[np.uint64(at)] = sums[0]
            cuda.syncthreads()

            if mine:
                for g in range(gates):
                    at = (n - n_first) * parts * block_rows + g * units + me % units
                    total_here = partial[np.uint64(at)]
                    for p in range(1, parts):
                        total_here += partial[np.uint64(at + p * block_rows)]
                    sums[g] = total_here
                made = old
                if live:
                    if lstm:
                        c = lstm_cell(x, sums, c, peephole, p_i, p_f)
                        made = lstm_output(x, sums, c, peephole, p_o)
                    elif kind == GRU:
                        sums[2] += own_bias
                        made = gru_cell(x, sums, old)
                    elif kind == BEFORE:
                        made = sigmoid(x[0] + sums[0]) * old
                        update[np.uint64(n * hidden + unit)] = sigmoid(x[1] + sums[1])
                    elif kind == NEW:
                        z = update[np.uint64(n * hidden + unit)]
                        made = (f(1.0) - z) * tanh(x[0] + sums[0]) + z * old
                    elif kind == PROJECTION:
                        made = sums[0]
                    else:
                        made = plain_cell(x[0], sums[0], kind == RELU)
                at = ((s + 1) & 1) * np.int64(sequences) + n
                if kind in FIRST:
                    publish(between, np.uint64(at * hidden + unit), made, s + 1)
                else:
                    publish(state, np.uint64(at * width + unit), made, s + 1)
                    old = made
                    to = time * y_time + n * y_row + unit
                    y[np.uint64(to)] = made if live else f(0.0)
                    if live and s == length - 1:
                        y[np.uint64(steps * y_time + n * y_row + unit)] = made
                if lstm and live and s == length - 1:
                    y[np.uint64((steps + 1) * y_time + n * y_row + unit)] = c
            if together:
                cuda.syncthreads()  # the sums are read, this block's h is out
        if lstm and mine:
            cell[np.uint64(n * hidden + unit)] = c

    return recurrent


@kernel(
    f"{ARRAYS}, {SCALARS}",
    threads=256,
    registers=255,
    samples=[
        {**LAYER, "kind": LSTM},
        {**LAYER, "kind": LSTM, "batch": 16, "chunk": 2, "peephole": 1, "ragged": 1},
        {**LAYER, "kind": GRU, "rows": 16, "deep": 3, "batch": 4, "chunk": 2},
        {**LAYER, "kind": RELU, "parts": 8, "rows": 1, "deep": 4, "reverse": 1, "together": 0},
        *({**LAYER, "kind": kind, "together": 0} for kind in (PROJECTED, PROJECTION, BEFORE, NEW)),
    ],
)
def recurrent(
    kind: int, warps: int, lanes: int, parts: int, rows: int, deep: int, batch: int, chunk: int,
    biased: int, reverse: int, ragged: int, peephole: int, together: int,
):  # fmt: skip
    """Time steps ``first`` to ``stop`` of ``sequences`` sequences, of which a block takes ``batch`` at most
    and ``units`` hidden units; grid: (blocks of units, of sequences). ``together``: the blocks wait for each
    other, else ``stop`` is ``first + 1``.

    ``weights [gates * n, depth]`` of n units; a warp keeps ``rows`` of its block's ``gates * units`` rows,
    ``lanes * deep`` columns of them, and ``parts`` warps share a row. So a thread keeps ``rows * deep``
    weights in registers, 48 at most (48 KB of an SM; see `recurrent_wide`), one block to an SM. ``inputs``
    [steps * sequences, inputs_row], of which the gates begin at ``gate * hidden``. ``state`` [2, sequences,
    width] and ``between`` [2, sequences, hidden] are cells of `publish`; ``cell`` and ``update``
    [sequences, hidden]. ``y [steps + states, sequences, ...]`` has strides ``y_time, y_row``. ``batch`` and
    ``chunk`` (sequences staged at once) are powers of two; ``zero`` is 0.

    For each sequence a thread loads ``deep`` values of h from shared memory, neighbours from neighbouring
    banks, each of which serves ``rows`` multiply-adds; the rows' sums are folded over the warp in rows - 1 +
    log2(lanes / rows) shuffles, 9 for 48 multiply-adds of 8 rows. Waiting for h is what a step of batch 1
    takes: what does not depend on it (products with x, bias) is loaded before.
    """
    return _recurrent(
        kind, warps, lanes, parts, rows, deep, batch, chunk, biased, reverse, ragged, peephole, together
    )


@kernel(
    f"{ARRAYS}, {SCALARS}",
    threads=256,
    registers=255,
    since=(9, 0),
    samples=[
        {**LAYER, "kind": LSTM, "parts": 2, "deep": 16},
        {**LAYER, "kind": GRU, "parts": 4, "rows": 16, "deep": 8, "batch": 4, "chunk": 2},
    ],
)
def recurrent_wide(
    kind: int, warps: int, lanes: int, parts: int, rows: int, deep: int, batch: int, chunk: int,
    biased: int, reverse: int, ragged: int, peephole: int, together: int,
):  # fmt: skip
    """`recurrent` with up to 128 weights to a thread: 8 warps of 32 lanes keep 128 KB of an SM's 256 KB of
    registers. Before compute capability 9.0 the assembler takes more for all else, and would spill.
    """
    return _recurrent(
        kind, warps, lanes, parts, rows, deep, batch, chunk, biased, reverse, ragged, peephole, together
    )


@kernel(
    "given f4[], state f8[], count i4, width i4, given_row i8, given_step i8",
    threads=256,
    registers=40,  # six blocks on an SM; it runs once, over a few thousand values
    samples=[{"threads": 256, "zeros": zeros} for zeros in (0, 1)],
)
def recurrent_start(threads: int, zeros: int):
    """``state [2, sequences, width]``: for step 0 what is given (``zeros``: nothing is), the other set for no
    step at all. ``count`` is sequences * width.
    """

    def recurrent_start(given, state, count, width, given_row, given_step):
        i = cuda.blockIdx.x * threads + cuda.threadIdx.x
        if i < count:
            value = f(0.0)
            if not zeros:
                value = given[np.uint64(i // width * given_row + i % width * given_step)]
            publish(state, np.uint64(i), value, 0)
            publish(state, np.uint64(count + i), f(0.0), -1)

    return recurrent_start
