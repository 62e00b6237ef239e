"""Float32 numbers as three parts of bfloat16, which have 8 bits of significand each, exactly.

Each part is what remains of the one before, rounded to 8 bits; the differences are exact. NaN, infinities,
numbers that round to one, and numbers so small that a part is below the normal range, which the unit flushes
to zero, are noticed.

A cell of a tile holds a term of the lower half of a block of 32 terms and the one 16 terms on: then two
registers of terms make one of cells without a permutation. Of one part it holds neighbours, of two nearest
bfloat16 the even one: as other steps store their results.
"""

import functools

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.tiles import HALF, LEAST, LINE, MOST, PAIR, STREAMS, TERMS
from bslite.kernels.cpu.vector.bfloat16 import ALL, INFINITE, larger_ir, rounded_ir
from bslite.kernels.cpu.vector.lanes import all_ints, ints_of
from bslite.kernels.cpu.vector.memory import load, load_some, store
from bslite.kernels.cpu.vector.simd import BYTES, LANES, VEC, i64, pointer, prefetch_ir, primitive, splat, vec_t


f = np.float32
_LOW = ir.Constant(ALL, [0xFFFF, 0] * LANES)  # the lower half of each cell


@primitive(vec_t)
def all_bits(builder):
    """A register of ones."""
    return builder.bitcast(all_ints(-1), VEC)


def _putter(parts, apart, cells_of=None):
    @primitive(types.void, i64, vec_t, vec_t)
    def put(builder, address, low, high):
        made = [cells_of(builder, low, high)] if cells_of else cells_ir(builder, low, high, parts)
        for part, cells in enumerate(made):
            place = builder.add(address, ir.Constant(address.type, apart * part))
            builder.store(cells, pointer(builder, place, cells.type), align=4)

    return put


@functools.cache
def parts_store(parts, apart, cells_of=None):
    """A function that writes the first ``parts`` (1, 2 or 3) parts of the terms ``low`` and ``high`` as
    cells, each part ``apart`` bytes after the one before. It returns ``seen`` with all bits set in lanes
    whose parts are not exact; of one part, which is not finite. ``cells_of``: what makes the cells of one
    part; else a cell has the terms of one lane.
    """

    @primitive(vec_t, i64, vec_t, vec_t, vec_t)
    def store_parts(builder, address, low, high, seen):
        made = [cells_of(builder, low, high)] if cells_of else cells_ir(builder, low, high, parts)
        for part, cells in enumerate(made):
            place = builder.add(address, ir.Constant(address.type, apart * part))
            builder.store(cells, pointer(builder, place, cells.type), align=4)
        noticed = inexact_ir if parts > 1 else infinite_ir
        wrong = builder.or_(noticed(builder, low), noticed(builder, high))
        return builder.select(wrong, builder.bitcast(all_ints(-1), VEC), seen)

    return store_parts


def cells_ir(builder, low, high, count):
    """The cells of the first parts of the terms in the same lane."""
    both = zip(parts_ir(builder, low, count), parts_ir(builder, high, count), strict=True)
    return [
        builder.or_(builder.lshr(a, all_ints(16)), builder.and_(b, all_ints(0xFFFF0000))) for a, b in both
    ]


def parts_ir(builder, x, count):
    """The first parts of ``x``, each in the upper half of an int32; what is below is not part of it. What is
    left for the third has 8 bits: it is not rounded.
    """
    found = [builder.add(ints_of(builder, x), all_ints(HALF))]
    while len(found) < count:
        high = builder.and_(found[-1], all_ints(0xFFFF0000))
        x = builder.fsub(x, builder.bitcast(high, VEC))
        found.append(
            ints_of(builder, x) if len(found) == 2 else builder.add(ints_of(builder, x), all_ints(HALF))
        )
    return found


def inexact_ir(builder, x):
    """Whether the parts of each lane of ``x`` are not exact."""
    size = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    unusual = builder.icmp_unsigned(">=", builder.sub(size, all_ints(LEAST)), all_ints(MOST - LEAST))
    return builder.and_(unusual, builder.icmp_signed("!=", size, all_ints(0)))


def infinite_ir(builder, x):
    """Whether each lane of ``x`` rounds to an infinite part, or is NaN: rounding may carry its bits away."""
    size = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    return builder.icmp_unsigned(">=", size, all_ints(MOST))


def _whole(bits):
    """A constant register of so many bits in each half of a cell."""
    return ir.Constant(ALL, [bits] * (2 * LANES))


