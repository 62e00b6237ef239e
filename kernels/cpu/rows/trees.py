"""Ensembles of decision trees over rows of features: `forest`.

A node is 16 bytes: the split (float64), the feature (int32; one's complement where a missing value goes the
way of low ones) and the number of its first child (int32). Of two children side by side, the first is for
values up to the split, the second for the others. A leaf's split is NaN and its second child is itself, so a
walker that has arrived stays. Eight walkers go down together, of eight rows in one tree or of one row in
eight trees: a step is a chain of dependent loads, and eight chains overlap. No branch depends on a value.

A node that asks whether a value is in a set has the bit `CHOOSES` in its feature; the first child is for
values in the set. A set of small integers is bits: the split's low half is the word where they begin, its
high half the first number that is in no set of the feature. Its bit is zero, and stands for all others.

Rows that are no eight take trees of few leaves by masks instead (`tree_masks.py`), and so do all rows where
that is quicker: where trees have few splits, or nodes ask for sets.

Values are compared and summed as float64, the sums of a row in the order of the trees, however rows and trees
are taken.
"""

import functools
import math

import numpy as np
from numba import types
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.trees import CHOOSES, WALKERS, Chosen, Finish, Other, Said, Transform
from bslite.kernels.cpu.rows.tree_masks import F, among, narrowed, said_by
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.vector.atomic import fetch_add
from bslite.kernels.cpu.vector.memory import load_cell, load_int, load_scalar, store_int, store_scalar
from bslite.kernels.cpu.vector.numbers import load_double, store_byte, store_double
from bslite.kernels.cpu.vector.simd import I64, i64, primitive

# What "how", "finish", "transform" and "rule" say, as plain integers.
SUM, MIN = int(Said.SUM), int(Said.MIN)
LONE, CLASSES = int(Finish.LONE), int(Finish.CLASSES)
LOGISTIC, SOFTMAX = int(Transform.LOGISTIC), int(Transform.SOFTMAX)
FIRST, REST = int(Chosen.FIRST), int(Other.REST)
FEATURE, BEGIN = (1 << CHOOSES) - 1, (1 << 32) - 1  # bits


@primitive(i64, types.float64, types.float64)
def above(builder, x, split):
    """1 where ``x`` is greater or one of them is NaN, else 0; no branch."""
    return builder.zext(builder.fcmp_unordered(">", x, split), I64)


@register_jitable
def _wide(row, feature):
    return load_double(row + 8 * feature)


@register_jitable
def _single(row, feature):
    return float(load_scalar(row + 4 * feature))


def _stepping(value, kind):
    """``step(job, nodes, at, row)``: the node after the one numbered ``at``."""

    @register_jitable
    def plain(job, nodes, at, row):
        node = nodes + 16 * at
        x = value(row, load_cell(node + 8))
        return load_cell(node + 12) + above(x, load_double(node))

    @register_jitable
    def missing(job, nodes, at, row):
        node = nodes + 16 * at
        feature = load_cell(node + 8)
        low = feature >> 63  # -1 where missing values go the way of low ones
        x = value(row, feature ^ low)
        return load_cell(node + 12) + (above(x, load_double(node)) & ~(above(x, x) & low))

    @register_jitable
    def sets(job, nodes, at, row):
        node = nodes + 16 * at
        feature = load_cell(node + 8)
        low = feature >> 63
        feature ^= low
        asks = feature >> CHOOSES  # 1 or 0: no branch, of a split any bits are looked up and not used
        x, told = value(row, feature & FEATURE), load_int(node) & -asks
        place = among(x, told >> 32)
        word = load_int(load_int(job + F.bits) + 8 * ((told & BEGIN) + (place >> 6)))
        high = (asks & ~(word >> (place & 63))) | (above(x, load_double(node)) & ~asks)
        return load_cell(node + 12) + (high & ~(above(x, x) & low))

    @register_jitable
    def any_kind(job, nodes, at, row):
        node = nodes + 16 * at
        feature = load_cell(node + 8)
        low = feature >> 63
        feature ^= low
        x, split = value(row, feature & FEATURE), load_double(node)
        yes = x <= split
        if feature >> CHOOSES:
            ranges = load_int(job + F.ranges) + 8 * int(split)
            yes = False
            for i in range(load_cell(ranges), load_cell(ranges + 4)):
                yes |= x == load_double(load_int(job + F.members) + 8 * i)
        return load_cell(node + 12) + (0 if yes or (x != x and low != 0) else 1)

    return {"plain": plain, "missing": missing, "sets": sets, "any": any_kind}[kind]


