"""Scatters of cells to computed places, in the order of the updates; rows of coordinates."""

import numpy as np

from bslite.kernels.contracts.cuda.places import (
    RowsAt,
    Scatter,
    ScatterSorted,
    ScatterSortedVariant,
    ScatterVariant,
)
from bslite.kernels.contracts.launch import Threads
from bslite.kernels.contracts.reduction import Reduction
from bslite.kernels.cuda.math.libm import as_float, as_int, larger, plus, smaller, times
from bslite.kernels.cuda.moves.places import strided, wrapped
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

u = np.uint32
NONE, ADD, MUL = Reduction.NONE.value, Reduction.ADD.value, Reduction.MUL.value
MAX, MIN = Reduction.MAX.value, Reduction.MIN.value
LEAST, MOST = -(2**31), 2**31 - 1
HELD = 4  # updates per thread, in shared memory


@kernel(RowsAt, registers=40, samples=[Threads(256)])
def rows_at(threads: int):
    """Compute ``rows[q]``, the row of a dense tensor that the ``coordinates`` at ``indices[q]`` point to;
    ``table`` has the size of each axis and the number of rows between its neighbours. Each batch of
    ``batch_rows`` rows has ``per_batch`` of the ``count`` points.
    """

    def rows_at(indices, table, rows, flag, count, coordinates, per_batch, batch_rows):
        q = u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x)
        if q < u(count):
            row = u(u(q // u(per_batch)) * u(batch_rows))
            for d in range(coordinates):
                index = indices[np.uint64(np.int64(q) * coordinates + d)]
                at = wrapped(index, table[u(2 * d)], flag)
                row = u(row + u(u(at) * u(table[u(2 * d + 1)])))
            rows[q] = row

    return rows_at


def _updating(reduction: int, floats: int):
    """Return ``(cell, update, overflow) -> cell``. NaN is both the largest and the smallest; integers are
    computed in 64 bits, and one that does not fit 32 is flagged and becomes 0.
    """
    combine = {ADD: plus, MUL: times, MAX: larger, MIN: smaller}.get(reduction)

    @device_function
    def put(cell, update, overflow):
        return update

    @device_function
    def combined(cell, update, overflow):
        return as_int(combine(as_float(cell), as_float(update)))

    @device_function
    def counted(cell, update, overflow):
        a, b = np.int64(cell), np.int64(update)
        made = a
        if reduction == ADD:
            made = a + b
        elif reduction == MUL:
            made = a * b
        elif (reduction == MAX and b > a) or (reduction == MIN and b < a):
            made = b
        if made < LEAST or made > MOST:
            raise_flag(overflow, made)
            made = np.int64(0)
        return np.int32(made)

    if reduction == NONE:
        return put
    return combined if floats else counted


@kernel(
    Scatter,
    registers=64,
    samples=[
        ScatterVariant(256, across=1, axes=1, alone=0, reduction=Reduction.NONE, floats=0),
        ScatterVariant(256, across=32, axes=2, alone=1, reduction=Reduction.ADD, floats=1),
        ScatterVariant(256, across=32, axes=6, alone=0, reduction=Reduction.MAX, floats=1),
        ScatterVariant(256, across=1, axes=1, alone=1, reduction=Reduction.MUL, floats=0),
    ],
)
def scatter(threads: int, across: int, axes: int, alone: int, reduction: int, floats: int):
    """Apply ``target[indices[k]] = updates[k]``, or its reduction, for k up to ``count``, in this order,
    along each of ``lines`` lines of ``size`` cells, ``y_step`` apart; the target holds the input already.

    Lines lie along ``axes`` axes, with strides in the target and in the updates. Indices have the strides of
    the updates (``own``), or all lines share them. Grid: (blocks of ``across`` lines, parts of the size). A
    thread alone writes its ``share`` cells of one line, so there is no atomic operation, and several updates
    of one cell give the same bits with any number of threads. All threads of a line look through all its
    indices, which the block brings into shared memory with the updates: an update of another thread's cell
    costs some five instructions, where a single thread would wait for L2 at each. A thread that has a single
    cell (``alone``) keeps it in a register. Lanes read neighbours or all the same cell: no bank conflicts.
    """
    down = threads // across
    depth, room = HELD * down, HELD * threads  # updates per line at a time; per block
    updated = _updating(reduction, floats)

    def scatter(
        target, indices, updates, flag, overflow, lines, size, count, share, y_step, i_step, u_step, own,
        n0, n1, n2, n3, n4, u0, u1, u2, u3, u4, u5, y0, y1, y2, y3, y4, y5,
    ):  # fmt: skip
        places = cuda.shared.array(room, np.int32)
        values = cuda.shared.array(room, np.int32)
        tx, ty = u(cuda.threadIdx.x) % u(across), u(cuda.threadIdx.x) // u(across)
        line = u(cuda.blockIdx.x) * u(across) + tx
        there = line < u(lines)
        u_at = np.int64(0)
        y_at = np.int64(0)
        if there:
            u_at = np.int64(strided(axes, line, 0, n0, n1, n2, n3, n4, u0, u1, u2, u3, u4, u5))
            y_at = np.int64(strided(axes, line, 0, n0, n1, n2, n3, n4, y0, y1, y2, y3, y4, y5))
        first = np.int32((np.int64(cuda.blockIdx.y) * down + ty) * share)
        mine = there and first < size
        cell = np.int32(0)
        if alone and mine:
            cell = target[np.uint64(y_at + np.int64(first) * y_step)]
        for start in range(0, count, depth):
            for e in range(HELD):
                k = start + e * down + np.int32(ty)
                if there and k < count:
                    index = indices[np.uint64(u_at * own + np.int64(k) * i_step)]
                    at = u(u(e * down) + ty) * u(across) + tx
                    places[at] = wrapped(index, size, flag)
                    values[at] = updates[np.uint64(u_at + np.int64(k) * u_step)]
            cuda.syncthreads()
            if mine:
                for k in range(min(depth, count - start)):
                    at = u(u(k) * u(across) + tx)
                    beyond = places[at] - first
                    if beyond >= 0 and beyond < share:
                        if alone:
                            cell = updated(cell, values[at], overflow)
                        else:
                            place = np.uint64(y_at + np.int64(places[at]) * y_step)
                            target[place] = updated(target[place], values[at], overflow)
            cuda.syncthreads()
        if alone and mine:
            target[np.uint64(y_at + np.int64(first) * y_step)] = cell

    return scatter


@kernel(ScatterSorted, registers=40, samples=[ScatterSortedVariant(256, Reduction.ADD, floats=1)])
def scatter_sorted(threads: int, reduction: int, floats: int):
    """Apply a `scatter` of many sorted updates to rows of ``inner`` cells, dense, y ``[rows, inner]``.

    ``sorted[q, 2]`` are the rows in order, each with the number of its update; updates of one row keep their
    order. Each thread has a cell of an update, ``total`` of all; the thread of a row's first update applies
    those that follow. Neighbouring threads have neighbouring cells; the place of the next update does not
    depend on the sum so far, so loads run ahead. A row of very many updates still has one thread per cell.
    """
    updated = _updating(reduction, floats)

    def scatter_sorted(y, sorted, updates, overflow, total, count, inner):
        i = cuda.blockIdx.x * np.int64(threads) + cuda.threadIdx.x
        if i < total:
            q, j = i // inner, i % inner
            row = sorted[np.uint64(2 * q)]
            if q == 0 or sorted[np.uint64(2 * q - 2)] != row:
                place = np.uint64(np.int64(row) * inner + j)
                cell = y[place]
                while q < count and sorted[np.uint64(2 * q)] == row:
                    update = updates[np.uint64(np.int64(sorted[np.uint64(2 * q + 1)]) * inner + j)]
                    cell = updated(cell, update, overflow)
                    q += 1
                y[place] = cell

    return scatter_sorted
