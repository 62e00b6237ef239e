"""Helpers for emitting LLVM IR: loops over carried values, conditional loads, one of several bodies."""

from __future__ import annotations

from llvmlite import ir

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.simd import I64


def const(n):
    """An int64 constant."""
    return ir.Constant(I64, n)


def opaque(builder, value):
    """The same int64, of whose making LLVM knows nothing: an empty piece of assembly stands in between.

    Several pointers at known distances from each other are one pointer and a chain of additions to LLVM's
    loop strength reduction, whatever was written; a chain that runs beside the arithmetic, on the same ports.
    """
    return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [value], side_effect=False)


def loop(builder, count, carried, body):
    """``for i in range(count)`` with loop-carried values as phis; ``body(i, values) -> values``. count may be
    0.
    """
    before = builder.block
    head, inside, after = (builder.append_basic_block(n) for n in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(const(0), before)
    phis = []
    for value in carried:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phis.append(phi)
    builder.cbranch(builder.icmp_signed("<", index, count), inside, after)
    builder.position_at_end(inside)
    results = body(index, phis)
    end = builder.block
    index.add_incoming(builder.add(index, const(1)), end)
    for phi, value in zip(phis, results, strict=True):
        phi.add_incoming(value, end)
    builder.branch(head)
    builder.position_at_end(after)
    return phis


def add_if(builder, condition, values, addresses, mask, partial):
    """``values`` plus the vectors at ``addresses`` where ``condition`` holds; else nothing is read.

    Of those marked ``partial`` only the lanes of ``mask`` are read.
    """
    plain, add, after = (builder.append_basic_block(n) for n in ("plain", "add", "after"))
    builder.cbranch(condition, add, plain)
    builder.position_at_end(plain)
    builder.branch(after)
    builder.position_at_end(add)
    zero = ir.Constant(simd.VEC, [0.0] * simd.LANES)
    sums = []
    for x, address, part in zip(values, addresses, partial, strict=True):
        y = simd.masked_load_ir(builder, address, mask, zero) if part else simd.load_ir(builder, address)
        sums.append(builder.fadd(x, y))
    builder.branch(after)
    builder.position_at_end(after)
    results = []
    for x, total in zip(values, sums, strict=True):
        phi = builder.phi(x.type)
        phi.add_incoming(x, plain)
        phi.add_incoming(total, add)
        results.append(phi)
    return results


def one_of(builder, selector, bodies):
    """Run ``bodies[selector]()``, a dict from int to function; nothing if the selector is not in it."""
    after = builder.append_basic_block("after")
    switch = builder.switch(selector, after)
    for value, body in bodies.items():
        block = builder.append_basic_block(f"case{value}")
        switch.add_case(const(value), block)
        builder.position_at_end(block)
        body()
        builder.branch(after)
    builder.position_at_end(after)


def store_tile(builder, places, values, last, partial):
    """Store each value at its place; those whose flag in ``partial`` is set only in their first ``last``
    lanes.
    """
    with builder.if_else(builder.icmp_signed(">=", last, const(simd.LANES))) as (whole, part):
        with whole:
            for place, value in zip(places, values, strict=True):
                simd.store_ir(builder, place, value)
        with part:
            mask = simd.first_lanes(builder, last)
            for place, value, is_last in zip(places, values, partial, strict=True):
                if is_last:
                    simd.masked_store_ir(builder, place, value, mask)
                else:
                    simd.store_ir(builder, place, value)
