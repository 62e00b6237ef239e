"""Float32 numbers as three parts of bfloat16, which have 8 bits of significand each, exactly.

Each part is what remains of the one before, rounded to 8 bits; the differences are exact. NaN, infinities,
numbers that round to one, and numbers so small that a part is below the normal range, which the unit flushes
to zero, are noticed.
"""

from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import HALF, LEAST, LINE, MOST, TERMS, TILE
from bslite.kernels.cpu.vector.lanes import INTS, all_ints, ints_of
from bslite.kernels.cpu.vector.memory import load_some
from bslite.kernels.cpu.vector.simd import LANES, VEC, i64, pointer, primitive, vec_t

HALVES = ir.VectorType(ir.IntType(16), LANES)


@primitive(vec_t, i64, vec_t, i64)
def store_parts(builder, address, x, parts):
    """Writes the first ``parts`` (1, 2 or 3) parts of ``x``, each to its own line of 64 bytes. Returns bits
    that are set in lanes whose parts are not exact.
    """
    for part, high in enumerate(parts_ir(builder, x)):
        with builder.if_then(builder.icmp_signed(">", parts, ir.Constant(parts.type, part))):
            half = builder.trunc(builder.lshr(ints_of(builder, high), all_ints(16)), HALVES)
            place = builder.add(address, ir.Constant(address.type, LINE * part))
            builder.store(half, pointer(builder, place, HALVES), align=2)
    return inexact_ir(builder, x)


def parts_ir(builder, x):
    """The three parts of ``x``, as float32."""
    found, rest = [], x
    for _ in range(3):
        rounded = builder.add(ints_of(builder, rest), all_ints(HALF))
        high = builder.bitcast(builder.and_(rounded, all_ints(0xFFFF0000)), VEC)
        found.append(high)
        rest = builder.fsub(rest, high)
    return found


def inexact_ir(builder, x):
    """Bits that are set in the lanes of ``x`` whose parts are not exact."""
    size = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    usual = builder.icmp_unsigned("<", builder.sub(size, all_ints(LEAST)), all_ints(MOST - LEAST))
    fine = builder.or_(usual, builder.icmp_signed("==", size, all_ints(0)))
    return builder.bitcast(builder.sext(builder.not_(fine), INTS), VEC)


@primitive(vec_t, i64, vec_t, vec_t, i64)
def store_pairs(builder, address, even, odd, parts):
    """Writes the first ``parts`` parts of two registers as pairs, in cells; the next part two tiles on.
    Returns bits that are set in lanes whose parts are not exact.
    """
    for part, (a, b) in enumerate(zip(parts_ir(builder, even), parts_ir(builder, odd), strict=True)):
        with builder.if_then(builder.icmp_signed(">", parts, ir.Constant(parts.type, part))):
            cells = builder.or_(builder.lshr(ints_of(builder, a), all_ints(16)), ints_of(builder, b))
            place = builder.add(address, ir.Constant(address.type, 2 * TILE * part))
            builder.store(cells, pointer(builder, place, INTS), align=4)
    wrong = builder.or_(*(ints_of(builder, inexact_ir(builder, x)) for x in (even, odd)))
    return builder.bitcast(wrong, VEC)


@primitive(vec_t, vec_t, vec_t)
def either(builder, a, b):
    """The bits that are set in ``a`` or in ``b``."""
    return builder.bitcast(builder.or_(ints_of(builder, a), ints_of(builder, b)), VEC)


@primitive(types.boolean, vec_t)
def any_bit(builder, x):
    """Whether a bit is set in any lane."""
    whole = ir.IntType(32 * LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(x, whole), ir.Constant(whole, 0))


@register_jitable
def split_pixels(x, x_col, count, groups, depth, blocks, parts, to, pixel, seen):
    """Splits ``count`` pixels of ``groups`` times ``depth`` channels, ``x_col`` bytes apart, to ``to``,
    ``pixel`` bytes apart: for each group ``blocks`` times a line of 32 channels for each part, zeros beyond
    ``depth``. Returns ``seen`` with the bits of lanes that are not exact.
    """
    for _ in range(count):
        line = to
        for group in range(groups):
            channel, source = 0, x + 4 * group * depth
            for _ in range(blocks):
                for lane in range(0, TERMS, LANES):
                    value = load_some(source + 4 * channel, depth - channel)
                    seen = either(seen, store_parts(line + 2 * lane, value, parts))
                    channel += LANES
                line += LINE * parts
        x += x_col
        to += pixel
    return seen
