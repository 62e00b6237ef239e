"""The microkernel of the weight update: a register tile, the sum over pixels inside (arXiv 1906.06440).

``C[rows, vecs*LANES] += sum_b sum_q A_b[q, rows]^T @ B_b[q, vecs*LANES]``: as in the forward tile the C tile
stays in registers over the whole batch, here of segments of pixels. A's ``rows`` elements are contiguous, its
pixels ``a_col`` bytes apart; B is a packed panel.
"""

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.gemm.tiles import by_rows
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, loop, opaque
from bslite.kernels.cpu.vector.simd import BYTES, I64, LANES, VEC

UNROLL = 4  # pixels per loop iteration
ACCUMULATORS = 8  # at least so many sums of a depthwise tile hide the latency of two multiply-adds a cycle


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts."""

    a: Any
    a_col: Any
    table: Any  # for each segment its first byte in A, its first pixel in B, and its pixels
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
        b = builder.mul(b, const(vecs * BYTES))
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
    return by_rows(emit_tile, Operands, most, vecs=vecs)


class DepthwiseOperands(NamedTuple):
    """The arguments of a depthwise tile, as those of `Operands`; ``lanes`` channels are there."""

    x: Any
    x_col: Any
    x_tap: Any
    table: Any  # for each segment its first byte in x, its first byte in g, and its pixels
    count: Any
    g: Any
    g_col: Any
    y: Any
    y_tap: Any
    lanes: Any


def emit_depthwise(builder: Any, taps: int, whole: bool, op: DepthwiseOperands) -> None:
    """Emits ``y[s] += sum_q x[q, s] * g[q]`` for one register of channels and ``taps`` neighbouring taps.

    Neighbouring pixels have accumulators of their own, enough to hide the latency of a multiply-add.
    """
    zero, mask = ir.Constant(VEC, [0.0] * LANES), simd.first_lanes(builder, op.lanes)
    pixels = max(1, ACCUMULATORS // taps)
    start = [zero] * (taps * pixels)

    def read(address: Any) -> Any:
        return simd.load_ir(builder, address) if whole else simd.masked_load_ir(builder, address, mask, zero)

    def steps(count: int) -> Any:
        def body(_: Any, carried: list[Any]) -> list[Any]:
            x, g, *acc = carried
            for k in range(count):
                grad = read(g)
                for s in range(taps):
                    place = builder.add(x, builder.mul(op.x_tap, const(s))) if s else x
                    acc[k * taps + s] = simd.fma_ir(builder, read(place), grad, acc[k * taps + s])
                x, g = opaque(builder, builder.add(x, op.x_col)), opaque(builder, builder.add(g, op.g_col))
            return [x, g, *acc]

        return body

    def segment(_: Any, carried: list[Any]) -> list[Any]:
        table, *acc = carried
        x, g, many = (
            builder.load(simd.pointer(builder, builder.add(table, const(8 * i)), I64), align=8)
            for i in range(3)
        )
        carried = [builder.add(op.x, x), builder.add(op.g, g), *acc]
        carried = loop(builder, builder.sdiv(many, const(pixels)), carried, steps(pixels))
        if pixels > 1:
            carried = loop(builder, builder.srem(many, const(pixels)), carried, steps(1))
        return [builder.add(table, const(24)), *carried[2:]]

    _, *acc = loop(builder, op.count, [op.table, *start], segment)
    for s in range(taps):
        total = acc[s]
        for k in range(1, pixels):
            total = builder.fadd(total, acc[k * taps + s])
        place = builder.add(op.y, builder.mul(op.y_tap, const(s)))
        simd.store_ir(builder, place, builder.fadd(simd.load_ir(builder, place), total))


@functools.cache
def depthwise_update_tile(taps: int) -> Any:
    """Numba intrinsic ``tile(*DepthwiseOperands)`` for ``taps`` neighbouring taps."""
    i64 = types.int64

    def emit(builder: Any, *args: Any) -> None:
        op = DepthwiseOperands(*args)
        with builder.if_else(builder.icmp_signed(">=", op.lanes, const(LANES))) as (whole, part):
            with whole:
                emit_depthwise(builder, taps, True, op)
            with part:
                emit_depthwise(builder, taps, False, op)

    return simd.primitive(types.void, *[i64] * len(DepthwiseOperands._fields))(emit)
