"""The microkernel of layers with a few outputs: lanes run along the terms of a sum, not along the outputs.

``C[i, k] = sum_b sum_d A_b[i, d] * B_b[k, d]`` for ``rows`` pixels i and a few outputs k. A panel of so few
outputs would leave most of its lanes empty. Here a register holds terms that lie side by side in a pixel, an
accumulator the partial sums of one result, and these are added pairwise at the end. Weights are
``[taps][depth / lanes][outputs][lanes]``, zeros beyond the depth.
"""

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from bslite.kernels.cpu.gemm.tile import End, Operands
from bslite.kernels.cpu.gemm.tiles import by_rows, groups_of
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.across import pairwise
from bslite.kernels.cpu.vector.ir import const, loop, opaque
from bslite.kernels.cpu.vector.simd import BYTES, I32, I64, LANES, VEC


def emit_tile(builder: Any, rows: int, outputs: int, op: Operands) -> None:
    """Emits a tile of ``rows`` x ``outputs`` accumulators, with the operands of a GEMM tile."""
    groups = groups_of(rows)
    end = End(builder, rows, 1, op)
    whole, rest = builder.sdiv(op.depth, const(LANES)), builder.srem(op.depth, const(LANES))
    zeros = ir.Constant(VEC, [0.0] * LANES)
    mask = simd.first_lanes(builder, rest)  # what lies beyond the depth may be no number

    def some(at: Any) -> Any:
        return simd.masked_load_ir(builder, at, mask, zeros)

    def block(load: Callable[[Any], Any]) -> Any:
        def body(_: Any, carried: list[Any]) -> list[Any]:
            b, *others = carried
            pointers, acc = others[: len(groups)], others[len(groups) :]
            weights = [simd.load_ir(builder, builder.add(b, const(k * BYTES))) for k in range(outputs)]
            for pointer, group in zip(pointers, groups, strict=True):
                for j, i in enumerate(group):
                    at = builder.add(pointer, builder.mul(op.a_row, const(j))) if j else pointer
                    x = load(at)
                    for k, weight in enumerate(weights):
                        acc[i * outputs + k] = simd.fma_ir(builder, x, weight, acc[i * outputs + k])
            pointers = [opaque(builder, builder.add(p, const(BYTES))) for p in pointers]
            return [builder.add(b, const(outputs * BYTES)), *pointers, *acc]

        return body

    def tap(index: Any, carried: list[Any]) -> list[Any]:
        b, *acc = carried
        cell = builder.add(op.offsets, builder.shl(index, const(3)))
        origin = builder.add(op.a, builder.load(simd.pointer(builder, cell, I64), align=8))
        starts = [builder.add(origin, builder.mul(op.a_row, const(group[0]))) for group in groups]
        carried = [b, *(opaque(builder, start) for start in starts), *acc]
        carried = loop(builder, whole, carried, block(functools.partial(simd.load_ir, builder)))
        once = builder.zext(builder.icmp_signed("!=", rest, const(0)), I64)
        carried = loop(builder, once, carried, block(some))
        return [carried[0], *carried[1 + len(groups) :]]

    _, *acc = loop(builder, op.batch, [op.b, *([zeros] * (rows * outputs))], tap)
    sums = [pairwise(builder, x, builder.fadd) for x in acc]
    results = []
    for i in range(rows):
        result = zeros
        for k in range(outputs):
            result = builder.insert_element(result, sums[i * outputs + k], ir.Constant(I32, k))
        results.append(result)
    end.store(end.of(results))


@functools.cache
def across_tile(outputs: int, most: int) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows and so many outputs."""
    return by_rows(emit_tile, Operands, most, outputs=outputs)
