"""The microkernels of convolutions over planes: registers hold neighbouring pixels of a plane.

``C[o, p] = sum_t W[t, o] * x[offsets[t] + p]`` for a few outputs o and some registers of pixels p: the
batch-reduce GEMM (arXiv 1906.06440) with its lanes along the pixels. A term is an input channel under a tap
of the filter, and lies anywhere.

With one filter for each plane, outputs share no pixels, but lines do: a tile then has neighbouring lines of
one output, and takes each line of x once for all of them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from bslite.kernels.cpu.gemm.tiles import by_rows
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.ir import const, either, loop, opaque
from bslite.kernels.cpu.vector.simd import BYTES, I64, LANES, VEC


class Operands(NamedTuple):
    """A tile's arguments: int64 byte addresses, byte strides and counts."""

    x: Any
    x_line: Any  # between lines of x, for tiles of lines
    offsets: Any  # of the terms; for tiles of lines, of those of one line of the filter
    terms: Any  # the number of these
    filter_rows: Any  # for tiles of lines: at least as many as the tile has
    w: Any
    bias: Any  # of each output
    resume: Any  # C holds an earlier part of the sums, to which the tile adds, not to the bias
    c: Any
    c_row: Any


def emit_tile(builder: Any, vecs: int, bias_first: bool, rows: int, op: Operands) -> None:
    """Emits a tile of ``rows`` outputs by ``vecs`` registers of pixels."""
    biases = [_splat_at(builder, builder.add(op.bias, const(4 * i))) for i in range(rows)]
    zeros = ir.Constant(VEC, [0.0] * LANES)
    start = [biases[i] if bias_first else zeros for i in range(rows) for _ in range(vecs)]

    def term(index: Any, carried: list[Any]) -> list[Any]:
        w, *acc = carried
        xs = _pixels(builder, op, op.x, index, vecs)
        for i in range(rows):
            weight = _splat_at(builder, builder.add(w, const(4 * i)))
            for v, x in enumerate(xs):
                acc[i * vecs + v] = simd.fma_ir(builder, weight, x, acc[i * vecs + v])
        return [builder.add(w, const(4 * rows)), *acc]

    _, *acc = loop(builder, op.terms, [op.w, *start], term)
    places = _places(builder, op, rows, vecs)
    if not bias_first:
        before = either(
            builder,
            builder.icmp_signed("!=", op.resume, const(0)),
            lambda: [simd.load_ir(builder, place) for place in places],
            lambda: [biases[i // vecs] for i in range(rows * vecs)],
        )
        acc = [builder.fadd(a, b) for a, b in zip(acc, before, strict=True)]
    for place, value in zip(places, acc, strict=True):
        simd.store_ir(builder, place, value)


def emit_lines(builder: Any, vecs: int, bias_first: bool, rows: int, op: Operands) -> None:
    """Emits a tile of ``rows`` neighbouring lines of one output: each line of x is multiplied by the lines of
    the filter that it lies under, from the first one of the tile's lines down.
    """
    bias, zeros = _splat_at(builder, op.bias), ir.Constant(VEC, [0.0] * LANES)
    row = builder.mul(op.terms, const(4))  # of weights
    back = [builder.mul(row, const(i)) for i in range(rows)]

    def line(under: range) -> Callable[[Any, list[Any]], list[Any]]:
        """A line of x under these lines of the tile; carried values: x, weights of the first line."""

        def body(_: Any, carried: list[Any]) -> list[Any]:
            x, w, *acc = carried

            def term(index: Any, carried: list[Any]) -> list[Any]:
                w, *acc = carried
                xs = _pixels(builder, op, x, index, vecs)
                for i in under:
                    weight = _splat_at(builder, builder.sub(w, back[i]))
                    for v, pixels in enumerate(xs):
                        acc[i * vecs + v] = simd.fma_ir(builder, weight, pixels, acc[i * vecs + v])
                return [builder.add(w, const(4)), *acc]

            w, *acc = loop(builder, op.terms, [w, *acc], term)
            return [builder.add(x, op.x_line), w, *acc]

        return body

    carried = [op.x, op.w, *[bias if bias_first else zeros] * (rows * vecs)]
    for above in range(rows - 1):
        carried = line(range(above + 1))(None, carried)
    whole = builder.sub(op.filter_rows, const(rows - 1))
    carried = loop(builder, whole, carried, line(range(rows)))
    for above in range(1, rows):
        carried = line(range(above, rows))(None, carried)
    for place, value in zip(_places(builder, op, rows, vecs), carried[2:], strict=True):
        simd.store_ir(builder, place, value if bias_first else builder.fadd(value, bias))


def _splat_at(builder: Any, address: Any) -> Any:
    return simd.splat_ir(builder, builder.load(simd.pointer(builder, address), align=4))


def _pixels(builder: Any, op: Operands, x: Any, term: Any, vecs: int) -> list[Any]:
    """The registers of pixels of a term."""
    cell = builder.add(op.offsets, builder.shl(term, const(3)))
    place = opaque(builder, builder.add(x, builder.load(simd.pointer(builder, cell, I64), align=8)))
    return [simd.load_ir(builder, builder.add(place, const(v * BYTES))) for v in range(vecs)]


def _places(builder: Any, op: Operands, rows: int, vecs: int) -> list[Any]:
    lines = [builder.add(op.c, builder.mul(op.c_row, const(i))) for i in range(rows)]
    return [builder.add(line, const(v * BYTES)) for line in lines for v in range(vecs)]


@functools.cache
def plane_tile(vecs: int, most: int, bias_first: bool, lines: bool) -> Any:
    """Numba intrinsic ``tile(rows, *Operands)`` for 1 to ``most`` rows: outputs, or with ``lines``, lines."""
    emit = emit_lines if lines else emit_tile
    return by_rows(emit, Operands, most, vecs=vecs, bias_first=bias_first)
