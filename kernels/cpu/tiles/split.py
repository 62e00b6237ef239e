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

from bslite.kernels.contracts.cpu.tiles import HALF, LEAST, LINE, PAIR, STREAMS, TERMS
from bslite.kernels.cpu.vector.bfloat16 import ALL, INFINITE, larger, rounded_ir
from bslite.kernels.cpu.vector.lanes import all_ints, ints_of
from bslite.kernels.cpu.vector.memory import load, load_some, store
from bslite.kernels.cpu.vector.simd import (
    BYTES,
    LANES,
    VEC,
    fma,
    i64,
    pointer,
    prefetch_ir,
    primitive,
    splat,
    vec_t,
    vmax,
    vmin,
)

f = np.float32
_LOW = ir.Constant(ALL, [0xFFFF, 0] * LANES)  # the lower half of each cell


@functools.cache
def parts_store(parts, apart, one_of):
    """A function that writes the first ``parts`` (1, 2 or 3) parts of the terms ``low`` and ``high`` as
    cells, each part ``apart`` bytes after the one before, and returns the leading one. ``one_of``: what makes
    the cells of one part; of several, a cell has the terms of one lane.
    """

    @primitive(vec_t, i64, vec_t, vec_t)
    def store_parts(builder, address, low, high):
        made = [one_of(builder, low, high)] if parts == 1 else cells_ir(builder, low, high, parts)
        for part, cells in enumerate(made):
            place = builder.add(address, ir.Constant(address.type, apart * part))
            builder.store(cells, pointer(builder, place, cells.type), align=4)
        return builder.bitcast(made[0], VEC)

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


def _bits(pattern):
    """A register with so many bits in each half of a cell."""
    return ir.Constant(ALL, [pattern] * (2 * LANES))


@primitive(vec_t)
def most_of_all(builder):
    """What `note_least` begins with."""
    return builder.bitcast(_bits(0xFFFF), VEC)


@primitive(vec_t, vec_t, vec_t)
def note_least(builder, least, leading):
    """The lesser magnitude of leading parts, less one, so that zero counts as the largest."""
    sizes = builder.and_(builder.bitcast(leading, ALL), _bits(0x7FFF))
    sizes, kept = builder.sub(sizes, _bits(1)), builder.bitcast(least, ALL)
    return builder.bitcast(builder.select(builder.icmp_unsigned("<", sizes, kept), sizes, kept), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t)
def note_rest(builder, rest, low, high):
    """The bits of what the last parts leave: of a number too small to have a leading part, or of a NaN whose
    bits rounding carried away.
    """
    a, b = (parts_ir(builder, x, 3)[-1] for x in (low, high))
    return builder.bitcast(builder.or_(ints_of(builder, rest), builder.or_(a, b)), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
def tell(builder, seen, most, least, rest):
    """``seen`` with all bits set of cells whose parts are not exact: by the largest magnitude of leading
    parts (`larger`), the least, and what was left. Of one part, the first says it.
    """
    wrong = builder.icmp_unsigned(">=", builder.bitcast(most, ALL), _bits(INFINITE))
    small = builder.icmp_unsigned("<", builder.bitcast(least, ALL), _bits((LEAST >> 16) - 1))
    left = builder.icmp_unsigned("!=", builder.and_(builder.bitcast(rest, ALL), _LOW), _bits(0))
    wrong = builder.or_(wrong, builder.or_(small, left))
    return builder.bitcast(builder.select(wrong, _bits(0xFFFF), builder.bitcast(seen, ALL)), VEC)


@primitive(types.boolean, vec_t)
def any_bit(builder, x):
    """Whether a bit is set in any lane."""
    whole = ir.IntType(32 * LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(x, whole), ir.Constant(whole, 0))


@primitive(types.void, i64)
def fetch_far(builder, address):
    """Brings a line of memory into L2."""
    prefetch_ir(builder, address, level=2)


@register_jitable
def _whole_scaled(place, at, how):
    scale, shift, lo, hi = how
    w = load(shift + at) if shift else splat(f(-0.0))  # with which the product has the bits that it has alone
    return vmin(splat(hi), vmax(splat(lo), fma(load(place), load(scale + at), w)))


@register_jitable
def _some_scaled(place, left, at, how):
    scale, shift, lo, hi = how
    w = load_some(shift + at, left) if shift else splat(f(-0.0))
    return vmin(splat(hi), vmax(splat(lo), fma(load_some(place, left), load_some(scale + at, left), w)))


@register_jitable
def _whole(place, at, how):
    return load(place)


@register_jitable
def _some(place, left, at, how):
    return load_some(place, left)


def _pixels_splitter(parts, whole, some):
    """`split_pixels` into so many parts; ``whole`` and ``some`` give the numbers of a register."""
    one = parts == 1
    store_parts = parts_store(parts, LINE, rounded_ir)
    # Bytes from a pair of registers to the next, and from one to the other of a pair.
    near, far = (2 * BYTES, BYTES) if one else (BYTES, 4 * PAIR)
    pairs = TERMS // (2 * LANES)

    @register_jitable
    def split(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen, how):
        most, least, rest = splat(f(0.0)), most_of_all(), splat(f(0.0))
        few = depth % TERMS
        for _ in range(count):
            line, source, channel = to, x, 0
            for _ in range(lines):
                for stream in range(STREAMS):
                    fetch_far(fetch + stream * apart)
                fetch += LINE
            for _ in range(groups):
                for _ in range(depth // TERMS):
                    for n in range(pairs):
                        place, at = source + n * near, channel + n * near
                        low, high = whole(place, at, how), whole(place + far, at + far, how)
                        leading = store_parts(line + n * BYTES, low, high)
                        most = larger(most, leading)
                        if not one:
                            least, rest = note_least(least, leading), note_rest(rest, low, high)
                    source += 4 * TERMS
                    channel += 4 * TERMS
                    line += LINE * parts
                if few:
                    for n in range(pairs):
                        place, at, left = source + n * near, channel + n * near, few - n * near // 4
                        low = some(place, left, at, how)
                        high = some(place + far, left - far // 4, at + far, how)
                        leading = store_parts(line + n * BYTES, low, high)
                        most = larger(most, leading)
                        if not one:
                            least, rest = note_least(least, leading), note_rest(rest, low, high)
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


_into_three, _into_two, _into_one = (_pixels_splitter(parts, _whole, _some) for parts in (3, 2, 1))
_scaled_three, _scaled_two, _scaled_one = (
    _pixels_splitter(parts, _whole_scaled, _some_scaled) for parts in (3, 2, 1)
)


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
    nothing = 0, 0, f(0.0), f(0.0)
    if parts == 3:
        return _into_three(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen, nothing)
    if parts == 2:
        return _into_two(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen, nothing)
    return _into_one(x, x_col, count, groups, depth, to, pixel, fetch, apart, lines, seen, nothing)


@register_jitable
def split_scaled_pixels(x, x_col, count, depth, parts, to, pixel, fetch, apart, lines, seen, how):
    """`split_pixels` of one group, each number scaled, shifted and clamped before; ``how``: where the scales
    and the shifts of the channels lie, or 0 for no shifts, the least and the largest.
    """
    if parts == 3:
        return _scaled_three(x, x_col, count, 1, depth, to, pixel, fetch, apart, lines, seen, how)
    if parts == 2:
        return _scaled_two(x, x_col, count, 1, depth, to, pixel, fetch, apart, lines, seen, how)
    return _scaled_one(x, x_col, count, 1, depth, to, pixel, fetch, apart, lines, seen, how)
