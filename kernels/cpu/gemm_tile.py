"""The batch-reduce GEMM microkernel: one register tile, the whole reduction inside.

``C[rows, vecs*LANES] (+)= sum_b A_b[rows, depth] @ B_b[depth, vecs*LANES]`` (arXiv 1906.06440): the C tile
stays in registers over the whole batch. ``A_b`` starts at ``a + offsets[b]``, its rows ``a_row`` bytes apart
and its depth contiguous; the ``B_b`` are one packed panel, read front to back. A convolution needs no im2col:
the batch is the filter taps, the offsets say where each tap starts in the padded image.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from bslite.kernels.cpu import simd
from bslite.kernels.cpu.simd import BYTES, I64, LANES, VEC

UNROLL = 4  # depth steps per loop iteration
PREFETCHES = 2  # cache lines of a later B fetched meanwhile
ROWS_PER_POINTER = 3  # x86 reaches p, p+s and p+2s by addressing modes alone


def loop(builder, count, carried, body):
    """``for i in range(count)`` with loop-carried values as phis; ``body(i, values) -> values``. count may be 0."""
    before = builder.block
    head = builder.append_basic_block("head")
    inside = builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    phis = []
    for value in carried:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phis.append(phi)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    results = body(index, phis)
    end = builder.block
    index.add_incoming(builder.add(index, ir.Constant(I64, 1)), end)
    for phi, value in zip(phis, results, strict=True):
        phi.add_incoming(value, end)
    builder.branch(head)
    builder.position_at_end(after)
    return phis


def add_if(builder, condition, values, addresses):
    """``values`` plus the vectors at ``addresses`` where ``condition`` holds; else nothing is read."""
    plain, add, after = (builder.append_basic_block(n) for n in ("plain", "add", "after"))
    builder.cbranch(condition, add, plain)
    builder.position_at_end(plain)
    builder.branch(after)
    builder.position_at_end(add)
    sums = [builder.fadd(x, simd.load_ir(builder, address)) for x, address in zip(values, addresses, strict=True)]
    builder.branch(after)
    builder.position_at_end(after)
    results = []
    for x, total in zip(values, sums, strict=True):
        phi = builder.phi(VEC)
        phi.add_incoming(x, plain)
        phi.add_incoming(total, add)
        results.append(phi)
    return results


def const(n):
    return ir.Constant(I64, n)


@functools.cache
def gemm_tile(rows: int, vecs: int):
    """The microkernel for a tile of ``rows`` x ``vecs`` registers, as a Numba intrinsic.

    Arguments, all int64 byte addresses, byte strides or counts unless said otherwise:
    ``a, a_row, offsets, batch, depth, b, c, c_row, bias, accumulate, residual, residual_row, lo, hi, last, ahead``.
    ``bias`` points to ``vecs*LANES`` floats and starts the sum unless ``accumulate``, when C is added to it. ``residual``
    is 0 or an address added at the end, before clamping to float32 ``[lo, hi]``. ``last`` is how many lanes of the
    last vector exist: those beyond are neither written nor used (C, residual may be over-read by one vector).
    ``ahead`` is where to start fetching, while computing, what a later tile will read as B; C and the residual are
    fetched at the start, so that they have arrived when the sum is done.
    """
    groups = [range(i, min(i + ROWS_PER_POINTER, rows)) for i in range(0, rows, ROWS_PER_POINTER)]

    def emit(builder, a, a_row, offsets, batch, depth, b, c, c_row, bias, accumulate, residual, residual_row, lo, hi, last, ahead):
        def at(address, row_stride, i, v):
            return builder.add(address, builder.add(builder.mul(row_stride, const(i)), const(v * BYTES)))

        tile = [(i, v) for i in range(rows) for v in range(vecs)]

        for i, v in tile:
            simd.prefetch_ir(builder, at(c, c_row, i, v), write=True)
        with builder.if_then(builder.icmp_signed("!=", residual, const(0))):
            for i, v in tile:
                simd.prefetch_ir(builder, at(residual, residual_row, i, v))

        # Start from the bias, or from nothing if an earlier part of the reduction is in C already: the parts are summed
        # on their own and added at the end, which keeps the rounding error of long reductions down.
        resumed = builder.icmp_signed("!=", accumulate, const(0))
        biases = [simd.load_ir(builder, builder.add(bias, const(v * BYTES))) for v in range(vecs)]
        zero = ir.Constant(VEC, [0.0] * LANES)
        biases = [builder.select(resumed, zero, x) for x in biases]
        acc = [biases[v] for _, v in tile]

        def depth_steps(steps, pointers, b, ahead, acc):
            """``steps`` rank-1 updates from the pointers' places."""
            acc = list(acc)
            for line in range(PREFETCHES if steps == UNROLL else 0):
                simd.prefetch_ir(builder, builder.add(ahead, const(64 * line)))
            for k in range(steps):
                bs = [simd.load_ir(builder, builder.add(b, const((k * vecs + v) * BYTES))) for v in range(vecs)]
                for p, group in zip(pointers, groups, strict=True):
                    for j, i in enumerate(group):
                        address = builder.add(p, builder.mul(a_row, const(j))) if j else p
                        x = builder.load(simd.pointer(builder, builder.add(address, const(4 * k))), align=4)
                        xs = simd.splat_ir(builder, x)
                        for v in range(vecs):
                            acc[i * vecs + v] = simd.fma_ir(builder, xs, bs[v], acc[i * vecs + v])
            return acc

        def tap(index, carried):
            b, ahead, *acc = carried
            offset = builder.load(simd.pointer(builder, builder.add(offsets, builder.shl(index, const(3))), I64), align=8)
            origin = builder.add(a, offset)
            pointers = [builder.add(origin, builder.mul(a_row, const(g[0]))) for g in groups]

            def steps_of(count):
                def body(_, carried):
                    b, ahead, *rest = carried
                    ps, acc = rest[: len(groups)], rest[len(groups) :]
                    acc = depth_steps(count, ps, b, ahead, acc)
                    ps = [builder.add(p, const(4 * count)) for p in ps]
                    fetched = 64 * PREFETCHES if count == UNROLL else 0
                    return [builder.add(b, const(count * vecs * BYTES)), builder.add(ahead, const(fetched)), *ps, *acc]

                return body

            carried = [b, ahead, *pointers, *acc]
            carried = loop(builder, builder.sdiv(depth, const(UNROLL)), carried, steps_of(UNROLL))
            carried = loop(builder, builder.srem(depth, const(UNROLL)), carried, steps_of(1))
            return [*carried[:2], *carried[2 + len(groups) :]]

        _, _, *acc = loop(builder, batch, [b, ahead, *acc], tap)

        # Epilogue in the store: the earlier part, residual, clamp.
        acc = add_if(builder, resumed, acc, [at(c, c_row, i, v) for i, v in tile])
        has_residual = builder.icmp_signed("!=", residual, const(0))
        results = add_if(builder, has_residual, acc, [at(residual, residual_row, i, v) for i, v in tile])
        low, high = simd.splat_ir(builder, lo), simd.splat_ir(builder, hi)
        results = [simd.vmin_ir(builder, high, simd.vmax_ir(builder, low, x)) for x in results]
        whole, part, done = (builder.append_basic_block(n) for n in ("whole", "part", "done"))
        builder.cbranch(builder.icmp_signed(">=", last, const(LANES)), whole, part)
        builder.position_at_end(whole)
        for (i, v), x in zip(tile, results, strict=True):
            simd.store_ir(builder, at(c, c_row, i, v), x)
        builder.branch(done)
        builder.position_at_end(part)
        mask = simd.first_lanes(builder, last)
        for (i, v), x in zip(tile, results, strict=True):
            if v < vecs - 1:
                simd.store_ir(builder, at(c, c_row, i, v), x)
            else:
                simd.masked_store_ir(builder, at(c, c_row, i, v), x, mask)
        builder.branch(done)
        builder.position_at_end(done)

    i64, f32 = types.int64, types.float32
    params = (*[i64] * 12, f32, f32, i64, i64)

    @intrinsic
    def tile(typingctx, a, a_row, offsets, batch, depth, b, c, c_row, bias, accumulate, residual, residual_row, lo, hi, last, ahead):
        def codegen(context, builder, sig, args):
            emit(builder, *args)
            return context.get_dummy_value()

        return signature(types.void, *params), codegen

    return tile
