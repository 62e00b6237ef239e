"""A row through trees of few leaves by masks of bits, split by split instead of tree by tree.

Each tree has a word with a bit for each of its leaves, in their order from the lowest values; all are set. A
split that a value is above takes the bits away of all leaves on its low side. The leaf that the row reaches
is the lowest bit that is left. The splits of a feature stand in ascending order, so a row meets just those
that it is above, one after the other in memory: no walk from node to node, whose every step waits for a load.

A split is 16 bytes: its value (float64), and a code of the first leaf of the low side (6 bits), how many
follow it there (6 bits) and the place of its tree's word in bytes; the code's complement where a missing
value goes the way of low ones. What a leaf says is 8 bytes: the first of its weights, and the one after its
last.

A split that asks whether a value is in a set takes these bits away if it is not. A feature that is asked so
is a column of its own. Its sets are bits, equally long and side by side: a value has the same place in each.

QuickScorer: Lucchese et al., "QuickScorer: a Fast Algorithm to Rank Documents with Additive Ensembles of
Regression Trees", SIGIR 2015, https://doi.org/10.1145/2766462.2767733
"""

from collections import namedtuple

from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.trees import FOREST
from bslite.kernels.cpu.vector.memory import load_cell, load_int, store_int
from bslite.kernels.cpu.vector.numbers import load_double, lowest_bit
from bslite.kernels.cpu.vector.simd import I64, i64, primitive

#: Each cell's place in the record, in bytes.
F = namedtuple("forest_record", FOREST)(*range(0, 8 * len(FOREST), 8))


@primitive(i64, types.float64, i64)
def among(builder, x, beyond):
    """The number that ``x`` is, if it is one of 0 to ``beyond`` - 1, else ``beyond``; no branch."""
    limit, zero = builder.sitofp(beyond, ir.DoubleType()), ir.Constant(ir.DoubleType(), 0.0)
    inside = builder.and_(builder.fcmp_ordered(">=", x, zero), builder.fcmp_ordered("<", x, limit))
    number = builder.fptosi(builder.select(inside, x, limit), I64)
    whole = builder.fcmp_ordered("==", builder.sitofp(number, ir.DoubleType()), x)
    return builder.select(whole, number, beyond)


def narrowed(value, kind):
    """``narrow(job, left, row)``: leaves in the words ``left`` the bits of the leaves that the row at an
    address can reach. ``value(row, feature)`` reads it. ``kind``: of nodes, as `forest` has them.
    """
    missing, sets = kind != "plain", kind == "sets"

    @register_jitable
    def choose(job, left, x, split, end, told):
        """Splits of a column that ask for sets."""
        beyond = load_cell(told)
        place = among(x, beyond)
        word = load_int(job + F.bits) + 8 * (load_cell(told + 4) + (place >> 6))
        step, bit = 8 * ((beyond >> 6) + 1), place & 63
        while split < end:
            code = load_int(split + 8)
            low = code >> 63
            code ^= low
            keep = -((load_int(word) >> bit & 1) | (low & (x != x)))
            at = left + (code >> 12)
            leaves = (2 << (code >> 6 & 63)) - 1
            store_int(at, load_int(at) & (keep | ~(leaves << (code & 63))))
            split += 16
            word += step

    @register_jitable
    def narrow(job, left, row):
        splits = load_int(job + F.splits)
        columns, starts = load_int(job + F.columns), load_int(job + F.column_starts)
        for tree in range(load_int(job + F.trees)):
            store_int(left + 8 * tree, -1)
        for c in range(load_int(job + F.used)):
            x = value(row, load_cell(columns + 4 * c))
            split = splits + 16 * load_cell(starts + 4 * c)
            end = splits + 16 * load_cell(starts + 4 * c + 4)
            if sets:
                told = load_int(job + F.column_sets) + 8 * c
                if load_cell(told) >= 0:
                    choose(job, left, x, split, end, told)
                    continue
            while split < end and not x <= load_double(split):
                code = load_int(split + 8)
                split += 16
                if missing:
                    low = code >> 63
                    code ^= low
                    if low & (x != x):
                        continue
                word = left + (code >> 12)
                leaves = (2 << (code >> 6 & 63)) - 1
                store_int(word, load_int(word) & ~(leaves << (code & 63)))

    return narrow


@register_jitable
def said_by(job, left, tree):
    """The cell of what the leaf says that is reached in a tree."""
    leaf = lowest_bit(load_int(left + 8 * tree))
    start = load_cell(load_int(job + F.exit_starts) + 4 * tree)
    return load_int(job + F.exits) + 8 * (start + leaf)
