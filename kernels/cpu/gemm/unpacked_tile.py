"""The microkernel of products with a matrix as it lies in memory: a register tile of running sums.

``C[rows, vecs*LANES] += A[rows, depth] @ B[depth, vecs*LANES]``, each sum going on from C term by term. So a
sum over many terms may be cut anywhere, and has the bits of the tile that takes them all at once (tile.py).
"""

import functools
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import add_products, by_rows, groups_of
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.atomic import LINE
from bslite.kernels.cpu.vector.ir import const, loop, opaque
from bslite.kernels.cpu.vector.simd import BYTES


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and a count."""

    a: Any
    a_row: Any
    depth: Any
    b: Any
    b_row: Any
    c: Any  # rows of `vecs` registers, one after the other
    ahead: Any  # the B of a later tile, which this one prefetches


def emit_tile(builder: Any, rows: int, vecs: int, op: Operands) -> None:
    """Emits a tile of ``rows`` x ``vecs`` accumulators."""
    places = [builder.add(op.c, const(i * BYTES)) for i in range(rows * vecs)]
    groups = groups_of(rows)

    def steps_of(count: int) -> Any:
        """A loop body of ``count`` rank-1 updates; carried values: b, ahead, a pointer per group of
        rows, accumulators.
        """

        def body(_: Any, carried: list[Any]) -> list[Any]:
            b, ahead, *rest = carried
            pointers, acc = rest[: len(groups)], rest[len(groups) :]
            for k in range(count):
                if k:  # no load moves above this: LLVM would load the next B's so early that tiles spill
                    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
                for line in range(0, vecs * BYTES, LINE):
                    simd.prefetch_ir(builder, builder.add(ahead, const(line)))
                ahead = opaque(builder, builder.add(ahead, op.b_row))
                bs = [simd.load_ir(builder, builder.add(b, const(v * BYTES))) for v in range(vecs)]
                add_products(builder, pointers, groups, op.a_row, k, bs, acc)
                b = opaque(builder, builder.add(b, op.b_row))
            pointers = [opaque(builder, builder.add(p, const(4 * count))) for p in pointers]
            return [b, ahead, *pointers, *acc]

        return body

    starts = [opaque(builder, builder.add(op.a, builder.mul(op.a_row, const(g[0])))) for g in groups]
    carried = [op.b, op.ahead, *starts, *(simd.load_ir(builder, place) for place in places)]
    carried = loop(builder, builder.sdiv(op.depth, const(UNROLL)), carried, steps_of(UNROLL))
    carried = loop(builder, builder.srem(op.depth, const(UNROLL)), carried, steps_of(1))
    for place, value in zip(places, carried[2 + len(groups) :], strict=True):
        simd.store_ir(builder, place, value)


@functools.cache
def unpacked_tile(vecs: int, most: int) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows, ``vecs`` registers wide."""
    return by_rows(emit_tile, Operands, most, vecs=vecs)
