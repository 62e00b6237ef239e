"""The depthwise microkernels: a few neighbouring pixels by one register of channels, all filter taps.

``y[i, :] = bias + sum_{r, s} x[r, i*stride + s*dilation, :] * w[r, s, :]`` for ``rows`` pixels i; every
product stays in its own lane, and the terms of a sum are added filter row by filter row, left to right; in a
volume, plane by plane.

In groups of a few channels, ``y[i, k] = bias[k] + sum_{r, c, s} x[r, i*stride + s*dilation, c] * w[k, r, c,
s]``: for each input c of a group, a pixel's lanes are picked so that each output has the c-th input of its
group in its lane.

Two variants give the same bits. By taps, for any filter: a weight is loaded once for all the pixels, a pixel
again for every tap. By filter rows, for a width and stride known at compile time and dilation 1: the weights
of a row, or of a piece of it, stay in registers, each pixel of the image is loaded once for it and used for
every output that needs it. A tile of 14 pixels and a 3x3 filter then loads 57 registers for 126
multiply-adds, 135 by taps.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.contracts.cpu.sweep import pieces
from bslite.kernels.cpu.gemm.cells import store_cells
from bslite.kernels.cpu.gemm.tiles import by_rows
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.across import picked_ir
from bslite.kernels.cpu.vector.ir import clamped, const, loop, opaque, store_tile
from bslite.kernels.cpu.vector.simd import BYTES

PIXELS_PER_POINTER = 3  # x86 reaches p, p+s and p+2s by addressing modes alone


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts; ``lo`` and ``hi`` are float32."""

    x: Any
    x_col: Any  # between the pixels of neighbouring outputs: stride * pixel
    x_tap: Any  # between neighbouring taps: dilation * pixel
    x_row: Any  # between neighbouring filter rows
    filter_rows: Any
    filter_cols: Any
    w: Any  # one register per tap, filter row by filter row
    y: Any
    y_col: Any
    bias: Any
    lo: Any  # clamp
    hi: Any
    last: Any  # number of valid lanes
    planes: Any  # planes of a volume's filter
    x_deep: Any  # bytes between them in the input
    kept: Any  # 0: y need not be written
    cells: Any  # where y is written as cells of two bfloat16
    cells_col: Any
    flag: Any  # raised by results without a finite bfloat16
    inputs: Any  # of a group
    outputs: Any


#: What a pixel's register is multiplied as; see `_in_groups`.
Pick = Callable[[Any], Any]


def _by_taps(builder: Any, rows: int, op: Operands, x: Any, w: Any, acc: list[Any], pick: Pick) -> list[Any]:
    """The end address in w, and the accumulators of a tile after one row of any filter."""

    def tap(_: Any, carried: list[Any]) -> list[Any]:
        place, w, *acc = carried
        weights = simd.load_ir(builder, w)
        for i in range(rows):
            pixel = pick(simd.load_ir(builder, builder.add(place, builder.mul(op.x_col, const(i)))))
            acc[i] = simd.fma_ir(builder, pixel, weights, acc[i])
        return [builder.add(place, op.x_tap), builder.add(w, const(BYTES)), *acc]

    return loop(builder, op.filter_cols, [x, w, *acc], tap)[1:]


def _by_filter_rows(
    builder: Any, taps: int, stride: int, rows: int, op: Operands, x: Any, w: Any, acc: list[Any], pick: Pick
) -> list[Any]:
    """As `_by_taps`, of a filter ``taps`` wide, dilation 1, piece by piece of a row."""
    for count, each in pieces(taps):

        def piece(_: Any, carried: list[Any], each: int = each) -> list[Any]:
            x, w, *acc = carried
            made = _piece(builder, each, stride, rows, op, x, w, acc, pick)
            after = builder.add(x, builder.mul(op.x_tap, const(each)))
            return [after, builder.add(w, const(each * BYTES)), *made]

        start = [x, w, *acc]
        x, w, *acc = loop(builder, const(count), start, piece) if count > 1 else piece(None, start)
    return [w, *acc]


def _piece(
    builder: Any, taps: int, stride: int, rows: int, op: Operands, x: Any, w: Any, acc: list[Any], pick: Pick
) -> list[Any]:
    """The accumulators after ``taps`` neighbouring taps of a filter row."""
    weights = [simd.load_ir(builder, builder.add(w, const(s * BYTES))) for s in range(taps)]
    place, acc = x, list(acc)
    for j in range((rows - 1) * stride + taps):
        group, k = divmod(j, PIXELS_PER_POINTER)
        if group and not k:
            place = opaque(builder, builder.add(place, builder.mul(op.x_tap, const(PIXELS_PER_POINTER))))
            # Without this LLVM loads many pixels ahead, more than there are registers for.
            builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
        pixel = simd.load_ir(builder, builder.add(place, builder.mul(op.x_tap, const(k))) if k else place)
        pixel = pick(pixel)
        for s in range(taps):
            i, between = divmod(j - s, stride)
            if not between and 0 <= i < rows:
                acc[i] = simd.fma_ir(builder, pixel, weights[s], acc[i])
    return acc


