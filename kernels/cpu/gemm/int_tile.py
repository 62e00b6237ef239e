"""The microkernel of sums of products of integers: as `tile`, on pairs of int16 or quads of bytes.

A lane of a panel holds the weights of one output for the neighbouring channels of a cell. A cell of the image
is broadcast; one instruction multiplies two pairs and adds the products, which are twice those of a
multiply-add of float32. Quads are four times those: one instruction with VNNI, and two without. The sums go
to a line in scratch memory; `finish` makes of them what is stored. Weights of int8 that
multiply pairs may lie as bytes and be widened as they are loaded: half as many bytes come from a cache.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.contracts.cpu.integer import ByteSweep, IntSweep
from bslite.kernels.cpu.gemm.tile import UNROLL, taps_of
from bslite.kernels.cpu.gemm.tiles import LINE, PREFETCHES, by_rows, groups_of, prefetching
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, loop, opaque, where
from bslite.kernels.cpu.vector.lanes import INTS
from bslite.kernels.cpu.vector.pairs import dot_ir, load_ints, load_widened
from bslite.kernels.cpu.vector.quads import quad_dot_ir
from bslite.kernels.cpu.vector.simd import BYTES, I32

call_int_sweep = caller(14)


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts."""

    a: Any
    a_row: Any
    offsets: Any  # the start of each of the `batch` A's, relative to `a`
    batch: Any
    depth: Any  # cells
    b: Any
    c: Any
    c_row: Any
    start: Any  # the sums begin with these registers,
    resume: Any  # or with what is in C, which the tile adds to
    ahead: Any  # from where the tile prefetches what a later tile reads as B; 0: it prefetches its own


class Form(NamedTuple):
    """What the numbers are: how a register of weights is loaded, of how many bytes, and multiplied."""

    dot: Callable[..., Any]
    load: Callable[..., Any]
    register: int
    fetches: bool  # what a later tile reads, or its own


PAIRS, QUADS = Form(dot_ir, load_ints, BYTES, True), Form(quad_dot_ir, load_ints, BYTES, True)
BYTE_PAIRS = Form(dot_ir, load_widened, BYTES // 2, False)


def emit_tile(builder: Any, rows: int, vecs: int, op: Operands, form: Form) -> None:
    """Emits a tile of ``rows`` x ``vecs`` registers of sums of products of numbers of the ``form``."""
    tile = [(i, v) for i in range(rows) for v in range(vecs)]
    groups = groups_of(rows)
    prefetch = prefetching(builder, op.ahead, UNROLL * vecs * form.register)
    starts = [load_ints(builder, builder.add(op.start, const(v * BYTES))) for v in range(vecs)]

    def steps_of(count: int) -> Any:
        """A loop body of ``count`` cells; carried values: b, ahead, a pointer per group of rows, sums."""

        def body(_: Any, carried: list[Any]) -> list[Any]:
            b, ahead, *rest = carried
            pointers, acc = rest[: len(groups)], rest[len(groups) :]
            if fetching := form.fetches and count == UNROLL:
                prefetch(b, ahead)
            for k in range(count):
                if k:  # as in `tile`: no load moves above this
                    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
                places = [builder.add(b, const((k * vecs + v) * form.register)) for v in range(vecs)]
                bs = [form.load(builder, place) for place in places]
                for pointer, group in zip(pointers, groups, strict=True):
                    for j, i in enumerate(group):
                        address = builder.add(pointer, builder.mul(op.a_row, const(j))) if j else pointer
                        place = simd.pointer(builder, builder.add(address, const(4 * k)), I32)
                        xs = simd.splat_ir(builder, builder.load(place, align=4), INTS)
                        for v in range(vecs):
                            at = i * vecs + v
                            acc[at] = form.dot(builder, acc[at], xs, bs[v])
            pointers = [opaque(builder, builder.add(p, const(4 * count))) for p in pointers]
            b = builder.add(b, const(count * vecs * form.register))
            return [b, builder.add(ahead, const(LINE * PREFETCHES * fetching)), *pointers, *acc]

        return body

    rows_of_c = [builder.add(op.c, builder.mul(op.c_row, const(i))) for i in range(rows)]
    places = [builder.add(rows_of_c[i], const(v * BYTES)) for i, v in tile]
    first = [starts[v] for _, v in tile]
    resume = builder.icmp_signed("!=", op.resume, const(0))
    first = where(builder, resume, first, lambda: [load_ints(builder, place) for place in places])
    _, _, *acc = loop(builder, op.batch, [op.b, op.ahead, *first], taps_of(builder, op, groups, steps_of))
    for value, place in zip(acc, places, strict=True):
        builder.store(value, simd.pointer(builder, place, INTS), align=4)


@functools.cache
def int_tile(vecs: int, most: int, form: Form) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows, ``vecs`` registers wide."""
    return by_rows(emit_tile, Operands, most, vecs=vecs, form=form)


@makes(IntSweep)
@functools.cache
def int_sweep(vecs: int, most: int, quads: bool) -> Kernel:
    """A kernel of ``tiles`` neighbouring tiles, each ``rows`` (at most ``most``) pixels by ``vecs`` registers
    of channels.
    """
    return _sweep(vecs, most, QUADS if quads else PAIRS, f"int_sweep_{most}x{vecs}{'_quads' * quads}")


@makes(ByteSweep)
@functools.cache
def byte_sweep(vecs: int, most: int) -> Kernel:
    """The same for pairs, with weights as bytes."""
    return _sweep(vecs, most, BYTE_PAIRS, f"byte_sweep_{most}x{vecs}")


def _sweep(vecs: int, most: int, form: Form, name: str) -> Kernel:
    tile = int_tile(vecs, most, form)

    def sweep(rows, tiles, a, a_col, offsets, taps, depth, b, c, c_col, start, resume, ahead, share):
        for _ in range(tiles):
            tile(rows, a, a_col, offsets, taps, depth, b, c, c_col, start, resume, ahead)
            ahead += share
            a += rows * a_col
            c += rows * c_col

    return Kernel(sweep, name, 14)
