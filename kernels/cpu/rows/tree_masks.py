"""A row through trees of few leaves by masks of bits, split by split instead of tree by tree.

Each tree has a word with a bit for each of its leaves, in their order from the lowest values; all are set. A
split that a value is above takes the bits away of all leaves on its low side. The leaf that the row reaches
is the lowest bit that is left. The splits of a feature stand in ascending order, so a row meets just those
that it is above, one after the other in memory: no walk from node to node, whose every step waits for a load.

QuickScorer: Lucchese et al., "QuickScorer: a Fast Algorithm to Rank Documents with Additive Ensembles of
Regression Trees", SIGIR 2015, https://doi.org/10.1145/2766462.2767733
"""

from collections import namedtuple

from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.trees import FOREST
from bslite.kernels.cpu.vector.memory import load_cell, load_int, store_int
from bslite.kernels.cpu.vector.numbers import load_double, lowest_bit

#: Each cell's place in the record, in bytes.
F = namedtuple("forest_record", FOREST)(*range(0, 8 * len(FOREST), 8))


def narrowed(value, missing):
    """``narrow(job, row)``: leaves in "left" the bits of the leaves that the row at an address can reach.

    ``value(row, feature)`` reads it. ``missing``: whether missing values may go the low way; the owners of
    splits where they do are one's complements.
    """

    @register_jitable
    def narrow(job, row):
        left, owners = load_int(job + F.left), load_int(job + F.owners)
        splits, masks = load_int(job + F.splits), load_int(job + F.masks)
        columns, starts = load_int(job + F.columns), load_int(job + F.column_starts)
        for tree in range(load_int(job + F.trees)):
            store_int(left + 8 * tree, -1)
        for c in range(load_int(job + F.used)):
            x = value(row, load_cell(columns + 4 * c))
            for i in range(load_cell(starts + 4 * c), load_cell(starts + 4 * c + 4)):
                if x <= load_double(splits + 8 * i):
                    break
                owner = load_cell(owners + 4 * i)
                if missing:
                    low = owner >> 63
                    if low & (x != x):
                        continue
                    owner ^= low
                word = left + 8 * owner
                store_int(word, load_int(word) & load_int(masks + 8 * i))

    return narrow


@register_jitable
def exit_of(job, tree):
    """The node of the leaf that is reached in a tree."""
    leaf = lowest_bit(load_int(load_int(job + F.left) + 8 * tree))
    start = load_cell(load_int(job + F.exit_starts) + 4 * tree)
    return load_cell(load_int(job + F.exits) + 4 * (start + leaf))
