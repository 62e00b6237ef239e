"""Recurrent layers as one loop (arXiv 1909.13654): a block of threads has some hidden units, all of their
gates, and their weights on chip as far as they fit (`recurrent.sums` says where). An earlier product covers
the inputs of all steps.

In each time step a block needs all of h, which the other blocks computed in the step before. It goes through
L2 as cells of 8 bytes: a float32 and the number of the step it is for, written and read at once. A reader
polls until the number is right. So there is no barrier and no fence: a value that is there is complete, and a
step costs one write and one read of L2. Two sets of cells alternate: a block that overwrites step s with s +
2 has seen all of s + 1, so all blocks are done with s.

All blocks must therefore be on the GPU at once. They are launched together (cooperatively), which the driver
refuses if they do not fit; the planner makes at most one per SM, which has all registers and most of the
shared memory. If a block is lost nonetheless, the others give up after PATIENCE reads, and their results are
NaN from there on. The same kernel does one time step per launch where a layer has two passes a step, or there
are more blocks than SMs; then no block waits.
"""

import numpy as np

from bslite.kernels.contracts.cuda.recurrent import (
    QUAD,
    TILE,
    RecurrentVariant,
    Start,
    StartVariant,
    Steps,
    StepsWide,
    Tile,
)
from bslite.kernels.cuda.recurrent.cell import (
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
from bslite.kernels.cuda.recurrent.sums import folding, multiplying, reading, storing
from bslite.kernels.cuda.runtime.device import SIMULATED, cuda, device_function
from bslite.kernels.cuda.runtime.exchange import ROOM, look, publish
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

PATIENCE = 1 << 3 if SIMULATED else 1 << 23  # reads of L2, some seconds; blocks do not wait in the simulator
NAN = np.float32(np.nan)
f = np.float32


def _receiving(threads: int, deep: int, together: int):
    """Return ``(source, base, want, ...) -> patience``: all threads wait until ``together`` rows of h are in
    shared memory, with zeros beyond their ends. Values that do not come are NaN, and patience drops to 1.
    """
    per = -(-deep // threads)

    @device_function
    def received(source, base, want, n0, n_last, depth, h, to, me, zero, patience):
        tries, missing = 0, 1
        while missing != 0 and tries < patience:
            missing = 0
            for j in range(together):
                row = base + min(n0 + j, n_last - 1) * np.int64(depth)
                for e in range(per):  # no branch before a read: all are under way before the first arrives
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


#: A tile with weights in all three places; four sequences at a time.
MIXED = TILE._replace(parts=1, held=2, rounds=4, near=2, far=2)
FOUR = {"abreast": 4, "batch": 4, "chunk": 4}


def _dynamic(variant):
    """Return the bytes of weights in shared memory."""
    return Tile(*(variant[name] for name in Tile._fields)).dynamic


def _array(s):
    """Return the size of the array of weights: 0 where the launch sets it (`Kernel.dynamic`)."""
    return max(1, s.cells) if SIMULATED or not s.cells else 0


def _recurrent(kind, s, biased, reverse, ragged, peephole, together):
    batch, chunk = s.batch, s.chunk
    lanes, parts, rows, abreast, longest, span = s.lanes, s.parts, s.rows, s.abreast, s.longest, s.span
    threads, block_rows, gates = s.threads, s.block_rows, GATES[kind]
    second, lstm = kind in SECOND, kind in (LSTM, PROJECTED)
    has_inputs, keeps_h = kind != PROJECTION, kind != PROJECTED
    folded, received = folding(s.sums, lanes), _receiving(threads, longest, chunk)
    hold, store, multiply = reading(s, s.held), storing(s), multiplying(s)
    fetch, fetched_first = reading(s, s.far), (s.held + s.near) * lanes
    turns = s.turns
    h_cells, partial_cells = turns * chunk * longest, parts * block_rows * batch
    own_sums, totals, share = rows * abreast, max(1, s.sums // lanes), max(1, lanes // s.sums)
    sums_cells, stored_cells = max(s.sums, 4), _array(s)
    held_cells, near_cells, far_cells = (max(1, n) for n in (rows * s.held, QUAD * s.quads, rows * s.far))

    def recurrent(
        inputs, cell, peepholes, y, lengths, flag, weights, bias, state, between, update,
        steps, sequences, hidden, inputs_row, y_time, y_row, first, stop, depth, width, units, gate, zero,
    ):  # fmt: skip
        room = cuda.shared.array(ROOM, np.float64)
        h = cuda.shared.array(h_cells, np.float32)
        partial = cuda.shared.array(partial_cells, np.float32)
        stored = cuda.shared.array(stored_cells, np.float32, alignment=16)
        kept = cuda.local.array(held_cells, np.float32)
        now = cuda.local.array(near_cells, np.float32)
        ahead = cuda.local.array(far_cells, np.float32)
        row_at = cuda.local.array(rows, np.uint32)
        value = cuda.local.array(abreast, np.float32)
        sums = cuda.local.array(sums_cells, np.float32)
        x = cuda.local.array(4, np.float32)

        me = cuda.threadIdx.x
        lane, warp = me % lanes, me // lanes
        part, group = warp % parts, warp // parts
        total = width if kind == PROJECTION else hidden  # units of all blocks
        unit0 = cuda.blockIdx.x * units
        n_first = cuda.blockIdx.y * batch
        n_last = min(sequences, n_first + batch)

        # Divisions are of unsigned 32 bits: those of 64 are calls, which registers would have to survive.
        own_row = np.int32(np.uint32(me) // np.uint32(units))
        own_unit = me - own_row * units
        of_gate = np.int32(np.uint32(group * rows) // np.uint32(units))
        own = np.int32(group * rows - of_gate * units)
        for i in range(rows):
            live = unit0 + own < total and of_gate < gates  # sums of other rows are ignored
            row_at[i] = np.uint32((of_gate * total + unit0 + own) * depth if live else 0)
            last = own == units - 1
            own, of_gate = np.int32(0 if last else own + 1), np.int32(of_gate + 1 if last else of_gate)
        column = np.uint32(part * span + lane)
        hold(0, weights, row_at, column, depth, kept)
        store(weights, row_at, column, depth, me, now, stored)
        fetch(0, weights, row_at, column + fetched_first, depth, ahead)

        # This thread's unit and sequence, if any.
        unit, n = unit0 + own_unit, n_first + own_row
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
                if biased and kind == GRU:  # the reset gate applies to this bias, too
                    own_bias = bias[np.uint64(2 * total + unit)]

            want = s + 1 if second else s
            base = (want & 1) * np.int64(sequences) * depth
            for n0 in range(n_first, n_last, chunk):
                to = turn * chunk * longest
                turn = (turn + 1) % turns
                if second:
                    patience = received(between, base, want, n0, n_last, depth, h, to, me, zero, patience)
                else:
                    patience = received(state, base, want, n0, n_last, depth, h, to, me, zero, patience)
                for j in range(0, min(chunk, n_last - n0), abreast):
                    at_h = np.uint32(to + j * longest + part * span + lane)
                    multiply(
                        weights, row_at, column, depth, me, kept, stored, ahead, now, value, h, at_h,
                        sums, zero,
                    )  # fmt: skip
                    folded(sums, lane, room)
                    if lane % share == 0:
                        for e in range(totals):
                            number = lane // share * totals + e
                            if number < own_sums:
                                row = n0 - n_first + j + number // rows
                                at = (row * parts + part) * block_rows + group * rows + number % rows
                                partial[np.uint64(at)] = sums[e]
            cuda.syncthreads()

            if mine:
                for g in range(gates):
                    at = (n - n_first) * parts * block_rows + g * units + own_unit
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
                cuda.syncthreads()  # the sums are read, and this block's h is written
        if lstm and mine:
            cell[np.uint64(n * hidden + unit)] = c

    return recurrent


@kernel(
    Steps,
    registers=255,
    dynamic=_dynamic,
    samples=[
        RecurrentVariant(LSTM),
        RecurrentVariant(LSTM, tile=MIXED._replace(batch=16, chunk=2), peephole=1, ragged=1),
        RecurrentVariant(GRU, tile=TILE._replace(rows=15, held=2, abreast=2, batch=4, chunk=2)),
        RecurrentVariant(RELU, tile=TILE._replace(parts=8, rows=1, held=4), reverse=1, together=0),
        *(RecurrentVariant(kind, together=0) for kind in (PROJECTED, PROJECTION, BEFORE, NEW)),
    ],
)
def recurrent(kind, biased, reverse, ragged, peephole, together, **tile):
    """Compute time steps ``first`` to ``stop`` of ``sequences`` sequences, of which a block takes ``batch``
    at most and ``units`` hidden units; grid: (blocks of units, of sequences). ``together``: the blocks wait
    for each other, else ``stop`` is ``first + 1``.

    ``weights [gates * n, depth]`` of n units; a warp takes ``rows`` of its block's ``gates * units`` rows,
    ``parts`` warps share a row; ``held``, ``rounds``, ``near``, ``far`` place a lane's weights (`Tile`), some
    48 in registers (48 KB of an SM; see `recurrent_wide`), one block to an SM. ``inputs`` [steps * sequences,
    inputs_row]: the gates begin at ``gate * hidden``. ``state`` [2, sequences, width] and ``between`` [2,
    sequences, hidden] are cells of `publish`; ``cell`` and ``update`` [sequences, hidden]. ``y [steps +
    states, sequences, ...]`` has strides ``y_time, y_row``. ``batch``, ``chunk`` (sequences staged at once)
    and ``abreast`` (multiplied at once) are powers of two, each no more than the one before; ``zero`` is 0.

    For each sequence a thread loads its columns' values of h from shared memory, neighbours from neighbouring
    banks; each value serves ``rows`` multiply-adds. The sums are folded over the warp in sums - 1 +
    log2(lanes / sums) shuffles, 9 for 8 rows. While weights are in registers, a step of batch 1 takes as long
    as the wait for h, so everything independent of h (products with x, bias) is loaded before.
    """
    return _recurrent(kind, Tile(**tile), biased, reverse, ragged, peephole, together)


@kernel(
    StepsWide,
    registers=255,
    dynamic=_dynamic,
    since=(9, 0),
    samples=[
        RecurrentVariant(LSTM, tile=MIXED._replace(held=16, rounds=12), peephole=1, ragged=1),  # LSTM 2048
        RecurrentVariant(GRU, tile=TILE._replace(parts=2, rows=12, held=14, rounds=18, near=1)),  # GRU 2048
        RecurrentVariant(GRU, tile=MIXED._replace(held=11, rounds=23, near=1, **FOUR)),  # GRU 2560, batch 4
    ],
)
def recurrent_wide(kind, biased, reverse, ragged, peephole, together, **tile):
    """Compute `recurrent` with up to 190 weights per thread in registers: 8 warps of 32 lanes keep 190 KB of
    an SM's 256 KB. Before compute capability 9.0 the assembler needs more registers for the rest, and spills.
    """
    return _recurrent(kind, Tile(**tile), biased, reverse, ragged, peephole, together)


@kernel(
    Start,
    registers=40,  # six blocks on an SM; it runs once, over a few thousand values
    samples=[StartVariant(threads=256, zeros=zeros) for zeros in (0, 1)],
)
def recurrent_start(threads: int, zeros: int):
    """Write ``state [2, sequences, width]``: one set is the given state for step 0 (``zeros``: none is
    given), the other belongs to no step. ``count`` is sequences * width.
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
