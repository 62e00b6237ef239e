"""The microkernel of few rows by a panel of numbers of a few bits, which are widened in registers.

``C[rows, vecs*LANES] (+)= A[rows, depth] @ W[depth, vecs*LANES]``, term by term as in `tile`, so the sums
have the same bits. A register of cells has `CELL` / bits terms of its columns: one load for eight, or four.
"""

import functools
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.contracts.cpu.blocks import CELL, BlockSweep
from bslite.kernels.cpu.gemm.tile import End
from bslite.kernels.cpu.gemm.tiles import AHEAD, add_products, by_rows, groups_of
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.codes import number_ir
from bslite.kernels.cpu.vector.ir import const, loop, opaque
from bslite.kernels.cpu.vector.memory import load_scalar
from bslite.kernels.cpu.vector.simd import BYTES, LANES, VEC

call_block_sweep = caller(12)


class Operands(NamedTuple):
    """A tile's arguments, as `tile.Operands` has them; ``depth`` terms in blocks of ``block``."""

    a: Any
    a_row: Any
    b: Any
    block: Any
    depth: Any
    c: Any
    c_row: Any
    bias: Any
    resume: Any
    residual: Any
    residual_row: Any
    lo: Any
    hi: Any
    last: Any


def emit_tile(builder: Any, rows: int, vecs: int, op: Operands, bits: int, zeros: bool) -> None:
    """Emits a tile of ``rows`` x ``vecs`` accumulators."""
    held, groups, row = CELL // bits, groups_of(rows), vecs * BYTES
    end = End(builder, rows, vecs, op)

    def registers(address: Any) -> list[Any]:
        return [simd.load_ir(builder, builder.add(address, const(v * BYTES))) for v in range(vecs)]

    def block(_: Any, carried: list[Any]) -> list[Any]:
        b, left, *rest = carried
        scales = registers(b)
        stand = registers(builder.add(b, const(row))) if zeros else [None] * vecs

        def cells(_: Any, inner: list[Any]) -> list[Any]:
            b, *rest = inner
            pointers, acc = rest[: len(groups)], rest[len(groups) :]
            held_here = registers(b)
            for v in range(vecs):
                simd.prefetch_ir(builder, builder.add(b, const(AHEAD + v * BYTES)))
            for n in range(held):
                numbers = (number_ir(builder, x, n, bits, z) for x, z in zip(held_here, stand, strict=True))
                ws = [builder.fmul(q, s) for q, s in zip(numbers, scales, strict=True)]
                add_products(builder, pointers, groups, op.a_row, n, ws, acc)
            pointers = [opaque(builder, builder.add(p, const(4 * held))) for p in pointers]
            return [builder.add(b, const(row)), *pointers, *acc]

        here = builder.select(builder.icmp_signed("<", left, op.block), left, op.block)
        begin = builder.add(b, const((1 + zeros) * row))
        after, *rest = loop(builder, builder.sdiv(here, const(held)), [begin, *rest], cells)
        return [after, builder.sub(left, here), *rest]

    pointers = [
        opaque(builder, builder.add(op.a, builder.mul(op.a_row, const(group[0])))) for group in groups
    ]
    start = [ir.Constant(VEC, [0.0] * LANES)] * (rows * vecs)
    last = builder.sub(op.block, const(1))
    count = builder.sdiv(builder.add(op.depth, last), op.block)
    carried = loop(builder, count, [op.b, op.depth, *pointers, *start], block)
    end.store(end.of(carried[2 + len(groups) :]))


@makes(BlockSweep)
@functools.cache
def block_sweep(vecs: int, most: int, bits: int, zeros: bool) -> Kernel:
    """A kernel of one tile."""
    tile = by_rows(emit_tile, Operands, most, vecs=vecs, bits=bits, zeros=zeros)

    def sweep(rows, a, a_row, b, block, depth, c, c_row, bias, resume, clamp, last):
        lo, hi = load_scalar(clamp), load_scalar(clamp + 8)
        tile(rows, a, a_row, b, block, depth, c, c_row, bias, resume, 0, 0, lo, hi, last)

    return Kernel(sweep, f"block_sweep_{most}x{vecs}_{bits}" + "_zeros" * zeros, 12)
