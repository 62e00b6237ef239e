"""Running sums and products along rows: a block takes a row in stretches, each scanned in shared memory."""

import math

import numpy as np

from bslite.kernels.contracts.cuda.rows import Cumulate, CumulateIntegers, CumulateVariant
from bslite.kernels.contracts.rows import Running
from bslite.kernels.cuda.rows.rows import place
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.exchange import log
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

FAR = 2147483649  # beyond 32 bits; the product of two such numbers still fits 64
f = np.float32


@device_function
def _sum(a, b):
    return a + b


@device_function
def _product(a, b):
    return a * b


@device_function
def _held_product(a, b):
    return min(max(a * b, np.int64(-FAR)), np.int64(FAR))


@device_function
def _logaddexp(a, b):
    if a == b:  # equal infinities, or a doubled sum
        return a + math.log(2.0)
    if a != a or b != b:
        return a + b
    return max(a, b) + log(1.0 + math.exp(-abs(a - b)))


def _cumulating(threads: int, wide, combine, start):
    """Return a device function that scans one stretch of a row."""

    @device_function
    def scanned(x, held, source, first, length, by, before, me):
        """Return the totals up to element ``first + me``, with it and without, and of the whole stretch;
        ``before`` is the total of all earlier stretches.
        """
        own = wide(start)
        if first + me < length:
            own = wide(x[np.uint64(source + (first + me) * by)])
        held[me] = own
        reach = 1
        while reach < threads:
            cuda.syncthreads()
            if me >= reach:
                own = combine(held[me - reach], own)
            cuda.syncthreads()
            held[me] = own
            reach *= 2
        cuda.syncthreads()
        inclusive = combine(before, own)
        exclusive = combine(before, held[me - 1]) if me > 0 else before
        after = combine(before, held[threads - 1])
        cuda.syncthreads()  # before the cells are written again
        return inclusive, exclusive, after

    return scanned


@kernel(
    Cumulate,
    registers=56,
    samples=[
        CumulateVariant(256, kind, exclusive=int(kind == Running.SUM), reverse=int(kind == Running.SUM))
        for kind in Running
    ],
)
def cumulate(threads: int, kind: int, exclusive: int, reverse: int):
    """Compute running totals of each row, in float64; ``exclusive``: without the element itself; ``reverse``:
    from the row's end. Each row has a block; a stretch of ``threads`` elements takes log2(threads) steps.
    """
    combine = (_sum, _product, _logaddexp)[kind]
    start = (0.0, 1.0, -math.inf)[kind]
    scanned = _cumulating(threads, np.float64, combine, start)

    def cumulate(x, y, rows, length, n1, n2, x0, x1, x2, y0, y1, y2):
        held = cuda.shared.array(threads, np.float64)
        me = cuda.threadIdx.x
        source = place(cuda.blockIdx.x, n1, n2, x0, x1, x2)
        target = place(cuda.blockIdx.x, n1, n2, y0, y1, y2)
        by = 1
        if reverse:
            source, target, by = source + length - 1, target + length - 1, -1
        before = start
        for first in range(0, length, threads):
            inclusive, without, before = scanned(x, held, source, first, length, by, before, me)
            if first + me < length:
                y[np.uint64(target + (first + me) * by)] = f(without if exclusive else inclusive)

    return cumulate


@kernel(
    CumulateIntegers,
    registers=56,
    samples=[CumulateVariant(256, kind, exclusive=0, reverse=0) for kind in (Running.SUM, Running.PRODUCT)],
)
def cumulate_integers(threads: int, kind: int, exclusive: int, reverse: int):
    """Compute `cumulate` of integers, in 64 bits; a total that does not fit 32 raises ``flag``."""
    combine = (_sum, _held_product)[kind]
    scanned = _cumulating(threads, np.int64, combine, kind)

    def cumulate_integers(x, y, flag, rows, length, n1, n2, x0, x1, x2, y0, y1, y2):
        held = cuda.shared.array(threads, np.int64)
        me = cuda.threadIdx.x
        source = place(cuda.blockIdx.x, n1, n2, x0, x1, x2)
        target = place(cuda.blockIdx.x, n1, n2, y0, y1, y2)
        by = 1
        if reverse:
            source, target, by = source + length - 1, target + length - 1, -1
        before = np.int64(kind)  # the neutral element: 0 for sums, 1 for products
        for first in range(0, length, threads):
            inclusive, without, before = scanned(x, held, source, first, length, by, before, me)
            if first + me < length:
                made = without if exclusive else inclusive
                if made < -(2**31) or made > 2**31 - 1:
                    raise_flag(flag, made)
                    made = np.int64(0)
                y[np.uint64(target + (first + me) * by)] = made

    return cumulate_integers
