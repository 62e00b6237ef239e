"""One function of up to three values, broadcast by strides, and an activation."""

import numpy as np

from bslite.kernels.contracts.cuda.elementwise import Elementwise, ElementwiseVariant
from bslite.kernels.contracts.elementwise import FUNCTIONS as OPERANDS
from bslite.kernels.contracts.elementwise import ORDERS, ordering
from bslite.kernels.cuda.math.cells import FUNCTIONS
from bslite.kernels.cuda.math.functions import CODES, function_of
from bslite.kernels.cuda.math.libm import as_float, as_int
from bslite.kernels.cuda.moves.places import split
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.kernel import kernel

THREADS = 256
EACH = Elementwise.EACH

u, u64 = np.uint32, np.uint64
# Every function with one axis; more axes and an activation with some, since they add the same code to all.
# One comparison stands for all, which differ by an instruction; `pointwise` samples all activations.
ORDERED = {ordering(name, integers) for name in ORDERS[1:] for integers in (False, True)}
SAMPLES = [
    ElementwiseVariant(name, "identity", axes=1, threads=THREADS) for name in FUNCTIONS if name not in ORDERED
]
SAMPLES += [ElementwiseVariant("affine", "silu", axes=axes, threads=THREADS) for axes in (2, 3, 4, 5)]


@device_function
def places(axes, i, n1, n2, n3, n4):
    """Return the coordinates of element ``i`` of ``axes`` axes, 4 innermost; of sizes ``n1..n4``."""
    i4 = i
    i0 = i1 = i2 = i3 = u(0)
    if axes > 1:
        i3, i4 = split(i4, n4)
    if axes > 2:
        i2, i3 = split(i3, n3)
    if axes > 3:
        i1, i2 = split(i2, n2)
    if axes > 4:
        i0, i1 = split(i1, n1)
    return i0, i1, i2, i3, i4


@device_function
def at(axes, start, i0, i1, i2, i3, i4, s0, s1, s2, s3, s4):
    """Return the place of the element with these coordinates."""
    place = np.int64(start) + np.int64(i4) * s4
    if axes > 1:
        place += np.int64(i3) * s3
    if axes > 2:
        place += np.int64(i2) * s2
    if axes > 3:
        place += np.int64(i1) * s1
    if axes > 4:
        place += np.int64(i0) * s0
    return u64(place)


@kernel(Elementwise, registers=40, samples=SAMPLES)
def elementwise(function: str, activation: str, axes: int, threads: int):
    """Compute ``y = activation(function(x, z, w), a, b)`` for ``count`` elements of ``axes`` axes, axis 4
    innermost; a block takes ``threads * EACH`` of them.

    Neighbouring threads take neighbouring elements, so contiguous operands are read and written in whole
    sectors, and a stride of 0 costs one. Divisions by sizes take some ten instructions for each axis but the
    first; the budget at the speed of memory is some fifty per element. At 40 registers, which all but a few
    functions need, an SM holds 1,536 threads with EACH loads under way each: 24 KB, which covers HBM's
    latency.
    """
    operands, apply = OPERANDS[function], FUNCTIONS[function]
    ends = activation not in ("identity", CODES["identity"])
    act = function_of(activation)

    def elementwise(
        x, z, w, y, flag, count, a, b, x_start, z_start, w_start, y_start, n1, n2, n3, n4,
        x0, x1, x2, x3, x4, z0, z1, z2, z3, z4, w0, w1, w2, w3, w4, y0, y1, y2, y3, y4,
    ):  # fmt: skip
        made = cuda.local.array(EACH, np.int32)  # all loads come before the first store, which might change x
        start = u(u(cuda.blockIdx.x) * u(threads * EACH) + u(cuda.threadIdx.x))
        for e in range(EACH):
            i = u(start + u(e * threads))
            if i < u(count):
                i0, i1, i2, i3, i4 = places(axes, i, n1, n2, n3, n4)
                first = x[at(axes, x_start, i0, i1, i2, i3, i4, x0, x1, x2, x3, x4)]
                second = first
                third = first
                if operands > 1:
                    second = z[at(axes, z_start, i0, i1, i2, i3, i4, z0, z1, z2, z3, z4)]
                if operands > 2:
                    third = w[at(axes, w_start, i0, i1, i2, i3, i4, w0, w1, w2, w3, w4)]
                value = apply(first, second, third, flag)
                if ends:
                    value = as_int(act(as_float(value), a, b))
                made[e] = value
        for e in range(EACH):
            i = u(start + u(e * threads))
            if i < u(count):
                i0, i1, i2, i3, i4 = places(axes, i, n1, n2, n3, n4)
                y[at(axes, y_start, i0, i1, i2, i3, i4, y0, y1, y2, y3, y4)] = made[e]

    return elementwise
