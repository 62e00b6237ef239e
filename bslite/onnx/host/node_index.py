"""Nodes of trees, found by the numbers that a file gives them."""

import numpy as np

from bslite.spec import Array


class NodeIndex:
    """Where the nodes of a forest stand, by tree and number; of two with the same the last."""

    def __init__(self, trees: Array, numbers: Array) -> None:
        self._trees, self._numbers = np.unique(trees), np.unique(numbers)
        keys, _ = self._keys(trees, numbers)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of(self, trees: Array, numbers: Array) -> Array:
        """The places of these nodes; -1 of those that are not there."""
        if not len(self._order):
            return np.full(len(trees), -1)
        keys, there = self._keys(trees, numbers)
        found = np.searchsorted(self._sorted, keys, side="right") - 1
        return np.where(there & (self._sorted[found] == keys), self._order[found], -1)

    def _keys(self, trees: Array, numbers: Array) -> tuple[Array, Array]:
        """One number for tree and node, and whether both are known."""
        tree, number = np.searchsorted(self._trees, trees), np.searchsorted(self._numbers, numbers)
        there = (tree < len(self._trees)) & (number < len(self._numbers))
        tree, number = np.where(there, tree, 0), np.where(there, number, 0)
        if len(self._trees):
            there &= (self._trees[tree] == trees) & (self._numbers[number] == numbers)
        return tree * len(self._numbers) + number, there
