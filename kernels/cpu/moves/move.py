"""Data movement: strided copies between layouts, zeros around images, constant fills."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic, register_jitable

from bslite.kernels.contracts.cpu.moves import Copy, Fill, Halo, Interleave
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.ir import const
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import (
    BYTES,
    I32,
    LANES,
    load,
    load_first,
    load_int,
    load_ir,
    load_scalar,
    splat,
    store,
    store_first,
    store_ir,
    store_scalar,
)

ZERO = np.float32(0.0)
C = offsets(Copy)


@register_jitable
def copy_run(x, y, count, x_step, y_step, vector):
    """Copies ``count`` elements; with ``vector`` both sides are contiguous."""
    if vector:
        whole = count // LANES
        for _ in range(whole):
            store(y, load(x))
            x += BYTES
            y += BYTES
        rest = count - whole * LANES
        if rest:
            store_first(
                y, load_first(x, rest, ZERO), rest
            )  # x may be the caller's array, with nothing mapped after it
    else:
        for _ in range(count):
            store_scalar(y, load_scalar(x))
            x += x_step
            y += y_step


@step_kernel(Copy)
def copy(step, bases, item, scratch):
    """``y[i0..i5] = x[i0..i5]`` with byte strides; an item is one (i0, i1)."""
    n1 = load_int(step + C.n1)
    i0, i1 = item // n1, item % n1
    x = operand(step, bases, C.source) + i0 * load_int(step + C.x0) + i1 * load_int(step + C.x1)
    y = operand(step, bases, C.target) + i0 * load_int(step + C.y0) + i1 * load_int(step + C.y1)
    n2, n3, n4, n5 = (
        load_int(step + C.n2),
        load_int(step + C.n3),
        load_int(step + C.n4),
        load_int(step + C.n5),
    )
    x2, x3, x4, x5 = (
        load_int(step + C.x2),
        load_int(step + C.x3),
        load_int(step + C.x4),
        load_int(step + C.x5),
    )
    y2, y3, y4, y5 = (
        load_int(step + C.y2),
        load_int(step + C.y3),
        load_int(step + C.y4),
        load_int(step + C.y5),
    )
    vector = load_int(step + C.vector)
    for i2 in range(n2):
        for i3 in range(n3):
            for i4 in range(n4):
                copy_run(x + i2 * x2 + i3 * x3 + i4 * x4, y + i2 * y2 + i3 * y3 + i4 * y4, n5, x5, y5, vector)


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


R = offsets(Interleave)


@intrinsic
def interleave_rgb(typingctx, x, plane, y):
    """Writes ``3*LANES`` floats at ``y``, pixel by pixel, from three runs of LANES floats at ``x``, ``plane``
    bytes apart.
    """

    def codegen(context, builder, sig, args):
        x, plane, y = args
        red, green, blue = (load_ir(builder, builder.add(x, builder.mul(plane, const(c)))) for c in range(3))
        for j in range(3):
            element = [j * LANES + lane for lane in range(LANES)]
            # Red and green are merged first, then blue: a shuffle takes two operands.
            two = [e // 3 + LANES * (e % 3 == 1) for e in element]
            three = [LANES + e // 3 if e % 3 == 2 else lane for lane, e in enumerate(element)]
            index = ir.VectorType(I32, LANES)
            mixed = builder.shuffle_vector(red, green, ir.Constant(index, two))
            mixed = builder.shuffle_vector(mixed, blue, ir.Constant(index, three))
            store_ir(builder, builder.add(y, const(j * BYTES)), mixed)
        return context.get_dummy_value()

    return signature(types.void, types.int64, types.int64, types.int64), codegen


@step_kernel(Interleave)
def interleave(step, bases, item, scratch):
    """Copies a line of three planes to pixels of three channels, as a picture comes in."""
    lines, pixels = load_int(step + R.lines), load_int(step + R.pixels)
    image, line = item // lines, item % lines
    x = operand(step, bases, R.source) + image * load_int(step + R.x_image) + line * load_int(step + R.x_line)
    y = operand(step, bases, R.target) + image * load_int(step + R.y_image) + line * load_int(step + R.y_line)
    plane = load_int(step + R.x_plane)
    whole = pixels // LANES
    for _ in range(whole):
        interleave_rgb(x, plane, y)
        x += BYTES
        y += 3 * BYTES
    for _ in range(pixels - whole * LANES):
        for c in range(3):
            store_scalar(y + 4 * c, load_scalar(x + c * plane))
        x += 4
        y += 12


H = offsets(Halo)


@step_kernel(Halo)
def halo(step, bases, item, scratch):
    """Writes zeros around one of ``bands`` bands of lines of a plane of an image: ``y`` is its first element
    inside, counts are floats (``whole``: a line with both sides).

    The lines above and below are filled over their whole width, so the image's lines must be evenly spaced.
    """
    bands, planes = load_int(step + H.bands), load_int(step + H.planes)
    rest, band = item // bands, item % bands
    y = operand(step, bases, H.target)
    y += rest // planes * load_int(step + H.y_image) + rest % planes * load_int(step + H.y_plane)
    line, lines = load_int(step + H.y_line), load_int(step + H.lines)
    left, right = load_int(step + H.left), load_int(step + H.right)
    top, bottom, whole = load_int(step + H.top), load_int(step + H.bottom), load_int(step + H.whole)
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


L = offsets(Fill)


@step_kernel(Fill)
def fill(step, bases, item, scratch):
    """Writes a run of ``count`` equal floats per item, the runs ``y_step`` bytes apart."""
    y = operand(step, bases, L.target) + item * load_int(step + L.y_step)
    fill_run(y, load_int(step + L.count), load_scalar(step + L.value))
