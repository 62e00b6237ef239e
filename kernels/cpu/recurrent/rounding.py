"""h rounded to 8 bits before its product, over all rows of the batch. Every thread makes its own copy."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.across import hmax, hsum
from bslite.kernels.cpu.vector.memory import load, load_first, store
from bslite.kernels.cpu.vector.simd import BYTES, LANES, rint, splat, vmax, vmin


@register_jitable
def round_state(s, t, made):
    """Writes h before time step ``t`` to ``made``, as the nearest of 256 numbers in equal steps between its
    extremes, 0 among them. A NaN makes all of it NaN.
    """
    state = s.state + (t & 1) * s.state_bytes
    zero, most = splat(np.float32(0.0)), splat(np.float32(255.0))
    low, high, poison = zero, zero, zero
    vecs = s.state_row // BYTES
    for i in range(s.batch * vecs):
        h = load_first(state + i * BYTES, s.width - i % vecs * LANES, np.float32(0.0))  # padding may be NaN
        low, high = vmin(low, h), vmax(high, h)
        poison = poison + h * zero
    least, largest = -hmax(zero - low), hmax(high)
    step = np.float32(1.0)
    if largest != least:
        step = (largest - least) / np.float32(255.0)
    scale = splat(step + hsum(poison))
    point = vmin(most, vmax(zero, rint((zero - splat(least)) / scale)))
    for at in range(0, s.state_bytes, BYTES):
        number = rint(load(state + at) / scale) + point
        store(made + at, (vmin(most, vmax(zero, number)) - point) * scale)
