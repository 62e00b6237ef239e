"""Transposes a square of floats in registers."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, primitive


@primitive(types.void, *[types.int64] * 4)
def transpose_square(builder, source, source_row, target, target_row):
    """Transposes LANES x LANES floats at ``source`` into ``target``; both have rows a byte stride apart."""

    def at(base, stride, i):
        return builder.add(base, builder.mul(stride, ir.Constant(simd.I64, i)))

    rows = [simd.load_ir(builder, at(source, source_row, i)) for i in range(LANES)]
    step = 1
    while step < LANES:  # swap the off-diagonal blocks of size 1, 2, 4, ...
        upper = [j if not j & step else LANES + j - step for j in range(LANES)]
        lower = [j + step if not j & step else LANES + j for j in range(LANES)]
        masks = [ir.Constant(ir.VectorType(I32, LANES), m) for m in (upper, lower)]
        for i in range(LANES):
            if not i & step:
                a, b = rows[i], rows[i + step]
                rows[i], rows[i + step] = (builder.shuffle_vector(a, b, m) for m in masks)
        step *= 2
    for i, row in enumerate(rows):
        assert row.type == VEC
        simd.store_ir(builder, at(target, target_row, i), row)