def _noters(parts):
    """Functions that gather in three registers what says whether parts are exact, and one that tells from
    those. It is less work than to tell of each number. Of one part, the first register says all.
    """

    def leading(builder, low, high):
        return rounded_ir(builder, low, high) if parts == 1 else cells_ir(builder, low, high, parts)[0]

    @primitive(vec_t, vec_t, vec_t, vec_t)
    def note_most(builder, most, low, high):
        """The larger magnitude of the leading parts: infinities, NaN."""
        return larger_ir(builder, most, leading(builder, low, high))

    @primitive(vec_t, vec_t, vec_t, vec_t)
    def note_least(builder, least, low, high):
        """The lesser magnitude of the leading parts, less one, so that zeros count as the largest."""
        if parts == 1:
            return least
        sizes = builder.and_(builder.bitcast(leading(builder, low, high), ALL), _whole(0x7FFF))
        sizes, kept = builder.sub(sizes, _whole(1)), builder.bitcast(least, ALL)
        return builder.bitcast(builder.select(builder.icmp_unsigned("<", sizes, kept), sizes, kept), VEC)

    @primitive(vec_t, vec_t, vec_t, vec_t)
    def note_rest(builder, rest, low, high):
        """The bits of what the last parts leave: of numbers too small to have a leading part, and of NaN that
        rounding made a zero.
        """
        if parts == 1:
            return rest
        found = [parts_ir(builder, x, 3)[-1] for x in (low, high)]
        return builder.bitcast(builder.or_(builder.or_(ints_of(builder, rest), found[0]), found[1]), VEC)

    @primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
    def tell(builder, seen, most, least, rest):
        """``seen`` with all bits set of lanes whose parts are not exact."""
        wrong = builder.icmp_unsigned(">=", builder.bitcast(most, ALL), _whole(INFINITE))
        if parts > 1:
            small = builder.icmp_unsigned("<", builder.bitcast(least, ALL), _whole((LEAST >> 16) - 1))
            left = builder.icmp_unsigned("!=", builder.and_(builder.bitcast(rest, ALL), _LOW), _whole(0))
            wrong = builder.or_(wrong, builder.or_(small, left))
        return builder.bitcast(builder.select(wrong, _whole(0xFFFF), builder.bitcast(seen, ALL)), VEC)

    return note_most, note_least, note_rest, tell


@primitive(types.boolean, vec_t)
def any_bit(builder, x):
    """Whether a bit is set in any lane."""
    whole = ir.IntType(32 * LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(x, whole), ir.Constant(whole, 0))


@primitive(types.void, i64)
def fetch_far(builder, address):
    """Brings a line of memory into L2."""
    prefetch_ir(builder, address, level=2)


def _pixels_splitter(parts):
    """`split_pixels` into so many parts."""
    one = parts == 1
    put = _putter(parts, LINE, rounded_ir if one else None)
    note_most, note_least, note_rest, tell = _noters(parts)
    # Bytes from a pair of registers to the next, and from one to the other of a pair.
    near, far = (2 * BYTES, BYTES) if one else (BYTES, 4 * PAIR)
    pairs = TERMS // (2 * LANES)

    @register_jitable
    def split(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen):
        most, least, rest = splat(f(0.0)), all_bits(), splat(f(0.0))
        for _ in range(count):
            line, source = to, x
            for _ in range(lines):
                for stream in range(STREAMS):
                    fetch_far(fetch + stream * apart)
                fetch += LINE
            for _ in range(groups):
                for _ in range(depth // TERMS):
                    for n in range(pairs):
                        place = source + n * near
                        low, high = load(place), load(place + far)
                        put(line + n * BYTES, low, high)
                        most = note_most(most, low, high)
                        least = note_least(least, low, high)
                        rest = note_rest(rest, low, high)
                    source += 4 * TERMS
                    line += LINE * parts
                few = depth % TERMS
                if few:
                    for n in range(pairs):
                        left = few - n * near // 4
                        low = load_some(source + n * near, left)
                        high = load_some(source + n * near + far, left - far // 4)
                        put(line + n * BYTES, low, high)
                        most = note_most(most, low, high)
                        least = note_least(least, low, high)
                        rest = note_rest(rest, low, high)
                    source += 4 * few
                    line += LINE * parts
            x += x_col
            to += pixel
        return tell(seen, most, least, rest)

    return split


@register_jitable
def _copied(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines):
    """`split_pixels` for pixels that are cells of one part, of whole blocks of 32 channels."""
    for _ in range(count):
        for _ in range(lines):
            for stream in range(STREAMS):
                fetch_far(fetch + stream * apart)
            fetch += LINE
        for place in range(0, 2 * groups * depth, BYTES):
            store(to + place, load(x + place))
        x += x_col
        to += pixel


_into_three, _into_two, _into_one = map(_pixels_splitter, (3, 2, 1))


@register_jitable
def split_pixels(x, x_col, count, groups, depth, parts, to, pixel, fetch, apart, lines, seen):
    """Splits ``count`` pixels of ``groups`` times ``depth`` channels, ``x_col`` bytes apart, to ``to``,
    ``pixel`` bytes apart: for each block of 32 channels of a group a line of cells for each part, zeros
    beyond ``depth``. Returns ``seen`` with the bits of lanes that are not exact. With each pixel ``lines``
    lines of each of the streams are fetched, which begin at ``fetch``, ``apart`` bytes from one to the next.
    Of no ``parts``, pixels are cells of one already.
    """
    if parts == 0:
        _copied(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines)
        return seen
    if parts == 3:
        return _into_three(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen)
    if parts == 2:
        return _into_two(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen)
    return _into_one(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen)
