"""The microkernel on tiles: two by two tiles of sums, a part of the sum, all products of parts.

``SUMS[32 rows, 32 columns] (+)= sum_k sum_(p, q) A_p,k[32, 32 terms] @ B_q,k[32 terms, 32]`` for the pairs of
parts (p, q) that the arithmetic takes. The batch-reduce GEMM of arXiv 1906.06440 on parts of bfloat16: block
k of A begins at ``a + offsets[k]``, its parts one after the other; B is read front to back.
"""

import functools
import itertools
from typing import Any, NamedTuple

from numba import types

from bslite.kernels.contracts.cpu.tiles import COLS, LINE, ROWS, TILE, TileSweep
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes
from bslite.kernels.cpu.tiles import unit
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, loop, one_of
from bslite.kernels.cpu.vector.simd import I64

OF_A, OF_B = 4, 6  # numbers of the first tiles of A and B; 0 to 3 hold sums

call_tile_sweep = caller(11)


class Operands(NamedTuple):
    """Addresses, byte strides and counts of one block."""

    unit: Any
    a: Any
    a_row: Any
    offsets: Any
    steps: Any
    b: Any
    sums: Any  # 32 rows of 32 float32
    sums_row: Any
    ahead: Any  # where a later B begins, of which each block of terms fetches into L2
    quarters: Any  # so many quarters of the bytes of its own B


def emit_block(builder: Any, rows: int, cols: int, resume: bool, how: TileSweep, op: Operands) -> None:
    """Emits ``rows`` by ``cols`` (1 or 2 each) tiles of sums over ``steps`` blocks of 32 terms; ``resume``:
    they are added to the sums that are there.
    """
    tiles = [(i, j) for i in range(rows) for j in range(cols)]
    sums = {
        (i, j): builder.add(
            op.sums, builder.add(builder.mul(op.sums_row, const(ROWS * i)), const(COLS * 4 * j))
        )
        for i, j in tiles
    }
    for i, j in tiles:
        if resume:
            unit.load_ir(builder, op.unit, 2 * i + j, sums[i, j], op.sums_row)
        else:
            unit.zero_ir(builder, op.unit, 2 * i + j)
    below = builder.mul(op.a_row, const(ROWS))
    b_bytes = how.b_parts * 2 * TILE
    quarter = b_bytes // 4

    def fetch(_: Any, carried: list[Any]) -> list[Any]:
        (ahead,) = carried
        for place in range(0, quarter, LINE):
            simd.prefetch_ir(builder, builder.add(ahead, const(place)), level=2)
        return [builder.add(ahead, const(quarter))]

    def step(k: Any, carried: list[Any]) -> list[Any]:
        b, ahead = carried
        cell = builder.add(op.offsets, builder.shl(k, const(3)))
        a = builder.add(op.a, builder.load(simd.pointer(builder, cell, I64), align=8))
        last_p = last_q = None
        for p, q in how.pairs:
            if p != last_p:
                part = builder.add(a, const(LINE * p))
                for i in range(rows):
                    place = builder.add(part, below) if i else part
                    unit.load_ir(builder, op.unit, OF_A + i, place, op.a_row)
            if q != last_q:
                for j in range(cols):
                    place = builder.add(b, const(TILE * (2 * q + j)))
                    unit.load_ir(builder, op.unit, OF_B + j, place, const(LINE))
            last_p, last_q = p, q
            for i, j in tiles:
                unit.product_ir(builder, op.unit, 2 * i + j, OF_A + i, OF_B + j)
        return [builder.add(b, const(b_bytes)), *loop(builder, op.quarters, [ahead], fetch)]

    loop(builder, op.steps, [op.b, op.ahead], step)
    for i, j in tiles:
        unit.store_ir(builder, op.unit, 2 * i + j, sums[i, j], op.sums_row)


@makes(TileSweep)
@functools.cache
def tile_sweep(products: int, b_parts: int) -> Kernel:
    """A kernel of one block; ``which`` is 0 to 7: a second tile of columns counts 1, one of rows 2, and
    sums that go on 4.
    """

    def emit(builder: Any, which: Any, *args: Any) -> None:
        op, how = Operands(*args), TileSweep(products, b_parts)
        sizes = list(itertools.product((False, True), (1, 2), (1, 2)))
        one_of(
            builder, which,
            {
                n: functools.partial(emit_block, builder, rows, cols, resume, how, op)
                for n, (resume, rows, cols) in enumerate(sizes)
            },
        )  # fmt: skip

    block = simd.primitive(types.void, *[types.int64] * 11)(emit)

    def sweep(which, unit, a, a_row, offsets, steps, b, sums, sums_row, ahead, quarters):
        block(which, unit, a, a_row, offsets, steps, b, sums, sums_row, ahead, quarters)

    return Kernel(sweep, f"tile_sweep_{products}_{b_parts}", 11)
