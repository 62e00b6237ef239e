"""Prologues of a batch-reduce GEMM: functions of A's elements between memory and shared memory.

The layer before a product, if it works on one element at a time and has no other reader, then costs neither a
launch nor a trip through memory: ``A' = act(A * scale[c] + shift[c])`` (a batch norm before its convolution:
DenseNet, pre-activation ResNets), or ``A' = act(A * gate[image, c])`` (squeeze-and-excitation). The
arithmetic is that of the layer's own kernel, so the bits are, too.

A block computes A' once for each of its column tiles and taps. A thread pays for the factors of its channel
(in a slice, all of a thread's rows have the same channels) or of its rows; and for a multiply-add, the
activation and a selection per element. Elements beyond the image or the sum are zero *after* the prologue.
"""

from collections.abc import Callable

import numpy as np

from bslite.kernels.contracts.cuda.gemm import AFFINE, GATE, NONE
from bslite.kernels.cuda.gemm.access import cell_access
from bslite.kernels.cuda.math.functions import function_of
from bslite.kernels.cuda.math.libm import fma, times
from bslite.kernels.cuda.runtime.device import device_function

f = np.float32


def factors(kind: str, cell: int, loads: int) -> int:
    """Return the registers for a thread's factors in a slice; `AFFINE` takes as many for the summands."""
    return {NONE: 1, AFFINE: cell, GATE: loads * cell}[kind]


def prologue(kind: str, cell: int, loads: int, code: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return device functions ``fetch(scale, shift, bases, channel, factor, summand)``, which loads
    registers, and ``apply(ga, there, factor, summand, a, b)``, which works in place.

    A thread has ``loads`` cells of A in a slice, ``ga [loads * cell]``, all of the cell ``channel``; ``bases
    [loads]`` is where the gates of each cell's image begin; bit i of ``there`` is 0 where ``ga`` holds
    nothing of A. ``code`` names the activation, ``a`` and ``b`` are its parameters.
    """
    take, _ = cell_access(cell)
    act, affine = function_of(code), kind == AFFINE

    @device_function
    def fetch(scale, shift, bases, channel, factor, summand):
        if affine:
            take(scale, channel, factor, 0)
            take(shift, channel, summand, 0)
        else:
            for i in range(loads):
                take(scale, bases[i] + channel, factor, i * cell)

    @device_function
    def apply(ga, there, factor, summand, a, b):
        for i in range(loads):
            for e in range(cell):
                if affine:
                    value = fma(ga[i * cell + e], factor[e], summand[e])
                else:
                    value = times(ga[i * cell + e], factor[i * cell + e])
                value = act(value, a, b)
                ga[i * cell + e] = value if (there >> i) & 1 else f(0.0)

    return fetch, apply
