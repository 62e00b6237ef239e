"""One activation over a run of elements: the simplest kernel, and the pattern for the others."""

import numpy as np

from bslite.kernels.contracts.cuda.elementwise import Pointwise, PointwiseVariant
from bslite.kernels.cuda.math.functions import CODES, function_of
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

THREADS = 256
EACH = Pointwise.EACH


@kernel(Pointwise, registers=40, samples=[PointwiseVariant(name, THREADS) for name in CODES])
def pointwise(code: int | str, threads: int = THREADS):
    """Compute ``y[i] = act(x[i], a, b)`` for ``count`` elements with the function of this number or name; a
    block takes ``threads * EACH`` of them.

    The kernel is bound by bytes: 8 threads share a 32-byte sector, each with EACH loads in flight. At 40
    registers, of which most functions need half, an SM holds 1,536 threads, so 6,144 loads are under way: 24
    KB, which covers HBM's latency.
    """
    act = function_of(code)

    def pointwise(x, y, count, a, b):
        start = cuda.blockIdx.x * np.int32(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            i = start + e * threads
            if i < count:
                y[i] = act(x[i], a, b)

    return pointwise
