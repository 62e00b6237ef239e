"""Products of few rows with many: linear layers at small batches, which are bound by reading their weights.

``y[m, n] = activate(sum over k of x[m, k] * w[n, k] + bias[n])`` for at most ``rows`` rows m. ``across``
threads share the sum of ``outputs`` columns n; a block of ``threads`` holds several such groups.

Every weight is read once, by a warp whose lanes lie side by side (256 bytes in pairs); a thread has ``outputs
* AHEAD`` reads on their way before the first is used. With 64 registers an SM holds 1,024 threads: 32 KB of
weights in flight in pairs and with four reads each, where HBM's 4.8 TB/s over 132 SMs at 0.7 microseconds
need 25 KB. Every group reads x from L1; groups of more outputs read it less often.

The order of a sum: each thread adds its own terms, ``across`` apart, then a tree adds over threads. The tree
goes through shared memory (the simulator has no shuffles), which costs log2(across) barriers at the end.
"""

from collections.abc import Callable

import numpy as np

from bslite.kernels.contracts.cuda.gemm import Gemv, GemvPairs, GemvVariant
from bslite.kernels.cuda.gemm.access import cell_access
from bslite.kernels.cuda.gemm.tile import unrolled
from bslite.kernels.cuda.math.functions import function_of
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.kernel import kernel

THREADS = 256
READS = 4  # reads of weights in flight per thread, if outputs are fewer
i32 = np.int32


def _make(
    cell: int, rows: int, outputs: int, across: int, threads: int, bias: int, code: str
) -> Callable[..., None]:
    """Return the kernel, all but y and ``cols`` in cells; blocks along y take ``chunk`` terms of the sum."""
    ahead = max(1, READS // outputs)
    groups = threads // across
    sums = rows * outputs
    w_floats, x_floats = outputs * ahead * cell, rows * cell
    shared_size = threads * sums
    take, _ = cell_access(cell)
    activate = function_of(code)

    @device_function
    def products(u, acc, gw, gx, x, k, last, x_row, rows_in):
        """Add the terms of one read, for all rows and outputs."""
        at = k + u * across
        if at < last:
            for m in range(rows):
                take(x, min(m, rows_in - 1) * x_row + at, gx, m * cell)
            for o in range(outputs):
                for m in range(rows):
                    for e in range(cell):
                        acc[o * rows + m] += gw[(u * outputs + o) * cell + e] * gx[m * cell + e]

    all_products = unrolled(ahead, products)

    def body(x, w, biases, y, rows_in, cols, terms, chunk, x_row, w_row, y_row, y_split, a, b):
        shared = cuda.shared.array(shared_size, np.float32)
        acc = cuda.local.array(sums, np.float32)
        gw = cuda.local.array(w_floats, np.float32)
        gx = cuda.local.array(x_floats, np.float32)
        t = i32(cuda.threadIdx.x)
        group, lane = i32(t // across), i32(t % across)
        first = i32((i32(cuda.blockIdx.x) * groups + group) * outputs)
        part = i32(cuda.blockIdx.y)
        last = i32(min(terms, part * chunk + chunk))
        for i in range(sums):
            acc[i] = np.float32(0.0)
        for k in range(part * chunk + lane, last, across * ahead):
            for u in range(ahead):
                for o in range(outputs):
                    if k + u * across < last:
                        n = min(first + o, cols - 1)
                        take(w, n * w_row + k + u * across, gw, (u * outputs + o) * cell)
            all_products(0, acc, gw, gx, x, i32(k), last, x_row, rows_in)
        for i in range(sums):
            shared[np.uint32(i * threads + t)] = acc[i]
        cuda.syncthreads()
        half = across // 2
        while half > 0:
            if lane < half:
                for i in range(sums):
                    shared[np.uint32(i * threads + t)] += shared[np.uint32(i * threads + t + half)]
            cuda.syncthreads()
            half //= 2
        for i in range(lane, sums, across):
            o, m = i // rows, i % rows
            n = first + o
            if n < cols and m < rows_in:
                total = shared[np.uint32(i * threads + group * across)]
                if bias:
                    total += biases[np.uint32(n)]
                y[np.uint32(part * y_split + m * y_row + n)] = activate(total, a, b)

    return body


SAMPLES = [
    GemvVariant(rows, outputs, across, THREADS, bias=1, code="relu")
    for rows, outputs, across in ((1, 1, 256), (1, 4, 32), (4, 4, 128), (8, 2, 32))
]


@kernel(Gemv, registers=64, blocks=4, samples=SAMPLES)
def gemv(rows, outputs, across, threads, bias, code):
    """Compute a product of few rows in cells of one float."""
    return _make(1, rows, outputs, across, threads, bias, code)


@kernel(GemvPairs, registers=64, blocks=4, samples=SAMPLES)
def gemv_pairs(rows, outputs, across, threads, bias, code):
    """Compute a product of few rows in cells of two floats."""
    return _make(2, rows, outputs, across, threads, bias, code)
