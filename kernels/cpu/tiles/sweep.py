"""The microkernel on tiles: two by two tiles of sums, a part of the sum, all products of parts.

``SUMS[32 rows, 32 columns] (+)= sum_k sum_(p, q) A_p,k[32, 32 terms] @ B_q,k[32 terms, 32]`` for the pairs of
parts (p, q) that the arithmetic takes. The batch-reduce GEMM of arXiv 1906.06440 on parts of bfloat16: block
k of A begins at ``a + offsets[k]``, its parts one after the other; B is read front to back.
"""

import functools
import itertools
from typing import Any, NamedTuple

from numba import types

from bslite.kernels.contracts.cpu.tiles import COLS, LINE, ROWS, STREAMS, TILE, TileSweep
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
    apart: Any  # bytes between the streams that it is fetched in


#: Quarters of the bytes of its own B that a block of terms may fetch.
QUARTERS = (0, 1, 2, 4)


def emit_block(
    builder: Any, rows: int, cols: int, resume: bool, quarters: int, how: TileSweep, op: Operands
) -> None:
    """Emits ``rows`` by ``cols`` (1 or 2 each) tiles of sums over ``steps`` blocks of 32 terms; ``resume``:
    they are added to the sums that are there. Each block of terms fetches ``quarters`` quarters of a later
    one, a few lines behind each product: many at a time would hold up the tiles that are loaded meanwhile.
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
    lines = quarters * b_bytes // 4 // LINE
    streams = [builder.mul(op.apart, const(i)) for i in range(STREAMS)]
    products = len(how.pairs) * len(tiles)

    def step(k: Any, carried: list[Any]) -> list[Any]:
        b, ahead = carried
        places = [builder.add(ahead, stream) for stream in streams] if lines else []
        cell = builder.add(op.offsets, builder.shl(k, const(3)))
        a = builder.add(op.a, builder.load(simd.pointer(builder, cell, I64), align=8))
        last_p = last_q = None
        done = 0
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
                for line in range(lines * done // products, lines * (done + 1) // products):
                    place = builder.add(places[line % STREAMS], const(LINE * (line // STREAMS)))
                    simd.prefetch_ir(builder, place, level=2)
                done += 1
        if len(how.pairs) == 1:  # lines of sums have left L1 by the time that they are stored
            two = builder.mul(op.sums_row, builder.and_(builder.shl(k, const(1)), const(ROWS * rows - 2)))
            for row in (two, builder.add(two, op.sums_row)):
                for line in range(cols):
                    place = builder.add(builder.add(op.sums, row), const(LINE * line))
                    simd.prefetch_ir(builder, place, write=True)
        return [builder.add(b, const(b_bytes)), builder.add(ahead, const(LINE * lines // STREAMS))]

    loop(builder, op.steps, [op.b, op.ahead], step)
    for i, j in tiles:
        unit.store_ir(builder, op.unit, 2 * i + j, sums[i, j], op.sums_row)


@makes(TileSweep)
@functools.cache
def tile_sweep(products: int, b_parts: int) -> Kernel:
    """A kernel of one block; ``which``: a second tile of columns counts 1, one of rows 2, sums that go on 4,
    and each quarter of B that is fetched 8.
    """

    def emit(builder: Any, which: Any, *args: Any) -> None:
        op, how = Operands(*args), TileSweep(products, b_parts)
        fetched = QUARTERS if unit.has_tiles() else QUARTERS[:1]
        which = which if unit.has_tiles() else builder.and_(which, const(7))
        sizes = itertools.product(fetched, (False, True), (1, 2), (1, 2))
        bodies = {
            8 * quarters + 4 * resume + 2 * (rows - 1) + cols - 1: functools.partial(
                emit_block, builder, rows, cols, resume, quarters, how, op
            )
            for quarters, resume, rows, cols in sizes
        }
        one_of(builder, which, bodies)

    block = simd.primitive(types.void, *[types.int64] * 11)(emit)

    def sweep(which, unit, a, a_row, offsets, steps, b, sums, sums_row, ahead, apart):
        block(which, unit, a, a_row, offsets, steps, b, sums, sums_row, ahead, apart)

    return Kernel(sweep, f"tile_sweep_{products}_{b_parts}", 11)
