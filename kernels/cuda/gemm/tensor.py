"""Products of a tile on a GPU's tensor cores: each float32 product as three of TF32.

TF32 has float32's exponent and 11 bits of significand. A float32 is the sum of two such numbers but for its
last bit, in one of four numbers: the nearest one, ``high``, and the rest, ``low``, of which the cores read 11
bits. Of the four products of parts the three largest are taken; what is left out, ``low * low``, is at most
2**-22 of the product, and of either sign. So a product is a little less exact than float32's, and a sum of 32
terms or more is more exact, as fewer of its additions round: tensor cores cut off what a sum has beyond
float32, always towards zero, so a sum stays in them for one slice of DEPTH terms only; slices are added up by
float32 additions, which round to nearest. The smaller products come first, for the same reason.

A warp makes ``8*TM x 4*TN`` of the tile by ``mma.sync.m16n8k8``. Slices lie as ``[BM][DEPTH]`` and
``[BN][DEPTH]`` in shared memory. Which of a slice's terms an instruction calls first is free, as long as A
and B agree: a lane takes terms ``2t`` and ``2t + 1``, side by side, where PTX's manual has ``t`` and
``t + 4``. So a warp reads 256 bytes that are one run, 8 at a time, and no two meet in a bank. Numbers without
parts (infinities, NaN, what rounds to infinity) leave sums that are not finite: the kernel then multiplies
that block once more, by `tile.products`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.kernels.cuda.gemm.tile import DEPTH, Tile, unrolled
from bslite.kernels.cuda.math.libm import as_float, as_int
from bslite.kernels.cuda.runtime.device import SIMULATED, cuda, device_function, intrinsic

f, i32, u32 = np.float32, np.int32, np.uint32
ROWS, COLS = 16, 8  # of an instruction's sums
EVEN = u32(0xFFFFFFFE)  # of places that are even: LLVM sees that pairs are whole

if not SIMULATED:
    from llvmlite import ir
    from numba import types

    @intrinsic
    def mma(typingctx, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
        """Return the lane's four sums ``c + A B`` of a 16x8x8 product of TF32."""

        def codegen(context, builder, signature, args):
            word, real = ir.IntType(32), ir.FloatType()
            made = ir.LiteralStructType([real] * 4)
            kind = ir.FunctionType(made, [word] * 6 + [real] * 4)
            text = (
                "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
            )
            asm = ir.InlineAsm(kind, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f")
            given = [builder.bitcast(x, word) for x in args[:6]] + list(args[6:])
            found = builder.call(asm, given, attrs=("convergent",))  # a warp's lanes make it together
            return context.make_tuple(
                builder, signature.return_type, [builder.extract_value(found, i) for i in range(4)]
            )

        return types.UniTuple(types.float32, 4)(*[types.float32] * 10), codegen


@device_function
def tf32(x):
    """Return the nearest number of 11 bits, of two equally near the one farther from zero.

    NaN and numbers that round to infinity become what they may: the rest, ``x - tf32(x)``, is NaN then.
    """
    return as_float(i32(i32(as_int(x) + i32(0x1000)) & i32(-0x2000)))


def placement(tile: Tile) -> Callable[[Any], tuple[Any, Any, Any, Any]]:
    """Return a device function that gives a thread's first row and column of the tile's sums, and the first
    cells of a slice of A and of B that it reads.
    """
    warp_rows, warp_cols = 8 * tile.thread_rows, 4 * tile.thread_cols
    across = tile.cols // warp_cols

    @device_function
    def place(t):
        warp, group, lane = t // 32, t % 32 // 4, t % 4
        row, col = warp // across * warp_rows, warp % across * warp_cols
        if SIMULATED:  # a thread reads all terms of its sums
            return row + group, col + 2 * lane, (row + group) * DEPTH, (col + 2 * lane) * DEPTH
        at_a, at_b = (row + group) * DEPTH + 2 * lane, (col + group) * DEPTH + 2 * lane
        return row + group, col + 2 * lane, at_a, at_b

    return place


def products(tile: Tile) -> Callable[..., None]:
    """Return the device function ``(first=0, acc, fa, fb, shared, a_at, b_at)``: ``acc += a^T b`` of a slice.

    As `tile.products`, with the places that `placement` gives; ``fa [8]`` and ``fb [2 * TN]`` are scratch.
    """
    tn = tile.thread_cols
    row_parts, col_parts = tile.rows_of_mma, tile.cols_of_mma
    part_size = 4 * col_parts

    if SIMULATED:

        def multiply(first, acc, fa, fb, shared, a_at, b_at):
            for i in range(2 * row_parts):
                for j in range(2 * col_parts):
                    small = sums = 0.0
                    for k in range(DEPTH):
                        a = shared[a_at + k + i * (COLS * DEPTH)]
                        b = shared[b_at + k + (j // 2 * COLS + j % 2) * DEPTH]
                        with np.errstate(all="ignore"):
                            ah, bh = np.float64(tf32(a)), np.float64(tf32(b))
                            small += (a - ah) * bh + ah * (b - bh)
                            sums += ah * bh
                    with np.errstate(all="ignore"):
                        acc[i * tn + j] += f(small + sums)

        return multiply

    @device_function
    def load_b(n, fb, shared, b_at):
        for e in range(2):
            value = shared[b_at + u32(e + n * (COLS * DEPTH))]
            high = tf32(value)
            fb[4 * n + e] = high
            fb[4 * n + 2 + e] = value - high

    # The instructions of a product wait for each other; those of other columns come between.
    @device_function
    def low_high(n, fa, fb, part):
        at, b0, b1 = 4 * n, fb[4 * n], fb[4 * n + 1]
        part[at], part[at + 1], part[at + 2], part[at + 3] = mma(
            fa[4], fa[5], fa[6], fa[7], b0, b1, f(0.0), f(0.0), f(0.0), f(0.0)
        )

    @device_function
    def high_low(n, fa, fb, part):
        at, b0, b1 = 4 * n, fb[4 * n + 2], fb[4 * n + 3]
        part[at], part[at + 1], part[at + 2], part[at + 3] = mma(
            fa[0], fa[1], fa[2], fa[3], b0, b1, part[at], part[at + 1], part[at + 2], part[at + 3]
        )

    @device_function
    def high_high(n, fa, fb, part):
        at, b0, b1 = 4 * n, fb[4 * n], fb[4 * n + 1]
        part[at], part[at + 1], part[at + 2], part[at + 3] = mma(
            fa[0], fa[1], fa[2], fa[3], b0, b1, part[at], part[at + 1], part[at + 2], part[at + 3]
        )

    @device_function
    def add_up(n, first, acc, part):
        for h in range(2):
            for e in range(2):
                acc[first + h * tn + 2 * n + e] += part[4 * n + 2 * h + e]

    load_all_b, add_all = unrolled(col_parts, load_b), unrolled(col_parts, add_up)
    first, second, third = (unrolled(col_parts, each) for each in (low_high, high_low, high_high))

    @device_function
    def rows_of(m, acc, fa, fb, part, shared, a_at):
        for h in range(2):
            for e in range(2):
                value = shared[a_at + u32(e + (m * ROWS + h * COLS) * DEPTH)]
                high = tf32(value)
                fa[2 * e + h] = high
                fa[4 + 2 * e + h] = value - high
        first(0, fa, fb, part)
        second(0, fa, fb, part)
        third(0, fa, fb, part)
        add_all(0, 2 * m * tn, acc, part)

    all_rows = unrolled(row_parts, rows_of)

    @device_function
    def multiply(_, acc, fa, fb, shared, a_at, b_at):
        part = cuda.local.array(part_size, np.float32)
        load_all_b(0, fb, shared, b_at & EVEN)
        all_rows(0, acc, fa, fb, part, shared, a_at & EVEN)

    return multiply


def not_finite(count: int) -> Callable[[Any], Any]:
    """Return a device function that says, as 0 or 1, whether one of ``count`` sums is NaN or infinite."""

    @device_function
    def check(acc):
        whole = f(0.0)
        for i in range(count):
            whole += acc[i] * f(0.0)
        return i32(1 if whole != f(0.0) else 0)

    return check
