"""Reductions over any axes: with the contiguous axis ("rows": a number of each) or without it ("lanes").

The step walks the kept axes. A kernel for the reduction and the way, compiled when a plan first names it,
takes neighbouring rows, or lanes, and walks the reduced axes (three, and in rows the contiguous one). In
lanes each lane has a sum of its own.
Sweeps of different reductions are different functions of one name: `runtime.names` tells them apart.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.reduce import Reduce, Reduction
from bslite.kernels.cpu.rows.reducers import REDUCERS
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import (
    lanes_of,
    leading_zeros,
    negated,
    select_above,
    trailing_zeros,
    whole_of,
)
from bslite.kernels.cpu.vector.memory import load, load_cell, load_some, store_cell, store_scalar, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

call_reduction = caller(5)
f = np.float32

R = reader(Reduce)


@step_kernel(Reduce)
def reduce(step, bases, item, scratch):
    """Computes an item's results; in lanes the innermost kept axis counts blocks of channels."""
    s = R(step, bases)
    row = item * s.item_rows
    last = min(s.rows, row + s.item_rows)
    n1, n2, flag, channels, block = s.n1, s.n2, s.flag, s.channels, s.block
    while row < last:
        i0, i1, i2 = row // (n1 * n2), row // n2 % n1, row % n2
        x = s.x + i0 * s.x0 + i1 * s.x1 + i2 * s.x2
        y = s.y + i0 * s.y0 + i1 * s.y1 + i2 * s.y2
        rows = 1 if block > 0 else min(last - row, n2 - i2)
        call_reduction(s.function, x, y, min(block, channels - i2 * block) if block > 0 else rows, flag, step)
        row += rows


def _row_sweep(reducer):
    """The kernel of a reduction to one number, lanes of the contiguous axis side by side."""
    start, take, merge, keep, across, *_ = reducer

    @register_jitable
    def sweep(x, s, centre):
        a, b = start(), start()
        length = s.length
        pairs = length // (2 * LANES)
        rest = length - 2 * pairs * LANES
        for i0 in range(s.m0):
            for i1 in range(s.m1):
                place = x + i0 * s.s0 + i1 * s.s1
                for _ in range(s.m2):
                    at = place
                    for _ in range(pairs):
                        a = take(a, load(at), centre)
                        b = take(b, load(at + BYTES), centre)
                        at += 2 * BYTES
                    if rest >= LANES:
                        a = take(a, load(at), centre)
                        at += BYTES
                    if rest % LANES:
                        b = keep(take(b, load_some(at, rest % LANES), centre), b, rest % LANES)
                    place += s.s2
        return across(merge(a, b))

    return sweep


def _lane_sweep(reducer):
    """The kernel of a reduction of up to two registers of channels, each lane by itself."""
    start, take, *_ = reducer

    @register_jitable
    def sweep(x, channels, s, centre_a, centre_b):
        a, b = start(), start()
        for i0 in range(s.m0):
            for i1 in range(s.m1):
                place = x + i0 * s.s0 + i1 * s.s1
                for _ in range(s.m2):
                    a = take(a, load_some(place, channels), centre_a)
                    b = take(b, load_some(place + BYTES, channels - LANES), centre_b)
                    place += s.s2
        return a, b

    return sweep


@makes(Reduction)
@functools.cache
def reduction(name: str, rows: bool, integers: bool) -> Kernel:
    """The kernel of one reduction, of rows or of lanes."""
    way = "rows" if rows else "lanes"
    if name in ARGS:
        make_arg = _arg if rows else _arg_of_lanes
        return Kernel(make_arg(*ARGS[name]), f"reduce_{name}_{way}", 5)
    if integers:
        return Kernel(_integers(name, rows), f"reduce_int_{name}_{way}", 5)
    make = _rows if rows else _of_lanes
    return Kernel(make(REDUCERS[name]), f"reduce_{name}_{way}", 5)


def _rows(reducer):
    sweep, finish = _row_sweep(reducer), reducer.row
    centre_of = register_jitable(lambda x, s: 0)
    if reducer.centre is not None:
        first, ready = _row_sweep(reducer.centre), reducer.centre_row
        centre_of = register_jitable(lambda x, s: ready(first(x, s, 0), np.float64(s.count)))

    def apply(x, y, rows, flag, step):
        s = R(step, 0)
        for _ in range(rows):
            centre = centre_of(x, s)
            store_scalar(y, finish(sweep(x, s, centre), np.float64(s.divisor), centre))
            x += s.x2
            y += s.y2

    return apply


