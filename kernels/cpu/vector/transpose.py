"""Transposing copies: from channels-last memory to planes and back, a square of registers at a time."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from bslite.kernels.cpu.runtime.compile import record, step_kernel
from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, load_int, load_scalar, store_scalar

F = record("transpose", "x x_at y y_at n1 n2 x0 x1 x2 y0 y1 y2 rows cols x_col y_row blocks block_cols")


@intrinsic
def transpose_square(typingctx, source, source_row, target, target_row):
    """LANES x LANES floats at ``source``, transposed to ``target``; rows are a byte stride apart in both."""

    def codegen(context, builder, sig, args):
        source, source_row, target, target_row = args

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
        return context.get_dummy_value()

    return signature(types.void, *[types.int64] * 4), codegen


@step_kernel("transpose", F)
def transpose(step, bases, item, scratch):
    """``y[i0, i1, i2, r, c] = x[i0, i1, i2, c, r]``: r contiguous in x, c in y; a block of c per item."""
    blocks, n1, n2 = load_int(step + F.blocks), load_int(step + F.n1), load_int(step + F.n2)
    block, matrix = item % blocks, item // blocks
    i0, i1, i2 = matrix // (n1 * n2), matrix // n2 % n1, matrix % n2
    x, y = operand(step, bases, F.x), operand(step, bases, F.y)
    x += i0 * load_int(step + F.x0) + i1 * load_int(step + F.x1) + i2 * load_int(step + F.x2)
    y += i0 * load_int(step + F.y0) + i1 * load_int(step + F.y1) + i2 * load_int(step + F.y2)
    x_col, y_row = load_int(step + F.x_col), load_int(step + F.y_row)
    rows, first = load_int(step + F.rows), block * load_int(step + F.block_cols)
    last = min(load_int(step + F.cols), first + load_int(step + F.block_cols))
    c = first
    while c < last:
        width = min(LANES, last - c)
        r = 0
        if width == LANES:
            while r + LANES <= rows:
                transpose_square(x + c * x_col + 4 * r, x_col, y + r * y_row + 4 * c, y_row)
                r += LANES
        while r < rows:
            for k in range(c, c + width):
                store_scalar(y + r * y_row + 4 * k, load_scalar(x + k * x_col + 4 * r))
            r += 1
        c += width
