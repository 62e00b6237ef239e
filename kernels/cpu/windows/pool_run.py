"""Neighbouring windows of one line, a register of channels at a time: shared columns are reduced once.

A window is reduced column by column, each from the top down, then the columns from left to right. A 3x3
window with stride 1 shares two of its three columns with the next one, so a sweep along the line reduces one
new column per pixel: three loads instead of nine. Any association gives the same maximum (of equal zeros the
last, of several NaN the first), but not the same sum: sums are taken strictly in that order.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, loop, one_of, opaque, where

#: The widths and strides of windows, in columns, that there is code for.
GEOMETRIES = (
    (2, 1),
    (3, 1),
    (3, 2),
    (5, 1),
)  # windows that do not overlap share nothing: best read in memory order
GROUP = 4  # pixels of one iteration


class Operands(NamedTuple):
    """A run's arguments: int64 byte addresses, byte strides and counts; the last four are float32."""

    x: Any  # the first window's first element
    x_row: Any
    x_pixel: Any
    rows: Any  # of a window, at least one
    y: Any
    y_pixel: Any
    pixels: Any
    scale: Any  # 0, or the register of factors; then `shift` is the register to add
    shift: Any
    divisor: Any  # of sums
    inverse: Any  # 1 / divisor
    lo: Any  # clamp
    hi: Any


def emit_run(builder: Any, wide: int, stride: int, summed: bool, op: Operands) -> None:
    """Emits a sweep over ``pixels`` windows, one whole register of channels."""
    overlap = wide - stride
    # p + j*step is an instruction's operand for j = 1, 2, 4, 8; with the odd multiples, for any j.
    multiples = {j: opaque(builder, builder.mul(op.x_pixel, const(j))) for j in (1, 3, 5, 7)}
    divisor, inverse, low, high = (simd.splat_ir(builder, v) for v in (op.divisor, op.inverse, op.lo, op.hi))
    has_affine = builder.icmp_signed("!=", op.scale, const(0))
    bounded = [builder.fcmp_ordered("!=", b, b.type(v)) for b, v in ((op.lo, -np.inf), (op.hi, np.inf))]
    has_clamp = builder.or_(*bounded)
    anywhere = op.x
    scale, shift = (
        simd.load_ir(builder, builder.select(has_affine, at, anywhere)) for at in (op.scale, op.shift)
    )

    def combine(a: Any, b: Any) -> Any:
        return builder.fadd(a, b) if summed else simd.vmax_nan_ir(builder, a, b)

    def element(p: Any, j: int) -> Any:
        odd, times = j, 1
        while odd and odd % 2 == 0:
            odd, times = odd // 2, times * 2
        return simd.load_ir(builder, builder.add(p, builder.mul(multiples[odd], const(times))) if j else p)

    def columns(p: Any, count: int) -> list[Any]:
        """``count`` neighbouring columns from ``p`` on, each reduced over its rows."""
        start = [element(p, j) for j in range(count)]

        def row(_: Any, carried: list[Any]) -> list[Any]:
            p, *found = carried
            p = opaque(builder, builder.add(p, op.x_row))
            return [p, *(combine(a, element(p, j)) for j, a in enumerate(found))]

        return loop(builder, builder.sub(op.rows, const(1)), [p, *start], row)[1:]

    def windows(found: list[Any], count: int) -> list[Any]:
        """The results of ``count`` windows from their columns."""
        if not summed and (wide, stride) == (3, 1):  # two neighbours share a pair of columns
            pairs = [combine(found[i + 1], found[i + 2]) for i in range(0, count, 2)]
            return [
                combine(pairs[i // 2], found[i + 2]) if i % 2 else combine(found[i], pairs[i // 2])
                for i in range(count)
            ]
        results = [functools.reduce(combine, found[i * stride : i * stride + wide]) for i in range(count)]
        return [simd.divide_ir(builder, a, divisor, inverse) for a in results] if summed else results

    def epilogue(values: list[Any]) -> list[Any]:
        """The values with affine and clamp, each in a branch that never changes within a run."""

        def clamped() -> list[Any]:
            return [simd.vmin_ir(builder, high, simd.vmax_ir(builder, low, v)) for v in values]

        values = where(
            builder, has_affine, values, lambda: [simd.fma_ir(builder, v, scale, shift) for v in values]
        )
        return where(builder, has_clamp, values, clamped)

    def turn(count: int) -> Any:
        """A loop body of ``count`` pixels; carried values: read address, write address, shared columns."""

        def body(_: Any, carried: list[Any]) -> list[Any]:
            x, y, *found = carried
            found = found + columns(x, count * stride)
            for i, value in enumerate(epilogue(windows(found, count))):
                simd.store_ir(builder, builder.add(y, builder.mul(op.y_pixel, const(i))), value)
            x = builder.add(x, builder.mul(op.x_pixel, const(count * stride)))
            y = opaque(builder, builder.add(y, builder.mul(op.y_pixel, const(count))))
            return [opaque(builder, x), y, *found[len(found) - overlap :]]

        return body

    ahead = builder.add(op.x, builder.mul(op.x_pixel, const(overlap)))
    carried = [ahead, op.y, *(columns(op.x, overlap) if overlap else [])]
    carried = loop(builder, builder.sdiv(op.pixels, const(GROUP)), carried, turn(GROUP))
    loop(builder, builder.srem(op.pixels, const(GROUP)), carried, turn(1))


@functools.cache
def pool_run(summed: bool) -> Any:
    """Numba intrinsic ``run(wide, stride, *Operands)`` for the windows in `GEOMETRIES`."""
    i64, f32 = types.int64, types.float32
    params = [f32 if name in ("divisor", "inverse", "lo", "hi") else i64 for name in Operands._fields]

    def emit(builder: Any, wide: Any, stride: Any, *args: Any) -> None:
        selector = builder.add(builder.shl(wide, const(32)), stride)
        run = functools.partial(emit_run, builder, summed=summed, op=Operands(*args))
        one_of(builder, selector, {(w << 32) + s: functools.partial(run, w, s) for w, s in GEOMETRIES})

    return simd.primitive(types.void, i64, i64, *params)(emit)
