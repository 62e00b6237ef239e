"""Reductions over any axes: the contiguous axis is among the reduced ("rows"), or among the kept.

The reduced elements are one count along four axes; the threads that share a result take every so many-th of
them, counting along the axes with carries rather than by division. Their partial results meet in shared
memory by halves. Where results are few and long, several blocks share one: each leaves its partial result,
and a second launch merges these in order.
"""

from typing import Any

import numpy as np

from bslite.kernels.contracts.cuda.reduce import (
    MergeVariant,
    Reduce,
    ReduceIntegers,
    ReduceMerge,
    ReduceMergePlace,
    ReducePart,
    ReducePlace,
    ReduceVariant,
)
from bslite.kernels.cuda.rows.reducers import REDUCERS
from bslite.kernels.cuda.rows.rows import place
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.exchange import synchronise
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel


def wide_of(name: str) -> Any:
    """Return the type of the accumulators of reduction ``name``."""
    return np.int64 if name.startswith("int_") else np.float64


@device_function
def _largest(x, source, first, last, width, m1, m2, m3, s0, s1, s2, s3, lowest):
    """Return the largest finite element of a thread's share; zero if one is infinite or NaN."""
    best = lowest
    for r in range(first, last, width):
        i3, q = r % m3, r // m3
        i2, q = q % m2, q // m2
        value = np.float64(x[np.uint64(source + q // m1 * s0 + q % m1 * s1 + i2 * s2 + i3 * s3)])
        best = value if value > best or value != value else best
    return best if best - best == 0.0 else 0.0


def _gathering(threads: int, width: int, rows: int, name: str, last_of: int):
    """Return a device function that reduces a block's chunk into the first of ``width`` threads."""
    start_a, start_b = REDUCERS[name].start
    take, merge, centre = REDUCERS[name].take, REDUCERS[name].merge, REDUCERS[name].centre
    wide = wide_of(name)
    side = threads // width  # results side by side

    @device_function
    def gathered(
        x, held, me, block, part, results, count, chunk, n1, n2, x0, x1, x2, m1, m2, m3, s0, s1, s2, s3
    ):
        if rows:
            w, own, step = me % width, me // width, 1
        else:
            w, own, step = me // side, me % side, side
        row = block * np.int64(side) + own
        first = part * chunk + w
        last = min(count, (part + 1) * chunk) if row < results else 0
        source = place(row, n1, n2, x0, x1, x2)
        a, b = wide(start_a), wide(start_b)
        if centre:
            a = _largest(x, source, first, last, width, m1, m2, m3, s0, s1, s2, s3, a)
        # The coordinates of element `first` along the four axes, and those of a step of `width` elements.
        i3, q = first % m3, first // m3
        i2, q = q % m2, q // m2
        i1, i0 = q % m1, q // m1
        d3, q = width % m3, width // m3
        d2, q = q % m2, q // m2
        d1, d0 = q % m1, q // m1
        for r in range(first, last, width):
            value = x[np.uint64(source + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3)]
            a, b = take(a, b, value, r, last_of)
            i3 += d3
            i2 += d2
            i1 += d1
            i0 += d0
            if i3 >= m3:
                i3 -= m3
                i2 += 1
            if i2 >= m2:
                i2 -= m2
                i1 += 1
            if i1 >= m1:
                i1 -= m1
                i0 += 1
        held[0, me] = a
        held[1, me] = b
        half = width // 2
        while half > 0:
            synchronise()
            if w < half:
                other = me + half * step
                a, b = merge(held[0, me], held[1, me], held[0, other], held[1, other], last_of)
                held[0, me] = a
                held[1, me] = b
            half //= 2
        return a, b, row, w == 0 and row < results

    return gathered


def _samples(*names: str) -> list[ReduceVariant]:
    return [ReduceVariant(256, 32, rows=i % 2, name=name, last_of=0) for i, name in enumerate(names)]


def _reducing(threads: int, width: int, rows: int, name: str, last_of: int):
    """Return a kernel that computes results."""
    gathered = _gathering(threads, width, rows, name, last_of)
    finish, wide = REDUCERS[name].finish, wide_of(name)

    def reduce(x, y, results, count, n1, n2, x0, x1, x2, y0, y1, y2, m1, m2, m3, s0, s1, s2, s3, divisor):
        held = cuda.shared.array((2, threads), wide)
        a, b, row, mine = gathered(
            x, held, cuda.threadIdx.x, cuda.blockIdx.x, 0, results, count, count, n1, n2, x0, x1, x2,
            m1, m2, m3, s0, s1, s2, s3,
        )  # fmt: skip
        if mine:
            y[np.uint64(place(row, n1, n2, y0, y1, y2))] = finish(a, b, np.float64(count), divisor)

    return reduce


@kernel(Reduce, registers=72, samples=_samples(*(n for n in REDUCERS if not n.startswith(("int_", "arg")))))
def reduce(threads: int, width: int, rows: int, name: str, last_of: int):
    """Compute reduction ``name``, a float32 for each result, with ``width`` threads per result.

    Neighbouring threads read neighbours, in rows along the count, else along the results. A thread's loads
    depend only on its counters, so several are under way; two float64 sums per element are half of what an SM
    of an A100 or H200 does while the element comes from memory.
    """
    return _reducing(threads, width, rows, name, last_of)


@kernel(ReducePlace, registers=72, samples=_samples("argmax", "argmin"))
def reduce_place(threads: int, width: int, rows: int, name: str, last_of: int):
    """Compute the position of an extreme, in the order of the count; the rest is as in `reduce`."""
    return _reducing(threads, width, rows, name, last_of)


@kernel(ReduceIntegers, registers=72, samples=_samples(*(n for n in REDUCERS if n.startswith("int_"))))
def reduce_integers(threads: int, width: int, rows: int, name: str, last_of: int):
    """Compute reduction ``name`` of integers, in 64 bits; a result that does not fit 32 raises ``flag``."""
    gathered = _gathering(threads, width, rows, name, last_of)

    def reduce_integers(
        x, y, flag, results, count, n1, n2, x0, x1, x2, y0, y1, y2, m1, m2, m3, s0, s1, s2, s3, divisor
    ):
        held = cuda.shared.array((2, threads), np.int64)
        a, _, row, mine = gathered(
            x, held, cuda.threadIdx.x, cuda.blockIdx.x, 0, results, count, count, n1, n2, x0, x1, x2,
            m1, m2, m3, s0, s1, s2, s3,
        )  # fmt: skip
        if mine:
            if a < -(2**31) or a > 2**31 - 1:
                raise_flag(flag, a)
                a = np.int64(0)
            y[np.uint64(place(row, n1, n2, y0, y1, y2))] = a

    return reduce_integers


@kernel(ReducePart, registers=72, samples=_samples("sum", "var", "logsumexp"))
def reduce_part(threads: int, width: int, rows: int, name: str, last_of: int):
    """Compute ``made[result, part]``, two float64: the partial reduction of the part's ``chunk`` elements.
    Grid: (blocks of results, parts). It serves results too few to fill a GPU.
    """
    gathered = _gathering(threads, width, rows, name, last_of)

    def reduce_part(x, made, results, count, chunk, parts, n1, n2, x0, x1, x2, m1, m2, m3, s0, s1, s2, s3):
        held = cuda.shared.array((2, threads), np.float64)
        part = cuda.blockIdx.y
        a, b, row, mine = gathered(
            x, held, cuda.threadIdx.x, cuda.blockIdx.x, part, results, count, chunk, n1, n2, x0, x1, x2,
            m1, m2, m3, s0, s1, s2, s3,
        )  # fmt: skip
        if mine:
            at = (row * parts + part) * 2
            made[np.uint64(at)] = a
            made[np.uint64(at + 1)] = b

    return reduce_part


def _merging(threads: int, name: str, last_of: int):
    merge, finish = REDUCERS[name].merge, REDUCERS[name].finish

    def merged(made, y, results, count, parts, n1, n2, y0, y1, y2, divisor):
        row = cuda.blockIdx.x * np.int64(threads) + cuda.threadIdx.x
        if row < results:
            at = row * parts * 2
            a, b = made[np.uint64(at)], made[np.uint64(at + 1)]
            for _ in range(1, parts):
                at += 2
                a, b = merge(a, b, made[np.uint64(at)], made[np.uint64(at + 1)], last_of)
            y[np.uint64(place(row, n1, n2, y0, y1, y2))] = finish(a, b, np.float64(count), divisor)

    return merged


@kernel(
    ReduceMerge,
    registers=72,
    samples=[MergeVariant(64, name=name, last_of=0) for name in ("sum", "var", "logsumexp")],
)
def reduce_merge(threads: int, name: str, last_of: int):
    """Merge the parts of `reduce_part` in order, with a thread per result: a few hundred numbers."""
    return _merging(threads, name, last_of)


@kernel(ReduceMergePlace, registers=72, samples=[MergeVariant(64, name="argmax", last_of=0)])
def reduce_merge_place(threads: int, name: str, last_of: int):
    """Merge positions as `reduce_merge` merges values."""
    return _merging(threads, name, last_of)
