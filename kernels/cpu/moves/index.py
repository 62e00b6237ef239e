"""Reads and writes of cells and runs of cells at computed places. All operands are dense.

Where several updates go to one place, one work item does all of them, in order.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.places import GatherElements, GatherND, ScatterElements, ScatterND
from bslite.kernels.contracts.reduction import Reduction
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_cell, load_int, load_scalar, store_cell, store_scalar

NONE, ADD, MUL = Reduction.NONE.value, Reduction.ADD.value, Reduction.MUL.value
MAX, MIN = Reduction.MAX.value, Reduction.MIN.value
LEAST, MOST = -(2**31), 2**31 - 1
G, S = offsets(GatherElements), offsets(ScatterElements)
N, P = offsets(GatherND), offsets(ScatterND)


@register_jitable
def wrapped(index, size, flag):
    """``index`` counted from 0; if it is out of range, the flag is raised and the result is 0."""
    at = index + size if index < 0 else index
    if at < 0 or at >= size:
        raise_flag(flag, index)
        return 0
    return at


@register_jitable
def update(y, u, reduction, floats, overflow):
    """Replaces the cell at ``y`` by that at ``u``, or reduces both. NaN is the largest and the smallest."""
    if reduction == NONE:
        store_cell(y, load_cell(u))
    elif floats:
        a, b = load_scalar(y), load_scalar(u)
        if reduction == ADD:
            store_scalar(y, a + b)
        elif reduction == MUL:
            store_scalar(y, a * b)
        elif b != b or (reduction == MAX and b > a) or (reduction == MIN and b < a):
            store_scalar(y, b)
    else:
        a, b = load_cell(y), load_cell(u)
        c = a
        if reduction == ADD:
            c = a + b
        elif reduction == MUL:
            c = a * b
        elif (reduction == MAX and b > a) or (reduction == MIN and b < a):
            c = b
        if c < LEAST or c > MOST:
            raise_flag(overflow, c)
            c = 0
        store_cell(y, c)


@register_jitable
def line_place(table, axes, line, column):
    """Byte offset of a line; ``column`` is 8 for x, 16 for the indices."""
    place = 0
    for axis in range(axes):
        size = load_int(table + 24 * axis)
        place += line % size * load_int(table + 24 * axis + column)
        line //= size
    return place


@step_kernel(GatherElements)
def gather_elements(step, bases, item, scratch):
    """``y[k] = x[indices[k]]`` for lines along the axis."""
    table, axes, flag = operand(step, bases, G.table), load_int(step + G.axes), operand(step, bases, G.flag)
    size, count = load_int(step + G.size), load_int(step + G.count)
    x_step, i_step = load_int(step + G.x_step), load_int(step + G.i_step)
    first = item * load_int(step + G.item_lines)
    for line in range(first, min(load_int(step + G.lines), first + load_int(step + G.item_lines))):
        x = operand(step, bases, G.x) + line_place(table, axes, line, 8)
        at = line_place(table, axes, line, 16)
        y, indices = operand(step, bases, G.y) + at, operand(step, bases, G.indices) + at
        for k in range(count):
            index = wrapped(load_cell(indices + k * i_step), size, flag)
            store_cell(y + k * i_step, load_cell(x + index * x_step))


@step_kernel(ScatterElements)
def scatter_elements(step, bases, item, scratch):
    """``y[indices[k]] = updates[k]`` for lines along the axis, in order; y already holds the input."""
    table, axes, flag = operand(step, bases, S.table), load_int(step + S.axes), operand(step, bases, S.flag)
    overflow, floats = operand(step, bases, S.overflow), load_int(step + S.floats)
    size, count, reduction = load_int(step + S.size), load_int(step + S.count), load_int(step + S.reduction)
    y_step, i_step = load_int(step + S.x_step), load_int(step + S.i_step)
    first = item * load_int(step + S.item_lines)
    for line in range(first, min(load_int(step + S.lines), first + load_int(step + S.item_lines))):
        y = operand(step, bases, S.y) + line_place(table, axes, line, 8)
        at = line_place(table, axes, line, 16)
        indices, updates = operand(step, bases, S.indices) + at, operand(step, bases, S.updates) + at
        for k in range(count):
            index = wrapped(load_cell(indices + k * i_step), size, flag)
            update(y + index * y_step, updates + k * i_step, reduction, floats, overflow)


@register_jitable
def nd_place(table, indices, coordinates, flag):
    """Byte offset of the slice at the coordinates in ``indices``."""
    place = 0
    for d in range(coordinates):
        size, stride = load_int(table + 16 * d), load_int(table + 16 * d + 8)
        place += wrapped(load_cell(indices + 4 * d), size, flag) * stride
    return place


@step_kernel(GatherND)
def gather_nd(step, bases, item, scratch):
    """Gathers slices side by side into y, ``per_batch`` of them from each ``batch_bytes`` of x."""
    table, flag = operand(step, bases, N.table), operand(step, bases, N.flag)
    coordinates, inner = load_int(step + N.coordinates), load_int(step + N.inner)
    per_batch, batch_bytes = load_int(step + N.per_batch), load_int(step + N.batch_bytes)
    x, y, indices = operand(step, bases, N.x), operand(step, bases, N.y), operand(step, bases, N.indices)
    first = item * load_int(step + N.item_count)
    for q in range(first, min(load_int(step + N.count), first + load_int(step + N.item_count))):
        place = nd_place(table, indices + 4 * q * coordinates, coordinates, flag)
        copy_run(x + q // per_batch * batch_bytes + place, y + 4 * q * inner, inner, 4, 4, 1)


@step_kernel(ScatterND)
def scatter_nd(step, bases, item, scratch):
    """Scatters a part of every slice, in order; y already holds the input."""
    table, flag = operand(step, bases, P.table), operand(step, bases, P.flag)
    overflow, floats = operand(step, bases, P.overflow), load_int(step + P.floats)
    coordinates, inner = load_int(step + P.coordinates), load_int(step + P.inner)
    parts, reduction = load_int(step + P.parts), load_int(step + P.reduction)
    first, last = inner * item // parts, inner * (item + 1) // parts
    y, indices = operand(step, bases, P.y), operand(step, bases, P.indices)
    updates = operand(step, bases, P.updates)
    for q in range(load_int(step + P.count)):
        place = nd_place(table, indices + 4 * q * coordinates, coordinates, flag)
        if reduction == NONE:
            copy_run(cell_at(updates, q * inner + first), y + place + 4 * first, last - first, 4, 4, 1)
        else:
            for j in range(first, last):
                update(y + place + 4 * j, cell_at(updates, q * inner + j), reduction, floats, overflow)


@register_jitable
def cell_at(base, cells):
    """The address ``cells`` cells after ``base``."""
    return base + 4 * np.int64(cells)
