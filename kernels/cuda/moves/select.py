"""The largest elements of rows, in order, and one-hot encoding.

Elements are compared as 64-bit numbers: the upper half is an int32 with the order of the values (reversed
where the largest come first), the lower half is the index. No two are alike, the first of equal values comes
first, and NaN is the largest of all.
"""

import numpy as np

from bslite.kernels.contracts.cuda.order import (
    MergeVariant,
    OneHot,
    OneHotVariant,
    OrderVariant,
    TilesVariant,
    TopKMerge,
    TopKShort,
    TopKTiles,
)
from bslite.kernels.cuda.math.libm import as_float
from bslite.kernels.cuda.moves.places import split
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

u = np.uint32
i32, i64 = np.int32, np.int64
LAST = 0x7FFFFFFF  # after every value, together with an index beyond the row


@device_function
def upper(cell, largest, floats):
    """Return an int32 with the order in which cells come."""
    if floats:
        value = as_float(cell)
        if value != value:
            cell = i32(LAST)
        elif value == np.float32(0.0):
            cell = i32(0)  # equal for both signs of zero
        elif cell < 0:
            cell = i32(cell ^ i32(LAST))
    return i32(~cell) if largest else i32(cell)


@device_function
def joined(high, low):
    """Return both halves as one number."""
    return (i64(high) << i64(32)) | i64(low)


@kernel(TopKShort, registers=40, samples=[OrderVariant(256, largest=1, floats=1)])
def topk_short(threads: int, largest: int, floats: int):
    """Write dense rows ``y [k]`` of indices into rows ``x [length]``, at most ``threads``: an element's place
    is the number of elements before it.

    Each thread has an element, a block whole rows in shared memory; the threads of a row read the same cell
    at a time. An element takes ``length`` comparisons: for short rows fewer than any sort's, and no barrier.
    """

    def topk_short(x, y, rows, length, k):
        held = cuda.shared.array(threads, np.int32)
        me = cuda.threadIdx.x
        mine = me // length
        each = threads // length
        row = i64(cuda.blockIdx.x) * each + mine
        there = mine < each and row < rows
        own = i32(0)
        if there:
            own = upper(x[np.uint64(row * length + me % length)], largest, floats)
            held[me] = own
        cuda.syncthreads()
        if there:
            first = mine * length
            before = 0
            for i in range(first, first + length):
                other = held[i]
                if other < own or (other == own and i < me):
                    before += 1
            if before < k:
                y[np.uint64(row * k + before)] = me % length

    return topk_short


@kernel(
    TopKTiles,
    registers=48,
    samples=[
        TilesVariant(256, largest=1, floats=1, tile=4096, whole=0),
        TilesVariant(256, largest=0, floats=0, tile=512, whole=1),
    ],
)
def topk_tiles(threads: int, largest: int, floats: int, tile: int, whole: int):
    """Sort each ``tile`` elements of each row and keep the first ``kept``: as indices, if a tile is the
    ``whole`` row, else as cells of upper half and index, ``y[row, tile, kept, 2]``. Grid: rows times tiles.

    This is a bitonic sort in shared memory (Batcher 1968), whose lanes read and write numbers of 8 bytes side
    by side: no bank conflicts, except two to a bank at the last four distances of each merge. 4096 numbers
    take 32 KB; with 48 registers, five blocks fit an SM of an H200.
    """
    levels = tile.bit_length() - 1
    pairs = tile // 2

    def topk_tiles(x, y, length, tiles, kept):
        held = cuda.shared.array(tile, np.int64)
        me = i32(cuda.threadIdx.x)
        row, part = i64(cuda.blockIdx.x) // tiles, i32(cuda.blockIdx.x) % tiles
        first = i32(part) * i32(tile)
        for i in range(me, tile, threads):
            high = i32(LAST)
            if first + i < length:
                high = upper(x[np.uint64(row * length + first + i)], largest, floats)
            held[i] = joined(high, first + i)
        cuda.syncthreads()
        for level in range(1, levels + 1):
            for step in range(level):
                distance = i32(1 << (level - 1 - step))
                for p in range(me, pairs, threads):
                    low = i32(p & (distance - 1))
                    at = i32(((p - low) << 1) + low)
                    a, b = held[at], held[at + distance]
                    down = (at >> level) & 1
                    if (a > b) != (down == 1):
                        held[at] = b
                        held[at + distance] = a
                cuda.syncthreads()
        for i in range(me, kept, threads):
            to = i64(cuda.blockIdx.x) * kept + i
            if whole:
                y[np.uint64(to)] = i32(held[i])
            else:
                y[np.uint64(2 * to)] = i32(held[i] >> i64(32))
                y[np.uint64(2 * to + 1)] = i32(held[i])

    return topk_tiles


@kernel(TopKMerge, registers=48, samples=[MergeVariant(256, whole=0)])
def topk_merge(threads: int, whole: int):
    """Merge every ``fan`` of the ``runs`` of each row and keep the first ``kept``: from ``x[row, runs,
    length, 2]``, as `topk_tiles` leaves them, to ``y[row, groups, kept, 2]``, or to indices, if the result is
    the ``whole`` row.

    Each thread has an element of ``fan * groups`` runs, ``total`` of all rows. Its place is its own in its
    run plus the number before it in each of the others, by bisection; neighbours bisect alike, through L1 and
    L2. Runs missing in the last group have elements after all others.
    """

    def topk_merge(x, y, total, runs, fan, groups, length, kept):
        i = cuda.blockIdx.x * i64(threads) + cuda.threadIdx.x
        if i < total:
            run, own = i // length, i32(i % length)
            row, run = run // (fan * groups), i32(run % (fan * groups))
            group = run // fan
            start = row * runs
            high, low = i32(LAST), i32(LAST)
            place = i32(run - group * fan) * length + own  # for a missing run, all others come before
            if run < runs:
                at = 2 * ((start + run) * length + own)
                high, low = x[np.uint64(at)], x[np.uint64(at + 1)]
                mine = joined(high, low)
                place = own
                for other in range(group * fan, min(runs, (group + 1) * fan)):
                    if other != run:
                        first = (start + other) * length
                        least, most = i32(0), i32(length)
                        while least < most:
                            middle = i32((least + most) >> 1)
                            at = 2 * (first + middle)
                            theirs = joined(x[np.uint64(at)], x[np.uint64(at + 1)])
                            if theirs < mine or (theirs == mine and other < run):
                                least = i32(middle + 1)
                            else:
                                most = middle
                        place += least
            if place < kept:
                to = (row * groups + group) * kept + place
                if whole:
                    y[np.uint64(to)] = low
                else:
                    y[np.uint64(2 * to)] = high
                    y[np.uint64(2 * to + 1)] = low

    return topk_merge


@kernel(OneHot, registers=32, samples=[OneHotVariant(256, strict=1)])
def one_hot(threads: int, strict: int):
    """Write dense y ``[outer, depth, inner]``, ``total`` cells, from x ``[outer, inner]``: ``values[1]``
    where the position along the depth is the index, else ``values[0]``. A negative index counts from the end;
    one that is negative or too large is flagged, if ``strict``. Each thread has a cell of y; writes are runs.
    """

    def one_hot(x, y, values, flag, total, depth, inner):
        i = u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x)
        if i < u(total):
            line, c = split(i, inner)
            outer, d = split(line, depth)
            index = x[u(u(outer * u(inner)) + c)]
            if strict and (index < 0 or index >= depth):
                raise_flag(flag, i64(index))
            wanted = index + depth if index < 0 else index
            y[i] = values[u(1)] if wanted == i32(d) else values[u(0)]

    return one_hot