@register_jitable
def _sigmoid(x):
    e = math.exp(-abs(x))
    return (e if x < 0 else 1.0) / (1 + e)


@register_jitable
def _finish(job, row):
    """Scores of a row, as float32, and the place of its class, from its sums.

    "base" has a cut, then what is added to each sum. The "rule" is of `Other` for the lone score of two
    classes, of `Chosen` for classes.
    """
    finish, transform, rule = load_int(job + F.finish), load_int(job + F.transform), load_int(job + F.rule)
    targets, base = load_int(job + F.targets), load_int(job + F.base)
    sums = load_int(job + F.sums) + 8 * row * targets
    scores, places = load_int(job + F.scores) + 4 * row * targets, load_int(job + F.places) + 8 * row
    if finish == LONE:
        x = load_double(sums) + load_double(base + 8)
        store_int(places, 1 if x > load_double(base) else 0)
        other = 1 - x if rule == REST else -x
        if transform == LOGISTIC:
            x, other = _sigmoid(x), _sigmoid(-x)
        store_scalar(scores, np.float32(other))
        store_scalar(scores + 4, np.float32(x))
        return
    best, place = -np.inf, 0
    for t in range(targets):
        x = load_double(sums + 8 * t) + load_double(base + 8 + 8 * t)
        store_double(sums + 8 * t, x)
        if best == best and (x > best or x != x):
            best, place = x, t
    if finish == CLASSES:
        second = load_double(sums + 8) > load_double(base)
        store_int(places, place if rule == FIRST else 1 if second else 0)
    total = 0.0
    if transform == SOFTMAX:
        for t in range(targets):
            e = math.exp(load_double(sums + 8 * t) - best)
            store_double(sums + 8 * t, e)
            total += e
    for t in range(targets):
        x = load_double(sums + 8 * t)
        x = _sigmoid(x) if transform == LOGISTIC else x / total if transform == SOFTMAX else x
        store_scalar(scores + 4 * t, np.float32(x))


