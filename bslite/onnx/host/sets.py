"""Nodes of trees that ask whether a value is one of a set, as the CPU kernel has them.

Exporters write a set as a chain: is it the first value, else is it the second, with one node behind all that
say yes (LightGBM's categorical splits). Such a chain is one node here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bslite.spec import Array

MOST_WORDS = 1 << 21  # of eight bytes for the bits of all sets: 16 MB


@dataclass(frozen=True)
class Sets:
    """What is asked of values. By node: whether it ``asks``, the node ``high`` for values that are not in its
    set, whether a ``missing`` value is, and the ``count`` of its values. ``values``: of all nodes in order.
    """

    asks: Array
    high: Array
    missing: Array
    count: Array
    values: Array

    def of(self, nodes: Array) -> tuple[Array, Array]:
        """The number of values of each of ``nodes``, and the values of all of them in that order."""
        count = np.where(self.asks[nodes], self.count[nodes], 0)
        first = (np.cumsum(self.count) - self.count)[nodes]
        places = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        return count, self.values[places]


def joined(
    inner: Array, equal: Array, member: Array, split: Array, members: Mapping[int, Array], feature: Array,
    low: Array, high: Array, missing: Array, roots: Array,
) -> Sets:  # fmt: skip
    """The sets of the nodes that are ``equal``, to whom their ``split`` belongs, or ``member``, with all of
    their ``members``, chains joined at their first node. ``inner``: those that are no leaves. ``low``: the
    node for values that are in the set.

    No number is in a set twice in a way that matters, and NaN in none: nothing equals it.
    """
    asks, places = equal | member, np.arange(len(low))
    held = [np.asarray(members.get(n, ()), np.float64) for n in np.flatnonzero(member).tolist()]
    node = np.concatenate([
        np.flatnonzero(equal), np.repeat(np.flatnonzero(member), np.fromiter(map(len, held), int, len(held)))
    ])  # fmt: skip
    values = np.concatenate([split[equal], *held])
    node, values = node[~np.isnan(values)], values[~np.isnan(values)]

    # the next link is what the rest goes to, if it asks the same feature and says yes to the same node
    reached = np.bincount(np.concatenate([roots, low[inner], high[inner]]), minlength=len(low))
    after = np.where(asks, high, 0)
    links = asks & asks[after] & (feature[after] == feature) & (low[after] == low) & (reached[after] == 1)
    last, first = np.where(links, after, places), places.copy()
    first[after[links]] = places[links]
    for _ in range(len(low).bit_length()):
        last, first = last[last], first[first]
    node = first[node]
    order = np.argsort(node, kind="stable")
    return Sets(
        asks, np.where(asks, high[last], high), np.bincount(first, missing, len(low)) > 0,
        np.bincount(node, minlength=len(low)), values[order],
    )  # fmt: skip


def as_bits(feature: Array, count: Array, values: Array) -> tuple[Array, Array, Array] | None:
    """The bits of sets: where each begins, in words of 64 bits; the first number that is in no set of the
    same feature, whose bit is there, too; the words. Sets of one feature lie in their order side by side and
    are equally long. None where a value is no small integer from 0 on.

    ``feature``, ``count``: by set. ``values``: of all sets in order.
    """
    if (values < 0).any() or (values >= 64 * MOST_WORDS).any() or (values != np.floor(values)).any():
        return None
    sets, number = np.repeat(np.arange(len(count)), count), values.astype(np.int64)
    features, column = np.unique(feature, return_inverse=True)
    beyond = np.zeros(len(features), np.int64)
    np.maximum.at(beyond, column[sets], number + 1)
    words = beyond[column] // 64 + 1
    if words.sum() > MOST_WORDS:
        return None
    order = np.argsort(column, kind="stable")
    begin = np.empty(len(count), np.int64)
    begin[order] = np.cumsum(words[order]) - words[order]
    bits = np.zeros(int(words.sum()), np.uint64)
    np.bitwise_or.at(bits, begin[sets] + (number >> 6), np.uint64(1) << (number & 63).astype(np.uint64))
    return begin, beyond[column], bits
