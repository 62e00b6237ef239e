"""The depthwise microkernel: a few neighbouring pixels by one register of channels, all filter taps.

``y[i, :] = bias + sum_t x_t[i, :] * w[t, :]`` for ``rows`` pixels i; every product stays in its own lane, and a tap's
weights are loaded once for all the pixels.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from bslite.kernels.cpu import simd
from bslite.kernels.cpu.gemm_tile import const, loop
from bslite.kernels.cpu.simd import BYTES, I64, LANES


@functools.cache
def depthwise_tile(rows: int):
    """Microkernel of ``rows`` accumulators, as a Numba intrinsic.

    Arguments (int64 byte addresses, byte strides, counts): ``x, x_col, offsets, taps, w, y, y_col, bias``, float32
    bounds ``lo, hi``, and ``last``, the number of lanes that exist. Pixel i starts at ``x + i*x_col``; tap t at
    ``x + offsets[t]``; ``w`` holds one register per tap.
    """

    def emit(builder, x, x_col, offsets, taps, w, y, y_col, bias, lo, hi, last):
        start = simd.load_ir(builder, bias)

        def tap(index, carried):
            w, *acc = carried
            offset = builder.load(simd.pointer(builder, builder.add(offsets, builder.shl(index, const(3))), I64), align=8)
            origin = builder.add(x, offset)
            weights = simd.load_ir(builder, w)
            for i in range(rows):
                pixel = simd.load_ir(builder, builder.add(origin, builder.mul(x_col, const(i))))
                acc[i] = simd.fma_ir(builder, pixel, weights, acc[i])
            return [builder.add(w, const(BYTES)), *acc]

        _, *acc = loop(builder, taps, [w, *[start] * rows], tap)
        low, high = simd.splat_ir(builder, lo), simd.splat_ir(builder, hi)
        acc = [simd.vmin_ir(builder, high, simd.vmax_ir(builder, low, a)) for a in acc]
        places = [builder.add(y, builder.mul(y_col, const(i))) for i in range(rows)]
        with builder.if_else(builder.icmp_signed(">=", last, const(LANES))) as (whole, part):
            with whole:
                for place, a in zip(places, acc, strict=True):
                    simd.store_ir(builder, place, a)
            with part:
                mask = simd.first_lanes(builder, last)
                for place, a in zip(places, acc, strict=True):
                    simd.masked_store_ir(builder, place, a, mask)

    i64, f32 = types.int64, types.float32
    params = (*[i64] * 8, f32, f32, i64)

    @intrinsic
    def tile(typingctx, x, x_col, offsets, taps, w, y, y_col, bias, lo, hi, last):
        def codegen(context, builder, sig, args):
            emit(builder, *args)
            return context.get_dummy_value()

        return signature(types.void, *params), codegen

    return tile
