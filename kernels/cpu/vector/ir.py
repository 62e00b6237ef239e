"""Helpers for emitting LLVM IR: loops over carried values, conditional loads, one of several bodies."""

import math

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


def either(builder, condition, first, second):
    """The values of ``first()`` if the condition holds, else those of ``second()``: a branch, not a selection
    of lanes.
    """
    with builder.if_else(condition) as (then, otherwise):
        with then:
            ones = first()
            end = builder.block
        with otherwise:
            others = second()
            other_end = builder.block
    merged = []
    for one, other in zip(ones, others, strict=True):
        phi = builder.phi(one.type)
        phi.add_incoming(one, end)
        phi.add_incoming(other, other_end)
        merged.append(phi)
    return merged


def where(builder, condition, values, change):
    """``change()`` if the condition holds, else ``values``; see `either`."""
    return either(builder, condition, change, lambda: values)


def clamped(builder, values, lo, hi):
    """The values limited to the floats ``lo`` and ``hi``. An infinite bound skips its operations: those of
    both are a fifth of the work of a 3x3 depthwise filter, and some 4 % of a product of 64 terms.
    """
    for bound, infinity, limit in ((lo, -math.inf, simd.vmax_ir), (hi, math.inf, simd.vmin_ir)):
        finite = builder.fcmp_ordered("!=", bound, ir.Constant(simd.F32, infinity))

        def limited(values=values, bound=bound, limit=limit):
            limits = simd.splat_ir(builder, bound)
            return [limit(builder, limits, x) for x in values]

        values = where(builder, finite, values, limited)
    return values


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
    """Stores each value at its place, which ``places()`` emits; of those with a flag in ``partial``, the
    first ``last`` lanes.
    """
    with builder.if_else(builder.icmp_signed(">=", last, const(simd.LANES))) as (whole, part):
        with whole:
            for place, value in zip(places(), values, strict=True):
                simd.store_ir(builder, place, value)
        with part:
            mask = simd.first_lanes(builder, last)
            for place, value, is_last in zip(places(), values, partial, strict=True):
                if is_last:
                    simd.masked_store_ir(builder, place, value, mask)
                else:
                    simd.store_ir(builder, place, value)
