"""Transposes a square of cells, or of pairs of cells, in registers."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.simd import I32, I64, LANES, VEC, primitive


def _at(builder, base, stride, i):
    return builder.add(base, builder.mul(stride, ir.Constant(I64, i)))


def _transposed(builder, rows, run):
    """The registers ``rows``, a square of runs of ``run`` cells, transposed."""
    step = run
    while step < LANES:  # swap the off-diagonal blocks of 1, 2, 4, ... runs
        upper = [j if not j & step else LANES + j - step for j in range(LANES)]
        lower = [j + step if not j & step else LANES + j for j in range(LANES)]
        masks = [ir.Constant(ir.VectorType(I32, LANES), m) for m in (upper, lower)]
        between = step // run
        for i in range(LANES // run):
            if not i & between:
                a, b = rows[i], rows[i + between]
                rows[i], rows[i + between] = (builder.shuffle_vector(a, b, m) for m in masks)
        step *= 2
    return rows


def square(run):
    """The transpose of a square of ``LANES // run`` runs of ``run`` cells, as a primitive."""

    @primitive(types.void, *[types.int64] * 4)
    def transpose(builder, source, source_row, target, target_row):
        rows = [simd.load_ir(builder, _at(builder, source, source_row, i)) for i in range(LANES // run)]
        for i, row in enumerate(_transposed(builder, rows, run)):
            assert row.type == VEC
            simd.store_ir(builder, _at(builder, target, target_row, i), row)

    return transpose


def part(zeros):
    """The transpose of ``rows`` x ``cols`` cells, at most LANES each, into ``cols`` registers: a primitive.

    Nothing outside these cells is read. Lanes beyond ``rows`` get zeros, or, without ``zeros``, stay.
    """

    @primitive(types.void, *[types.int64] * 6)
    def transpose(builder, source, source_row, rows, cols, target, target_row):
        empty, none = ir.Constant(VEC, [0.0] * LANES), ir.Constant(simd.MASK, [0] * LANES)

        def where(mask, i, count):
            return builder.select(builder.icmp_signed("<", ir.Constant(I64, i), count), mask, none)

        of_row = simd.first_lanes(builder, cols)
        of_register = ir.Constant(simd.MASK, [1] * LANES) if zeros else simd.first_lanes(builder, rows)
        loaded = [
            simd.masked_load_ir(builder, _at(builder, source, source_row, i), where(of_row, i, rows), empty)
            for i in range(LANES)
        ]
        for i, row in enumerate(_transposed(builder, loaded, 1)):
            at = _at(builder, target, target_row, i)
            simd.masked_store_ir(builder, at, row, where(of_register, i, cols))

    return transpose


#: Transpose LANES x LANES cells at ``source`` into ``target``; both have rows a byte stride apart.
transpose_square = square(1)
#: The same of LANES/2 x LANES/2 pairs of cells.
transpose_pairs = square(2)
#: Transpose a part of such a square; lanes that it does not reach become zeros, or stay as they are.
transpose_part, transpose_only = part(True), part(False)
