"""Data movement: strided copies between layouts, zeros around images, constant fills."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.moves import Copy, CopyAxes, Fill, Halo
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import (
    load,
    load_first,
    load_int,
    load_pair,
    load_scalar,
    store,
    store_first,
    store_pair,
    store_scalar,
)
from bslite.kernels.cpu.vector.simd import BYTES, I32, LANES, load_ir, primitive, splat, store_ir

ZERO = np.float32(0.0)
C = reader(Copy)


@register_jitable
def copy_run(x, y, count):
    """Copies ``count`` contiguous cells."""
    whole = count // LANES
    for _ in range(whole):
        store(y, load(x))
        x += BYTES
        y += BYTES
    rest = count - whole * LANES
    if rest:
        # x may be the caller's array, with nothing mapped after it
        store_first(y, load_first(x, rest, ZERO), rest)


@primitive(types.void, types.int64, types.int64)
def _turn_register(builder, x, y):
    """Writes the register at ``x`` with its last lane first."""
    found = load_ir(builder, x)
    lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES))[::-1])
    store_ir(builder, y, builder.shuffle_vector(found, ir.Constant(found.type, ir.Undefined), lanes))


@register_jitable
def _copy_backwards(x, y, count):
    """Copies the cells from ``x`` down to places from ``y`` up."""
    done = 0
    while done + LANES <= count:
        _turn_register(x - 4 * (done + LANES - 1), y + 4 * done)
        done += LANES
    for i in range(done, count):
        store_scalar(y + 4 * i, load_scalar(x - 4 * i))


@register_jitable
def copy_runs(x, y, count, x_step, y_step, run):
    """Copies ``count`` runs of ``run`` contiguous cells, a step apart. The shortest go cell by cell: parts of
    registers take some machines as long.
    """
    if run == 1 and x_step == -4 and y_step == 4:
        _copy_backwards(x, y, count)
    elif run == 1:
        for _ in range(count):
            store_scalar(y, load_scalar(x))
            x += x_step
            y += y_step
    elif run == 2:
        for _ in range(count):
            store_pair(y, load_pair(x))
            x += x_step
            y += y_step
    elif run == 3:
        for _ in range(count):
            pair, last = load_pair(x), load_scalar(x + 8)
            store_pair(y, pair)
            store_scalar(y + 8, last)
            x += x_step
            y += y_step
    elif run < LANES:
        for _ in range(count):
            store_first(y, load_first(x, run, ZERO), run)
            x += x_step
            y += y_step
    else:
        for _ in range(count):
            copy_run(x, y, run)
            x += x_step
            y += y_step


@step_kernel(Copy)
def copy(step, bases, item, scratch):
    """``y[i0..i5, :run] = x[i0..i5, :run]`` with byte strides; an item is one (i0, i1)."""
    s = C(step, bases)
    i0, i1 = item // s.n1, item % s.n1
    x = s.source + i0 * s.x0 + i1 * s.x1
    y = s.target + i0 * s.y0 + i1 * s.y1
    n2, n3, n4, n5, run = s.n2, s.n3, s.n4, s.n5, s.run
    x2, x3, x4, x5, y2, y3, y4, y5 = s.x2, s.x3, s.x4, s.x5, s.y2, s.y3, s.y4, s.y5
    for i2 in range(n2):
        for i3 in range(n3):
            for i4 in range(n4):
                copy_runs(x + i2 * x2 + i3 * x3 + i4 * x4, y + i2 * y2 + i3 * y3 + i4 * y4, n5, x5, y5, run)


A = reader(CopyAxes)
ENTRY = 24  # bytes of a table entry: size, byte stride in x, in y


@step_kernel(CopyAxes)
def copy_axes(step, bases, item, scratch):
    """Copies planes of the two innermost axes; the ``axes`` around them are in the table, innermost first."""
    s = A(step, bases)
    table, axes, n0, n1, run = s.table, s.axes, s.n0, s.n1, s.run
    x0, x1, y0, y1 = s.x0, s.x1, s.y0, s.y1
    first = item * s.item_planes
    for plane in range(first, min(s.planes, first + s.item_planes)):
        x, y = s.source, s.target
        rest = plane
        for axis in range(axes):
            size = load_int(table + axis * ENTRY)
            x += rest % size * load_int(table + axis * ENTRY + 8)
            y += rest % size * load_int(table + axis * ENTRY + 16)
            rest //= size
        for i in range(n0):
            copy_runs(x + i * x0, y + i * y0, n1, x1, y1, run)


@register_jitable
def fill_run(y, count, value):
    """Writes ``count`` contiguous floats."""
    v = splat(value)
    whole = count // LANES
    for _ in range(whole):
        store(y, v)
        y += BYTES
    rest = count - whole * LANES
    if rest:
        store_first(y, v, rest)


H = reader(Halo)


@step_kernel(Halo)
def halo(step, bases, item, scratch):
    """Writes zeros around one of ``bands`` bands of lines of a plane of an image: ``y`` is its first element
    inside, counts are floats (``whole``: a line with both sides).

    The lines above and below are filled over their whole width, so the image's lines must be evenly spaced.
    """
    s = H(step, bases)
    bands, planes = s.bands, s.planes
    rest, band = item // bands, item % bands
    y = s.target + rest // planes * s.y_image + rest % planes * s.y_plane
    line, lines, left, right = s.y_line, s.lines, s.left, s.right
    top, bottom, whole = s.top, s.bottom, s.whole
    inside = whole - left - right
    first = -top if band == 0 else lines * band // bands
    last = lines + bottom if band == bands - 1 else lines * (band + 1) // bands
    for i in range(first, last):
        start = y + i * line - 4 * left
        if i < 0 or i >= lines:
            fill_run(start, whole, ZERO)
        else:
            fill_run(start, left, ZERO)
            fill_run(start + 4 * (left + inside), right, ZERO)


L = reader(Fill)


@step_kernel(Fill)
def fill(step, bases, item, scratch):
    """Writes a run of ``count`` equal floats per item, the runs ``y_step`` bytes apart."""
    s = L(step, bases)
    y = s.target + item * s.y_step
    fill_run(y, s.count, load_scalar(s.value_cell))
