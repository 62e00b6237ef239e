"""Reads and writes of cells and runs of cells at computed places. All operands are dense.

Where several updates go to one place, one work item does all of them, in order.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.places import Gather, GatherElements, GatherND, ScatterElements, ScatterND
from bslite.kernels.contracts.reduction import Reduction
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import negated
from bslite.kernels.cpu.vector.memory import (
    load,
    load_cell,
    load_first,
    load_int,
    load_scalar,
    store,
    store_cell,
    store_first,
    store_scalar,
)
from bslite.kernels.cpu.vector.simd import BYTES, LANES, vmax_nan

f = np.float32

NONE, ADD, MUL = Reduction.NONE.value, Reduction.ADD.value, Reduction.MUL.value
MAX, MIN = Reduction.MAX.value, Reduction.MIN.value
LEAST, MOST = -(2**31), 2**31 - 1
T, G, S = reader(Gather), reader(GatherElements), reader(ScatterElements)
N, P = reader(GatherND), reader(ScatterND)


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


@register_jitable
def _reduced(a, b, reduction):
    """As `update` reduces floats: of equal zeros the first stays."""
    if reduction == ADD:
        return a + b
    if reduction == MUL:
        return a * b
    if reduction == MAX:
        return vmax_nan(b, a)
    return negated(vmax_nan(negated(b), negated(a)))


@register_jitable
def update_run(y, u, count, reduction, floats, overflow):
    """`update` of a run of cells."""
    if reduction == NONE:
        copy_run(u, y, count)
    elif floats:
        for _ in range(count // LANES):
            store(y, _reduced(load(y), load(u), reduction))
            y, u = y + BYTES, u + BYTES
        rest = count % LANES
        if rest:
            ends = _reduced(load_first(y, rest, f(0.0)), load_first(u, rest, f(0.0)), reduction)
            store_first(y, ends, rest)
    else:
        for j in range(count):
            update(y + 4 * j, u + 4 * j, reduction, floats, overflow)


@step_kernel(Gather)
def gather(step, bases, item, scratch):
    """``y[o, i] = x[o, indices[i]]`` for one ``o`` and a part of the ``i``."""
    s = T(step, bases)
    size, count, inner, indices, flag = s.size, s.count, s.inner, s.indices, s.flag
    outer, part = item // s.parts, item % s.parts
    x, y = s.x + outer * size * inner * 4, s.y + outer * count * inner * 4
    for i in range(count * part // s.parts, count * (part + 1) // s.parts):
        at = wrapped(load_cell(indices + 4 * i), size, flag)
        copy_run(x + at * inner * 4, y + i * inner * 4, inner)


@step_kernel(GatherElements)
def gather_elements(step, bases, item, scratch):
    """``y[k] = x[indices[k]]`` for lines along the axis."""
    s = G(step, bases)
    table, axes, flag = s.table, s.axes, s.flag
    size, count, x_step, i_step = s.size, s.count, s.x_step, s.i_step
    first = item * s.item_lines
    for line in range(first, min(s.lines, first + s.item_lines)):
        x = s.x + line_place(table, axes, line, 8)
        at = line_place(table, axes, line, 16)
        y, indices = s.y + at, s.indices + at
        for k in range(count):
            index = wrapped(load_cell(indices + k * i_step), size, flag)
            store_cell(y + k * i_step, load_cell(x + index * x_step))


@step_kernel(ScatterElements)
def scatter_elements(step, bases, item, scratch):
    """``y[indices[k]] = updates[k]`` for lines along the axis, in order; y already holds the input."""
    s = S(step, bases)
    table, axes, flag = s.table, s.axes, s.flag
    overflow, floats, reduction = s.overflow, s.floats, s.reduction
    size, count, y_step, i_step = s.size, s.count, s.x_step, s.i_step
    first = item * s.item_lines
    for line in range(first, min(s.lines, first + s.item_lines)):
        y = s.y + line_place(table, axes, line, 8)
        at = line_place(table, axes, line, 16)
        indices, updates = s.indices + at, s.updates + at
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
    s = N(step, bases)
    table, flag, coordinates, inner = s.table, s.flag, s.coordinates, s.inner
    x, y, indices, per_batch, batch_bytes = s.x, s.y, s.indices, s.per_batch, s.batch_bytes
    first = item * s.item_count
    for q in range(first, min(s.count, first + s.item_count)):
        place = nd_place(table, indices + 4 * q * coordinates, coordinates, flag)
        copy_run(x + q // per_batch * batch_bytes + place, y + 4 * q * inner, inner)


@step_kernel(ScatterND)
def scatter_nd(step, bases, item, scratch):
    """Scatters a part of every slice, in order; y already holds the input."""
    s = P(step, bases)
    table, flag, coordinates, inner = s.table, s.flag, s.coordinates, s.inner
    overflow, floats, reduction = s.overflow, s.floats, s.reduction
    y, indices, updates = s.y, s.indices, s.updates
    first, last = inner * item // s.parts, inner * (item + 1) // s.parts
    for q in range(s.count):
        place = nd_place(table, indices + 4 * q * coordinates, coordinates, flag)
        source = cell_at(updates, q * inner + first)
        update_run(y + place + 4 * first, source, last - first, reduction, floats, overflow)


@register_jitable
def cell_at(base, cells):
    """The address ``cells`` cells after ``base``."""
    return base + 4 * np.int64(cells)
