"""The cells of recurrent layers: the functions of a unit's sums. A thread has one unit of one sequence."""

import math

import numpy as np

from bslite.kernels.contracts.recurrent import SECOND as FOLLOWED
from bslite.kernels.contracts.recurrent import Cell
from bslite.kernels.cuda.math.functions import larger
from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.exchange import exp

LSTM, GRU, TANH, RELU, PROJECTED, PROJECTION, BEFORE, NEW = map(int, Cell)
GATES = tuple(cell.sums for cell in Cell)  # sums per unit
FIRST = tuple(map(int, FOLLOWED))  # passes whose result a second pass takes
SECOND = tuple(map(int, FOLLOWED.values()))  # passes that take a first pass's result, in the same time step
f = np.float32


@device_function
def sigmoid(x):
    """Return ``1 / (1 + exp(-x))``."""
    return f(1.0) / (f(1.0) + exp(-x))


@device_function
def tanh(x):
    """Return the hyperbolic tangent."""
    return f(math.tanh(x))


@device_function
def lstm_cell(x, sums, c, peephole, p_i, p_f):
    """Return the new c, from the products with x and with h; gates input, forget, cell."""
    i, forget = x[0] + sums[0], x[1] + sums[1]
    if peephole:
        i += p_i * c
        forget += p_f * c
    return sigmoid(forget) * c + sigmoid(i) * tanh(x[2] + sums[2])


@device_function
def lstm_output(x, sums, c, peephole, p_o):
    """Return h, from the new c."""
    o = x[3] + sums[3]
    if peephole:
        o += p_o * c
    return sigmoid(o) * tanh(c)


@device_function
def gru_cell(x, sums, h):
    """Return the new h; the reset gate is applied to the product with h."""
    r, z = sigmoid(x[0] + sums[0]), sigmoid(x[1] + sums[1])
    return (f(1.0) - z) * tanh(x[2] + r * sums[2]) + z * h


@device_function
def plain_cell(x, total, rectified):
    """Return the new h of a plain recurrent layer."""
    return larger(f(0.0), x + total) if rectified else tanh(x + total)
