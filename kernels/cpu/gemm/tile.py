"""The batch-reduce GEMM microkernel: one register tile, the whole reduction inside.

``C[rows, vecs*LANES] (+)= sum_b A_b[rows, depth] @ B_b[depth, vecs*LANES]`` (arXiv 1906.06440): the C tile
stays in registers over the whole batch. ``A_b`` starts at ``a + offsets[b]``, its rows ``a_row`` bytes apart
and its depth contiguous; the ``B_b`` are one packed panel, read front to back. A convolution needs no im2col:
the batch is the filter taps, the offsets say where each tap starts in the padded image.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.cpu.gemm.cells import store_cells
from bslite.kernels.cpu.gemm.tiles import LINE, PREFETCHES, add_products, by_rows, groups_of, prefetching
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.bfloat16 import dot_ir
from bslite.kernels.cpu.vector.halves import load_weights
from bslite.kernels.cpu.vector.ir import clamped, const, loop, opaque, store_tile, where
from bslite.kernels.cpu.vector.simd import BYTES, I64, LANES, VEC

UNROLL = 4  # depth steps per loop iteration


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts; ``lo`` and ``hi`` are float32."""

    a: Any
    a_row: Any
    offsets: Any  # the start of each of the `batch` A's, relative to `a`
    batch: Any
    depth: Any
    b: Any
    c: Any
    c_row: Any
    bias: Any  # vecs*LANES floats to add, unless `resume`
    resume: Any  # C holds an earlier part of the reduction, which the tile adds to
    residual: Any  # 0, or a tile to add at the end
    residual_row: Any
    lo: Any  # clamp
    hi: Any
    last: Any  # valid lanes of the last vector: the others are neither written nor used
    ahead: Any  # from where the tile prefetches what a later tile reads as B; 0: it prefetches its own
    kept: Any  # 0: C need not be written
    cells: Any  # 0, or where C is written as cells of two bfloat16
    cells_row: Any
    flag: Any  # raised by results without a finite bfloat16


class End:
    """What follows the sums of a tile: bias, residual, clamp and store. Made before the sums, it prefetches
    the lines that it needs, so that they have arrived when these are done.
    """

    def __init__(self, builder: Any, rows: int, vecs: int, op: Operands) -> None:
        self.builder, self.op, self.rows, self.vecs = builder, op, rows, vecs
        self.has_residual = builder.icmp_signed("!=", op.residual, const(0))
        for place in self._places(op.c, op.c_row):
            simd.prefetch_ir(builder, place, write=True)
        with builder.if_then(self.has_residual):
            for place in self._places(op.residual, op.residual_row):
                simd.prefetch_ir(builder, place)
        for v in range(vecs):
            simd.prefetch_ir(builder, builder.add(op.bias, const(v * BYTES)))

    def _places(self, address: Any, stride: Any) -> Iterator[Any]:
        """The addresses of a tile, row by row: each is made of the one before, or LLVM makes all of them
        before the sums and keeps them in memory.
        """
        for i in range(self.rows):
            address = opaque(self.builder, self.builder.add(address, stride) if i else address)
            yield from (self.builder.add(address, const(v * BYTES)) for v in range(self.vecs))

    def of(self, acc: list[Any]) -> list[Any]:
        """The results from the sums.

        The bias is added at the end: a running sum that starts from a large one rounds every small term to
        its last place. An earlier part of the reduction in C takes its place; parts that are summed
        separately keep the rounding error of long reductions small.
        """
        builder, op = self.builder, self.op
        # An address is selected: of two branches that add, LLVM makes one that adds what these have loaded.
        resumed = builder.icmp_signed("!=", op.resume, const(0))
        before = builder.select(resumed, op.c, op.bias), builder.select(resumed, op.c_row, const(0))
        sums = self._added(acc, *before)
        sums = where(
            builder, self.has_residual, sums, lambda: self._added(sums, op.residual, op.residual_row)
        )
        return clamped(builder, sums, op.lo, op.hi)

    def _added(self, values: list[Any], address: Any, stride: Any) -> list[Any]:
        """The values plus a tile at an address."""
        builder, sums = self.builder, list[Any]()
        mask, zeros = simd.first_lanes(builder, self.op.last), ir.Constant(VEC, [0.0] * LANES)
        for n, (x, place) in enumerate(zip(values, self._places(address, stride), strict=True)):
            if n % self.vecs == self.vecs - 1:
                y = simd.masked_load_ir(builder, place, mask, zeros)
            else:
                y = simd.load_ir(builder, place)
            sums.append(builder.fadd(x, y))
        return sums

    def store(self, results: list[Any]) -> None:
        """Write the results to C."""
        op, partial = self.op, [v == self.vecs - 1 for _ in range(self.rows) for v in range(self.vecs)]
        store_tile(self.builder, lambda: self._places(op.c, op.c_row), results, op.last, partial)


