"""One activation over a run of elements: the simplest kernel, and the pattern for the others."""

from __future__ import annotations

import numpy as np

from bslite.kernels.cuda.device import cuda
from bslite.kernels.cuda.functions import CODES, activate
from bslite.kernels.cuda.kernel import kernel

THREADS = 256
EACH = 4  # elements of a thread: as many loads under way before the first is needed


@kernel(
    "x f4[], y f4[], count i4, a f4, b f4",
    threads=THREADS,
    registers=32,
    samples=[{"code": code} for code in CODES.values()],
)
def pointwise(code: int):
    """``y[i] = activate(code, x[i], a, b)`` for ``count`` elements; a block does ``THREADS * EACH`` of them.

    Bytes are all there is to it: 8 threads to a 32-byte sector, EACH loads in flight per thread; at 32
    registers an SM holds 2,048 threads, so 8,192 loads are under way, more than HBM's latency needs.
    """

    def pointwise(x, y, count, a, b):
        start = cuda.blockIdx.x * np.int32(THREADS * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            i = start + e * THREADS
            if i < count:
                y[i] = activate(code, x[i], a, b)

    return pointwise