def _of_lanes(reducer):
    sweep, finish = _lane_sweep(reducer), reducer.lanes
    centres_of = register_jitable(lambda x, channels, s: (0, 0))
    if reducer.centre is not None:
        first, ready = _lane_sweep(reducer.centre), reducer.centre_lanes

        @register_jitable
        def centres_of(x, channels, s):
            a, b = first(x, channels, s, 0, 0)
            return ready(a, np.float64(s.count)), ready(b, np.float64(s.count))

    def apply(x, y, channels, flag, step):
        s = R(step, 0)
        divisor = np.float64(s.divisor)
        while channels > 0:
            centre_a, centre_b = centres_of(x, channels, s)
            a, b = sweep(x, channels, s, centre_a, centre_b)
            store_some(y, finish(a, divisor, centre_a), channels)
            store_some(y + BYTES, finish(b, divisor, centre_b), channels - LANES)
            x += 2 * BYTES
            y += 2 * BYTES
            channels -= 2 * LANES

    return apply


#: name -> the function applied to each cell, and the start value
INTEGERS = {
    "sum": (register_jitable(lambda total, value: total + value), 0),
    # beyond 32 bits for good, unless a zero comes: clamped where the next product still fits 64
    "prod": (register_jitable(lambda total, value: min(max(total * value, -(2**32)), 2**32)), 1),
    "amax": (register_jitable(lambda total, value: max(total, value)), -(2**31)),
    "amin": (register_jitable(lambda total, value: min(total, value)), 2**31 - 1),
}


def _integers(name, rows):
    """The kernel of a reduction of integers and bools, one cell at a time in 64 bits: masks and counts."""
    take, start = INTEGERS[name]

    def apply(x, y, results, flag, step):
        s = R(step, 0)
        for _ in range(results):
            total = start
            for i0 in range(s.m0):
                for i1 in range(s.m1):
                    for i2 in range(s.m2):
                        at = x + i0 * s.s0 + i1 * s.s1 + i2 * s.s2
                        for _ in range(s.length):
                            total = take(total, load_cell(at))
                            at += 4
            if total < -2147483648 or total > 2147483647:
                raise_flag(flag, total)
            store_cell(y, total)
            x += s.x2 if rows else 4
            y += s.y2 if rows else 4

    return apply


#: name -> the reduction that finds the extreme, and whether it works on negated values
ARGS = {"argmax": ("amax", False), "argmin": ("amin", True)}


def _arg(extreme, negate):
    """The kernel that finds the extreme by registers, then its first or last place, as asked."""
    sweep = _row_sweep(REDUCERS[extreme])

    @register_jitable
    def found(x, at, length, value):
        """The lanes of the register from the element ``at`` on that are ``value``."""
        left = min(length - at, LANES)
        return lanes_of(load_some(x + 4 * at, left), value) & ((1 << left) - 1)

    def apply(x, y, rows, flag, step):
        s = R(step, 0)
        length = s.length
        for _ in range(rows):
            best = sweep(x, s, 0)
            if negate:
                best = -best
            at, by = (length - 1) // LANES * LANES if s.last else 0, -LANES if s.last else LANES
            bits = found(x, at, length, best)
            while bits == 0 and 0 <= at + by < length:
                at += by
                bits = found(x, at, length, best)
            if bits != 0:
                at += 63 - leading_zeros(bits) if s.last else trailing_zeros(bits)
            store_cell(y, at)
            x += s.x2
            y += s.y2

    return apply


def _arg_of_lanes(extreme, negate):
    """The same of two registers of lanes at a time, which count in float32."""

    @register_jitable
    def value_at(place, lanes):
        value = load_some(place, lanes)
        return negated(value) if negate else value

    def apply(x, y, channels, flag, step):
        s = R(step, 0)
        count, place, by, number, next_ = s.m2, x, s.s2, f(0), f(1)
        if s.last:
            place, by, number, next_ = x + (count - 1) * by, -by, f(count - 1), f(-1)
        while channels > 0:
            there, here = place, splat(number)
            a, b = value_at(there, channels), value_at(there + BYTES, channels - LANES)
            at_a, at_b = here, here
            for _ in range(1, count):
                there, here = there + by, here + splat(next_)
                value_a, value_b = value_at(there, channels), value_at(there + BYTES, channels - LANES)
                at_a, a = select_above(a, value_a, here, at_a), select_above(a, value_a, value_a, a)
                at_b, b = select_above(b, value_b, here, at_b), select_above(b, value_b, value_b, b)
            store_some(y, whole_of(at_a), channels)
            store_some(y + BYTES, whole_of(at_b), channels - LANES)
            place += 2 * BYTES
            y += 2 * BYTES
            channels -= 2 * LANES

    return apply
