"""The tile as LLVM IR emitted from Python: kernels/cpu/gemm_tile.py without epilogue and prefetch."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from benchmarks.ladder.problem import WIDTH
from bslite.kernels.cpu import simd
from bslite.kernels.cpu.ir import const, loop
from bslite.kernels.cpu.simd import BYTES, I64, LANES, VEC
from bslite.plan.tiling import TALLEST

UNROLL = 4  # depth steps of one turn of the loop


def most_rows() -> int:
    """Rows of the largest tile: accumulators, the registers of B and one for A fit the register file."""
    return min(TALLEST, (simd.simd().registers - WIDTH - 1) // WIDTH)


def emit(builder: Any, rows: int, a: Any, a_row: Any, offsets: Any, batch: Any, depth: Any, b: Any) -> Any:
    """IR of ``sum_t a_t[rows, depth] @ b_t[depth, WIDTH registers]``, a_t at ``a + offsets[t]``: the sums."""

    def steps(_: Any, carried: list[Any]) -> list[Any]:
        at_a, at_b, *acc = carried
        for k in range(UNROLL):
            ys = [
                simd.load_ir(builder, builder.add(at_b, const((k * WIDTH + v) * BYTES))) for v in range(WIDTH)
            ]
            for i in range(rows):
                at = builder.add(builder.add(at_a, builder.mul(a_row, const(i))), const(4 * k))
                x = simd.splat_ir(builder, builder.load(simd.pointer(builder, at), align=4))
                for v, y in enumerate(ys):
                    acc[i * WIDTH + v] = simd.fma_ir(builder, x, y, acc[i * WIDTH + v])
        at_b = builder.add(at_b, const(UNROLL * WIDTH * BYTES))
        return [builder.add(at_a, const(4 * UNROLL)), at_b, *acc]

    def tap(t: Any, carried: list[Any]) -> list[Any]:
        cell = builder.add(offsets, builder.shl(t, const(3)))
        origin = builder.add(a, builder.load(simd.pointer(builder, cell, I64), align=8))
        _, *rest = loop(builder, builder.sdiv(depth, const(UNROLL)), [origin, *carried], steps)
        return rest

    zeros = [ir.Constant(VEC, [0.0] * LANES)] * (rows * WIDTH)
    _, *acc = loop(builder, batch, [b, *zeros], tap)
    return acc


@functools.cache
def emitted_tile(rows: int) -> Any:
    """Numba intrinsic ``tile(a, a_row, offsets, batch, depth, b, c, c_row)``; `depth` a multiple of 4."""

    @intrinsic
    def tile(typingctx, a, a_row, offsets, batch, depth, b, c, c_row):  # type: ignore[no-untyped-def]
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            *operands, at_c, row = args
            for n, value in enumerate(emit(builder, rows, *operands)):
                place = builder.add(at_c, builder.mul(row, const(n // WIDTH)))
                simd.store_ir(builder, builder.add(place, const(n % WIDTH * BYTES)), value)
            return context.get_dummy_value()

        return signature(types.void, *[types.int64] * 8), codegen

    return tile