def _in_groups(builder: Any, op: Operands, x: Any, w: Any, acc: list[Any], one: Callable[..., Any]) -> Any:
    """One row of a filter on groups of channels, ``one`` input of all groups after the other."""
    lanes = ir.VectorType(simd.I32, simd.LANES)

    def number(value: Any) -> Any:
        return simd.splat_ir(builder, builder.trunc(value, simd.I32), lanes)

    shift = builder.cttz(op.outputs, ir.Constant(ir.IntType(1), 1))  # they are a power of 2
    group = builder.lshr(ir.Constant(lanes, list(range(simd.LANES))), number(shift))
    first = builder.mul(group, number(op.inputs))

    def step(_: Any, carried: list[Any]) -> list[Any]:
        picked, w, *acc = carried
        w, *acc = one(x, w, acc, lambda pixel: picked_ir(builder, pixel, picked))
        return [builder.add(picked, number(const(1))), w, *acc]

    return loop(builder, op.inputs, [first, w, *acc], step)[1:]


def _pixels(builder: Any, address: Any, stride: Any, count: int) -> list[Any]:
    """Addresses of ``count`` neighbouring pixels, a pointer for every few of them."""
    places = []
    for i in range(count):
        group, k = divmod(i, PIXELS_PER_POINTER)
        if group and not k:
            address = opaque(builder, builder.add(address, builder.mul(stride, const(PIXELS_PER_POINTER))))
        places.append(builder.add(address, builder.mul(stride, const(k))) if k else address)
    return places


def emit_tile(
    builder: Any, taps: int, stride: int, deep: bool, cells: bool, grouped: bool, rows: int, op: Operands
) -> None:
    """Emits a tile of ``rows`` accumulators; ``taps`` 0: for any filter; ``deep``: for several planes. With
    ``cells``, it heeds the operands from ``kept`` to ``flag``, ``grouped`` the last two.
    """

    def one(x: Any, w: Any, acc: list[Any], pick: Pick) -> list[Any]:
        if taps:
            return _by_filter_rows(builder, taps, stride, rows, op, x, w, acc, pick)
        return _by_taps(builder, rows, op, x, w, acc, pick)

    def row(_: Any, carried: list[Any]) -> list[Any]:
        x, w, *acc = carried
        made = _in_groups(builder, op, x, w, acc, one) if grouped else one(x, w, acc, lambda pixel: pixel)
        return [builder.add(x, op.x_row), *made]

    def one_plane(op: Operands, start: list[Any]) -> list[Any]:
        return loop(builder, op.filter_rows, [op.x, op.w, *start], row)

    def plane(_: Any, carried: list[Any]) -> list[Any]:
        x, w, *acc = carried
        _, w, *acc = one_plane(op._replace(x=x, w=w), acc)
        return [builder.add(x, op.x_deep), w, *acc]

    places = _pixels(builder, op.y, op.y_col, rows)
    for place in places:  # prefetch the lines that the end of the tile needs
        simd.prefetch_ir(builder, place, write=True)
    start = [simd.load_ir(builder, op.bias)] * rows
    found = loop(builder, op.planes, [op.x, op.w, *start], plane) if deep else one_plane(op, start)
    acc = clamped(builder, found[2:], op.lo, op.hi)

    def store() -> None:
        store_tile(builder, lambda: _pixels(builder, op.y, op.y_col, rows), acc, op.last, [True] * rows)

    if not cells:
        store()
        return
    with builder.if_then(builder.icmp_signed("!=", op.kept, const(0))):
        store()
    store_cells(builder, _pixels(builder, op.cells, op.cells_col, rows), acc, 1, op.last, op.flag)


@functools.cache
def depthwise_tile(taps: int, stride: int, most: int, deep: bool, cells: bool, grouped: bool) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows: for filters ``taps`` wide with a
    stride of ``stride`` pixels; both 0: for any filter. ``deep``: for filters of several planes.
    ``grouped``: for groups of a few channels.
    """
    how = {"taps": taps, "stride": stride, "deep": deep, "cells": cells, "grouped": grouped}
    return by_rows(emit_tile, Operands, most, **how)