@functools.cache
def forest(wide: bool, kind: str) -> Kernel:
    """The kernel for float64 or float32 features; ``kind`` of nodes: "plain", "missing" (missing values may
    go the way of low ones), "sets" (of small integers, besides), or "any".
    """
    value = _wide if wide else _single
    step, narrow = _stepping(value, kind), narrowed(value, kind)

    @register_jitable
    def descend(job, nodes, a, b, c, d, e, f, g, h, rows):
        """The leaves that eight walkers reach from their nodes; ``rows``: the address of each one's row."""
        p, q, r, s, t, u, v, w = rows
        for _ in range((load_int(job + F.depth) + 1) // 2):
            a1, b1 = step(job, nodes, a, p), step(job, nodes, b, q)
            c1, d1 = step(job, nodes, c, r), step(job, nodes, d, s)
            e1, f1 = step(job, nodes, e, t), step(job, nodes, f, u)
            g1, h1 = step(job, nodes, g, v), step(job, nodes, h, w)
            a, b = step(job, nodes, a1, p), step(job, nodes, b1, q)
            c, d = step(job, nodes, c1, r), step(job, nodes, d1, s)
            e, f = step(job, nodes, e1, t), step(job, nodes, f1, u)
            g, h = step(job, nodes, g1, v), step(job, nodes, h1, w)
            moved = (a ^ a1) | (b ^ b1) | (c ^ c1) | (d ^ d1) | (e ^ e1) | (f ^ f1) | (g ^ g1) | (h ^ h1)
            if moved == 0:
                break
        return a, b, c, d, e, f, g, h

    @register_jitable
    def add(job, first, last, row):
        """Adds weights of a leaf to the sums of a row."""
        ids, weights = load_int(job + F.ids), load_int(job + F.weights)
        place = row * load_int(job + F.targets)
        marked = load_int(job + F.hits)
        sums, hits = load_int(job + F.sums) + 8 * place, marked + place
        how = load_int(job + F.how)
        for i in range(first, last):
            target = load_cell(ids + 4 * i)
            weight, now = load_double(weights + 8 * i), load_double(sums + 8 * target)
            if marked:
                store_byte(hits + target, 1)
            if how == SUM:
                store_double(sums + 8 * target, now + weight)
            elif weight != weight or (weight < now if how == MIN else weight > now):
                store_double(sums + 8 * target, weight)

    @register_jitable
    def add_leaf(job, leaf, row):
        """Adds what a leaf says to the sums of a row."""
        starts = load_int(job + F.starts) + 4 * leaf
        add(job, load_cell(starts), load_cell(starts + 4), row)

    @register_jitable
    def add_reached(job, left, row):
        """Adds what the leaves say that `narrow` has found."""
        sums, trees = load_int(job + F.sums) + 8 * row, load_int(job + F.trees)
        if load_int(job + F.targets) == 1 and load_int(job + F.how) == SUM and not load_int(job + F.hits):
            weights, total = load_int(job + F.weights), load_double(sums)  # no sum waits for a store
            for tree in range(trees):
                said = said_by(job, left, tree)
                for i in range(load_cell(said), load_cell(said + 4)):
                    total += load_double(weights + 8 * i)
            store_double(sums, total)
            return
        for tree in range(trees):
            said = said_by(job, left, tree)
            add(job, load_cell(said), load_cell(said + 4), row)

    def apply(job):
        nodes, roots = load_int(job + F.nodes), load_int(job + F.roots)
        trees, rows = load_int(job + F.trees), load_int(job + F.rows)
        x, stride, block = load_int(job + F.x), load_int(job + F.row_bytes), load_int(job + F.block)
        how, targets = load_int(job + F.how), load_int(job + F.targets)
        sums, hits = load_int(job + F.sums), load_int(job + F.hits)
        masks, abreast = load_int(job + F.splits), load_int(job + F.abreast)
        entry = fetch_add(job + F.entries, -1) - 1
        if entry < 0:  # there is no memory for more threads
            return
        left = load_int(job + F.left) + 8 * entry * trees
        nothing = 0.0 if how == SUM else np.inf if how == MIN else -np.inf
        first = block * fetch_add(job + F.walkers, 1)
        while first < rows:
            last = min(first + block, rows)
            for place in range(first * targets, last * targets):
                store_double(sums + 8 * place, nothing)
                if hits:
                    store_byte(hits + place, 0)
            paired = first + (last - first) // abreast * abreast
            for tree in range(trees if paired > first else 0):
                n = load_cell(roots + 4 * tree)
                for row in range(first, paired, WALKERS):
                    y = x + row * stride
                    each = (
                        y, y + stride, y + 2 * stride, y + 3 * stride,
                        y + 4 * stride, y + 5 * stride, y + 6 * stride, y + 7 * stride,
                    )  # fmt: skip
                    a, b, c, d, e, f, g, h = descend(job, nodes, n, n, n, n, n, n, n, n, each)
                    add_leaf(job, a, row)
                    add_leaf(job, b, row + 1)
                    add_leaf(job, c, row + 2)
                    add_leaf(job, d, row + 3)
                    add_leaf(job, e, row + 4)
                    add_leaf(job, f, row + 5)
                    add_leaf(job, g, row + 6)
                    add_leaf(job, h, row + 7)
            for row in range(paired, last):
                y = x + row * stride
                if masks:
                    narrow(job, left, y)
                    add_reached(job, left, row)
                for tree in range(0, 0 if masks else trees, WALKERS):
                    t = roots + 4 * tree  # the roots are followed by zeros for the last walkers
                    leaves = descend(
                        job, nodes, load_cell(t), load_cell(t + 4), load_cell(t + 8), load_cell(t + 12),
                        load_cell(t + 16), load_cell(t + 20), load_cell(t + 24), load_cell(t + 28),
                        (y, y, y, y, y, y, y, y),
                    )  # fmt: skip
                    left = trees - tree
                    for k in range(WALKERS):
                        if k < left:
                            add_leaf(job, leaves[k], row)
            if load_int(job + F.finish):
                for row in range(first, last):
                    _finish(job, row)
            first = block * fetch_add(job + F.walkers, 1)

    return Kernel(apply, f"forest_{kind}_{'wide' if wide else 'single'}", 1)
