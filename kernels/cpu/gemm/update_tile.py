"""The microkernel of the weight update: a register tile, the sum over pixels inside (arXiv 1906.06440).

``C[rows, vecs*LANES] += sum_b sum_q A_b[q, rows]^T @ B_b[q, vecs*LANES]``: as in the forward tile the C tile
stays in registers over the whole batch, here of segments of pixels. A's ``rows`` elements are contiguous, its
pixels ``a_col`` bytes apart; B is a packed panel. So A is x as it lies in memory, and B the gradient.
"""

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, loop, one_of, opaque
from bslite.kernels.cpu.vector.simd import BYTES, I64, LANES, VEC

UNROLL = 4  # pixels per loop iteration


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts."""

    a: Any
    a_col: Any
    table: Any  # for each segment where it begins in A and in B, relative to `a` and `b`, and its pixels
    count: Any
    b: Any
    c: Any
    c_row: Any


def emit_tile(builder: Any, rows: int, vecs: int, op: Operands) -> None:
    """Emits a tile of ``rows`` x ``vecs`` accumulators, which it adds to C."""
    start = [ir.Constant(VEC, [0.0] * LANES)] * (rows * vecs)

    def pixels(count: int) -> Any:
        """A loop body of ``count`` rank-1 updates; carried values: a, b, accumulators."""

        def body(_: Any, carried: list[Any]) -> list[Any]:
            a, b, *acc = carried
            for k in range(count):
                if k:  # no load moves above this: LLVM would load so early that tiles spill
                    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
                bs = [
                    simd.load_ir(builder, builder.add(b, const((k * vecs + v) * BYTES))) for v in range(vecs)
                ]
                for i in range(rows):
                    x = builder.load(simd.pointer(builder, builder.add(a, const(4 * i))), align=4)
                    xs = simd.splat_ir(builder, x)
                    for v in range(vecs):
                        acc[i * vecs + v] = simd.fma_ir(builder, xs, bs[v], acc[i * vecs + v])
                a = opaque(builder, builder.add(a, op.a_col))
            return [a, builder.add(b, const(count * vecs * BYTES)), *acc]

        return body

    def segment(_: Any, carried: list[Any]) -> list[Any]:
        table, *acc = carried
        a, b, many = (
            builder.load(simd.pointer(builder, builder.add(table, const(8 * i)), I64), align=8)
            for i in range(3)
        )
        carried = [builder.add(op.a, a), builder.add(op.b, b), *acc]
        carried = loop(builder, builder.sdiv(many, const(UNROLL)), carried, pixels(UNROLL))
        carried = loop(builder, builder.srem(many, const(UNROLL)), carried, pixels(1))
        return [builder.add(table, const(24)), *carried[2:]]

    _, *acc = loop(builder, op.count, [op.table, *start], segment)
    for i in range(rows):
        row = builder.add(op.c, builder.mul(op.c_row, const(i)))
        for v in range(vecs):
            place = builder.add(row, const(v * BYTES))
            simd.store_ir(builder, place, builder.fadd(simd.load_ir(builder, place), acc[i * vecs + v]))


@functools.cache
def update_tile(vecs: int, most: int) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows, ``vecs`` registers wide."""
    i64 = types.int64

    def emit(builder: Any, rows: Any, *args: Any) -> None:
        tile = functools.partial(emit_tile, builder, vecs=vecs, op=Operands(*args))
        one_of(builder, rows, {r: functools.partial(tile, r) for r in range(1, most + 1)})

    return simd.primitive(types.void, i64, *[i64] * len(Operands._fields))(emit)