def taps_of(
    builder: Any, op: Any, groups: Sequence[Sequence[int]], steps_of: Callable[[int], Any]
) -> Callable[[Any, list[Any]], list[Any]]:
    """The body of the loop over the batch of a tile's operands ``op``; carried values: b, ahead, sums.

    ``steps_of(count)``: the body of a loop over ``count`` steps of depth at a time.
    """

    def tap(index: Any, carried: list[Any]) -> list[Any]:
        b, ahead, *acc = carried
        cell = builder.add(op.offsets, builder.shl(index, const(3)))
        origin = builder.add(op.a, builder.load(simd.pointer(builder, cell, I64), align=8))
        pointers = [
            opaque(builder, builder.add(origin, builder.mul(op.a_row, const(group[0])))) for group in groups
        ]
        carried = [b, ahead, *pointers, *acc]
        carried = loop(builder, builder.sdiv(op.depth, const(UNROLL)), carried, steps_of(UNROLL))
        carried = loop(builder, builder.srem(op.depth, const(UNROLL)), carried, steps_of(1))
        return [*carried[:2], *carried[2 + len(groups) :]]

    return tap


def emit_tile(
    builder: Any, rows: int, vecs: int, op: Operands, fetches: bool, dots: bool, narrow: Narrow
) -> None:
    """Emits a tile of ``rows`` x ``vecs`` accumulators. It may over-read C and the residual by one vector.

    With ``dots``, ``depth`` counts cells of two bfloat16, and the last four operands are heeded. ``narrow``:
    how B lies in memory.

    With ``fetches``, it prefetches the beginning of a later panel, from `Operands.ahead` on, or its own.
    """
    groups, register = groups_of(rows), LANES * narrow.bytes
    multiply = dot_ir if dots else simd.fma_ir
    end = End(builder, rows, vecs, op)
    start = [ir.Constant(VEC, [0.0] * LANES)] * (rows * vecs)
    prefetch = prefetching(builder, op.ahead, UNROLL * vecs * register)

    def steps_of(count: int) -> Any:
        """A loop body of ``count`` rank-1 updates; carried values: b, ahead, a pointer per group of rows,
        accumulators.
        """

        def body(_: Any, carried: list[Any]) -> list[Any]:
            b, ahead, *rest = carried
            pointers, acc = rest[: len(groups)], rest[len(groups) :]
            if fetching := count == UNROLL and fetches:
                prefetch(b, ahead)
            for k in range(count):
                if k:  # no load moves above this: LLVM would load the next B's so early that tiles spill
                    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
                places = (builder.add(b, const((k * vecs + v) * register)) for v in range(vecs))
                bs = [load_weights(builder, place, narrow) for place in places]
                add_products(builder, pointers, groups, op.a_row, k, bs, acc, multiply)
            pointers = [opaque(builder, builder.add(p, const(4 * count))) for p in pointers]
            b = builder.add(b, const(count * vecs * register))
            return [b, builder.add(ahead, const(LINE * PREFETCHES * fetching)), *pointers, *acc]

        return body

    _, _, *acc = loop(builder, op.batch, [op.b, op.ahead, *start], taps_of(builder, op, groups, steps_of))
    acc = end.of(acc)
    if not dots:
        end.store(acc)
        return
    with builder.if_then(builder.icmp_signed("!=", op.kept, const(0))):
        end.store(acc)
    with builder.if_then(builder.icmp_signed("!=", op.cells, const(0))):
        starts = [builder.add(op.cells, builder.mul(op.cells_row, const(i))) for i in range(rows)]
        store_cells(builder, starts, acc, vecs, op.last, op.flag)


@functools.cache
def gemm_tile(vecs: int, most: int, fetches: bool, dots: bool, narrow: Narrow) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows, ``vecs`` registers wide."""
    return by_rows(emit_tile, Operands, most, vecs=vecs, fetches=fetches, dots=dots, narrow=narrow)
