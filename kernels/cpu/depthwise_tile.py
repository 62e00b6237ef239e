"""The depthwise microkernel: a few neighbouring pixels by one register of channels, all filter taps.

``y[i, :] = bias + sum_t x_t[i, :] * w[t, :]`` for ``rows`` pixels i; every product stays in its own lane,
and a tap's
weights are loaded once for all the pixels.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from bslite.kernels.cpu import simd
from bslite.kernels.cpu.ir import const, loop, one_of, store_tile
from bslite.kernels.cpu.simd import BYTES, I64


class Operands(NamedTuple):
    """What a tile works on: int64 byte addresses, byte strides and counts; ``lo`` and ``hi`` are float32."""

    x: Any
    x_col: Any
    offsets: Any  # where each of `taps` taps starts, from `x`
    taps: Any
    w: Any  # one register per tap
    y: Any
    y_col: Any
    bias: Any
    lo: Any  # clamp
    hi: Any
    last: Any  # lanes that exist


def emit_tile(builder: Any, rows: int, op: Operands) -> None:
    """IR of a tile of ``rows`` accumulators."""
    start = simd.load_ir(builder, op.bias)

    def tap(index: Any, carried: list[Any]) -> list[Any]:
        w, *acc = carried
        cell = builder.add(op.offsets, builder.shl(index, const(3)))
        origin = builder.add(op.x, builder.load(simd.pointer(builder, cell, I64), align=8))
        weights = simd.load_ir(builder, w)
        for i in range(rows):
            pixel = simd.load_ir(builder, builder.add(origin, builder.mul(op.x_col, const(i))))
            acc[i] = simd.fma_ir(builder, pixel, weights, acc[i])
        return [builder.add(w, const(BYTES)), *acc]

    _, *acc = loop(builder, op.taps, [op.w, *[start] * rows], tap)
    low, high = simd.splat_ir(builder, op.lo), simd.splat_ir(builder, op.hi)
    acc = [simd.vmin_ir(builder, high, simd.vmax_ir(builder, low, a)) for a in acc]
    places = [builder.add(op.y, builder.mul(op.y_col, const(i))) for i in range(rows)]
    store_tile(builder, places, acc, op.last, [True] * rows)


@functools.cache
def depthwise_tile(most: int) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows."""
    i64, f32 = types.int64, types.float32
    params = [f32 if name in ("lo", "hi") else i64 for name in Operands._fields]

    @intrinsic
    def tile(typingctx, rows, x, x_col, offsets, taps, w, y, y_col, bias, lo, hi, last):
        def codegen(context, builder, sig, args):
            op = Operands(*args[1:])
            one_of(builder, args[0], {r: lambda r=r: emit_tile(builder, r, op) for r in range(1, most + 1)})
            return context.get_dummy_value()

        return signature(types.void, i64, *params), codegen

    return tile
