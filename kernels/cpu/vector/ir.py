"""Helpers for emitting LLVM IR: loops over carried values, conditional loads, one of several bodies."""

from llvmlite import ir

from bslite.kernels.cpu.vector import simd
from bslite.kernels.cpu.vector.simd import I64


def const(n):
    """An int64 constant."""
    return ir.Constant(I64, n)


def opaque(builder, value):
    """The same int64, passed through an empty piece of assembly so that LLVM does not see its origin.

    LLVM's loop strength reduction turns several pointers at known distances into one pointer and a chain of
    additions, which takes the ports of the arithmetic beside it.
    """
    return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [value], side_effect=False)


def loop(builder, count, carried, body):
    """``for i in range(count)`` with loop-carried values as phis; ``body(i, values) -> values``.

    ``count`` may be 0.
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


def where(builder, condition, values, change):
    """``change()`` if the condition holds, else ``values``: a branch, not a selection of lanes."""
    before = builder.block
    with builder.if_then(condition):
        changed = change()
        inside = builder.block
    merged = []
    for old, new in zip(values, changed, strict=True):
        phi = builder.phi(old.type)
        phi.add_incoming(old, before)
        phi.add_incoming(new, inside)
        merged.append(phi)
    return merged


def add_if(builder, condition, values, addresses, mask, partial):
    """``values`` plus the vectors at ``addresses`` if ``condition`` holds; otherwise nothing is read.

    Only the lanes of ``mask`` are read from vectors marked ``partial``.
    """
    zero = ir.Constant(simd.VEC, [0.0] * simd.LANES)

    def added():
        sums = []
        for x, address, part in zip(values, addresses, partial, strict=True):
            y = simd.masked_load_ir(builder, address, mask, zero) if part else simd.load_ir(builder, address)
            sums.append(builder.fadd(x, y))
        return sums

    return where(builder, condition, values, added)


def one_of(builder, selector, bodies):
    """Emit a switch that runs ``bodies[selector]``, and nothing if ``bodies``, a dict, lacks the selector."""
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
    """Stores each value at its place; of those with a flag in ``partial``, the first ``last`` lanes."""
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
