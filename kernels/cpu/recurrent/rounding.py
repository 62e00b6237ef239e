"""h rounded to 8 bits before its product, over all rows of the batch, as pairs; each thread makes its own."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.across import hmax, hsum
from bslite.kernels.cpu.vector.memory import load, load_first, store
from bslite.kernels.cpu.vector.pairs import packed
from bslite.kernels.cpu.vector.simd import BYTES, LANES, rint, splat, vmax, vmin


@register_jitable
def round_state(s, t, made):
    """Writes the numbers of h before time step ``t`` to ``made``, and returns what one of them stands for.

    They are the nearest of 256 in equal steps between the extremes, 0 among them. A NaN in h makes what is
    returned NaN.
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
    low, high, row = zero - point, most - point, s.rounded_row
    for n in range(s.batch):
        h, target = state + n * s.state_row, made + n * row
        for v in range(0, vecs, 2):
            a = vmin(high, vmax(low, rint(load(h + v * BYTES) / scale)))
            b = zero
            if v + 1 < vecs:
                b = vmin(high, vmax(low, rint(load(h + (v + 1) * BYTES) / scale)))
            store(target + v * BYTES // 2, packed(a, b))
    return step + hsum(poison)
