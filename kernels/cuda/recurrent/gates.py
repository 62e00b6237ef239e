"""The gates of a time step whose products with h are a matrix product of all sequences.

With many sequences a step is a matrix product `[sequences, depth] x [depth, gates * hidden]` that keeps the
whole GPU busy; weights on chip would gain little. Sums in parts are joined here, in their order.
"""

import numpy as np

from bslite.kernels.contracts.cuda.recurrent import Gates, GatesVariant
from bslite.kernels.cuda.recurrent.cell import (
    GATES,
    GRU,
    LSTM,
    RELU,
    TANH,
    gru_cell,
    lstm_cell,
    lstm_output,
    plain_cell,
)
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

f = np.float32


@kernel(
    Gates,
    registers=64,  # four blocks on an SM
    samples=[
        GatesVariant(LSTM, peephole=1, ragged=1, reverse=1),
        GatesVariant(GRU),
        GatesVariant(TANH, biased=0),
    ],
)
def recurrent_gates(kind: int, biased: int, reverse: int, ragged: int, peephole: int, threads: int):
    """Compute time step ``step`` with a thread per unit and sequence: ``products [parts, sequences, gates *
    hidden]``; ``inputs [steps * sequences, inputs_row]``; ``h`` and ``cell`` [sequences, hidden], in place.
    ``y [steps + states, sequences, ...]`` has strides ``y_time, y_row``.

    Neighbours have neighbouring units, so all reads and writes are whole lines. A step's are a few MB at
    most, and in L2: its product, or the earlier one for all inputs, has just written them.
    """
    gates, lstm = GATES[kind], kind == LSTM

    def recurrent_gates(
        inputs, cell, peepholes, y, lengths, flag, products, bias, h,
        steps, sequences, hidden, inputs_row, y_time, y_row, step, parts,
    ):  # fmt: skip
        sums = cuda.local.array(gates, np.float32)
        x = cuda.local.array(4, np.float32)
        i = cuda.blockIdx.x * threads + cuda.threadIdx.x
        if i >= sequences * hidden:
            return
        n = np.int32(np.uint32(i) // np.uint32(hidden))
        unit = i - n * hidden
        length = steps
        if ragged:
            length = lengths[np.uint64(n)]
            if length < 1 or length > steps:
                raise_flag(flag, np.int64(length))
                length = steps
        live = step < length
        time = length - 1 - step if reverse and live else step
        made = h[np.uint64(i)]
        if live:
            row = n * np.int64(gates * hidden) + unit
            at = (time * np.int64(sequences) + n) * inputs_row + unit
            for g in range(gates):
                x[g] = inputs[np.uint64(at + g * hidden)]
                sums[g] = products[np.uint64(row + g * hidden)]
                if biased and not (kind == GRU and g == 2):
                    x[g] += bias[np.uint64(g * hidden + unit)]
            for _ in range(1, parts):
                row += np.int64(sequences) * gates * hidden
                for g in range(gates):
                    sums[g] += products[np.uint64(row + g * hidden)]
            if lstm:
                p_i, p_f, p_o = f(0.0), f(0.0), f(0.0)
                if peephole:
                    p_i = peepholes[np.uint64(unit)]
                    p_f, p_o = peepholes[np.uint64(hidden + unit)], peepholes[np.uint64(2 * hidden + unit)]
                c = lstm_cell(x, sums, cell[np.uint64(i)], peephole, p_i, p_f)
                made = lstm_output(x, sums, c, peephole, p_o)
                cell[np.uint64(i)] = c
                if step == length - 1:
                    y[np.uint64((steps + 1) * y_time + n * y_row + unit)] = c
            elif kind == GRU:
                if biased:  # the reset gate applies to this bias, too
                    sums[2] += bias[np.uint64(2 * hidden + unit)]
                made = gru_cell(x, sums, made)
            else:
                made = plain_cell(x[0], sums[0], kind == RELU)
            h[np.uint64(i)] = made
            if step == length - 1:
                y[np.uint64(steps * y_time + n * y_row + unit)] = made
        y[np.uint64(time * y_time + n * y_row + unit)] = made if live else f(0.0)

    return recurrent_gates
