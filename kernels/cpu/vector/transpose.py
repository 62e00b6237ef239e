"""Transposes a square of cells, or of pairs of cells, in registers."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, primitive


def square(run):
    """The transpose of a square of ``LANES // run`` runs of ``run`` cells, as a primitive."""

    @primitive(types.void, *[types.int64] * 4)
    def transpose(builder, source, source_row, target, target_row):
        def at(base, stride, i):
            return builder.add(base, builder.mul(stride, ir.Constant(simd.I64, i)))

        rows = [simd.load_ir(builder, at(source, source_row, i)) for i in range(LANES // run)]
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
        for i, row in enumerate(rows):
            assert row.type == VEC
            simd.store_ir(builder, at(target, target_row, i), row)

    return transpose


#: Transpose LANES x LANES cells at ``source`` into ``target``; both have rows a byte stride apart.
transpose_square = square(1)
#: The same of LANES/2 x LANES/2 pairs of cells.
transpose_pairs = square(2)
