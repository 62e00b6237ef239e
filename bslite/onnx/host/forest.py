"""A forest as the CPU kernel walks it: nodes in the order of their trees, children side by side."""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.kernels.contracts.cpu.trees import (
    CHOOSES,
    FOREST,
    LEAVES,
    NARROW,
    WALKERS,
    Chosen,
    Finish,
    Other,
    Said,
    Transform,
)
from bslite.onnx.host.sets import as_bits, joined
from bslite.spec import Array

BLOCK = 512  # rows at most that a thread takes through all trees
LEAST = 20_000  # pairs of a row and a tree for which a second thread is worth its start
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)  # `bslite.onnx.host.trees.MODES`
#: Averages are divided by the number of trees at the end.
HOW = {"SUM": int(Said.SUM), "AVERAGE": int(Said.SUM), "MIN": int(Said.MIN), "MAX": int(Said.MAX)}
#: Places of cells that differ from call to call.
ROWS, ROW_BYTES, X, SUMS, HITS = map(FOREST.index, ("rows", "row_bytes", "x", "sums", "hits"))
HOW_AT, AT_A_TIME, LEFT, ENTRIES = map(FOREST.index, ("how", "block", "left", "entries"))
SCORES, PLACES = map(FOREST.index, ("scores", "places"))
ENDING = slice(FOREST.index("finish"), FOREST.index("base") + 1)


@dataclass(frozen=True)
class Layout:
    """What the kernel reads (`bslite.kernels.cpu.rows.trees`), and which of its forms does.

    ``covers``: whether of each target some tree speaks in all of its leaves, so that every row has it.
    ``abreast``: rows that go node by node together; the rest goes split by split where there are masks.
    """

    arrays: dict[str, Array]
    kind: str
    trees: int
    targets: int
    depth: int
    covers: bool
    abreast: int


def laid_out(forest: Any) -> Layout | None:
    """The layout of a `bslite.onnx.host.trees.Forest`; None if it has no trees, nodes that are reached on
    several paths, or more features than a node has bits for.
    """
    if not len(forest.roots):
        return None
    split, mode = forest.split.astype(np.float64), forest.mode
    inner = mode >= 0
    strict = np.isin(mode, (LT, GTE))
    below = np.nextafter(split, -np.inf)
    below[split == -np.inf] = np.nan  # nothing is below
    turned = (np.isin(mode, (GTE, GT)) & ~np.isnan(split)) | (mode == NEQ)
    low, high = np.where(turned, forest.false, forest.true), np.where(turned, forest.true, forest.false)
    missing = np.where(turned, ~forest.missing & (mode != NEQ), forest.missing)
    sets = joined(
        inner, (mode == EQ) | (mode == NEQ), mode == MEMBER, split, forest.members, forest.feature, low, high,
        missing, forest.roots,
    )  # fmt: skip
    split, missing = np.where(strict, below, split), np.where(sets.asks, sets.missing, missing)
    found = _ordered(forest.roots, inner, low, sets.high)
    if found is None or forest.feature[inner].max(initial=0) >> CHOOSES:
        return None
    nodes, children, roots, depth = found
    inner = inner[nodes]
    places = np.arange(len(nodes))
    packed = np.zeros(len(nodes), [("split", "f8"), ("feature", "i4"), ("child", "i4")])
    packed["split"] = np.where(inner, split[nodes], np.nan)
    feature = np.where(inner, forest.feature[nodes], 0)
    chooses = inner & sets.asks[nodes]
    kind, told = _told(packed["split"], np.flatnonzero(chooses), feature, *sets.of(nodes[chooses]))
    feature = np.where(chooses, feature | 1 << CHOOSES, feature)
    packed["feature"] = np.where(inner & missing[nodes], ~feature, feature)
    packed["child"] = np.where(inner, children, places - 1)
    counts = np.where(inner, 0, forest.hit.sum(1)[forest.leaves[nodes]])
    starts = np.concatenate([[0], np.cumsum(counts)])
    leaf, target = np.nonzero(forest.hit)
    first = np.searchsorted(leaf, forest.leaves[nodes])
    taken = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
    spoken = forest.hit[forest.leaves[nodes]] | inner[:, None]
    covers = bool(len(roots)) and np.logical_and.reduceat(spoken, roots).any(0).all()
    starts = starts.astype(np.int32)
    arrays = {
        "nodes": packed,
        "roots": np.pad(roots, (0, WALKERS - 1)).astype(np.int32),
        "starts": starts,
        "ids": target[taken].astype(np.int32),
        "weights": forest.weights[leaf, target][taken],
    } | told
    if not kind:
        kind = "missing" if (missing[nodes] & inner).any() else "plain"
    if kind != "any":
        ends = np.append(roots, len(nodes))
        arrays |= _masks(packed, ends, inner, np.stack([starts[:-1], starts[1:]], 1))
    arrays = {name: np.ascontiguousarray(content) for name, content in arrays.items()}
    narrow = "splits" in arrays and (kind == "sets" or len(arrays["splits"]) <= NARROW * len(roots))
    abreast = BLOCK + 1 if narrow else WALKERS
    return Layout(arrays, kind, len(roots), forest.weights.shape[1], depth, bool(covers), abreast)


def _told(
    split: Array, nodes: Array, feature: Array, count: Array, values: Array
) -> tuple[str, dict[str, Array]]:
    """The kind of kernel that the sets of ``nodes`` need, none if there are none, and what it reads of them.
    Where each set is found is written in place of the node's ``split``.

    Sets of small integers, categories, are bits: the split holds the word where they begin, and above it the
    first number that is in no set of the feature. The values of others stand one after the other, and the
    split is the set's number.
    """
    if not len(nodes):
        return "", {}
    found = as_bits(feature[nodes], count, values)
    if found is None:
        split[nodes] = np.arange(len(nodes))
        ends = np.cumsum([0, *count])
        ranges = np.stack([ends[:-1], ends[1:]], 1).astype(np.int32)
        return "any", {"members": values, "ranges": ranges}
    begin, beyond, bits = found
    split[nodes] = (beyond << 32 | begin).view(np.float64)
    return "sets", {"bits": bits}


def _ordered(roots: Array, inner: Array, low: Array, high: Array) -> tuple[Array, Array, Array, int] | None:
    """Nodes in the order in which the kernel has them, tree by tree; the place of each one's first child,
    which the second follows; the places of the roots; the depth of the deepest. None if there are more places
    than nodes.
    """
    most = len(inner) + len(roots)
    here, tree = np.asarray(roots, np.int64), np.arange(len(roots))
    nodes, trees, firsts, count = [here], [tree], list[Array](), len(roots)
    while len(here):
        parents = inner[here]
        firsts.append(np.where(parents, count + 2 * (np.cumsum(parents) - 1), -1))
        here, tree = here[parents], np.repeat(tree[parents], 2)
        here = np.stack([low[here], high[here]], 1).reshape(-1)
        count += len(here)
        if count > most:
            return None
        nodes.append(here)
        trees.append(tree)
    order = np.argsort(np.concatenate(trees), kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    first = np.concatenate(firsts)[order]
    return (
        np.concatenate(nodes)[order],
        np.where(first >= 0, place[first], -1),
        place[: len(roots)],
        len(nodes) - 2,
    )


def _masks(nodes: Array, ends: Array, inner: Array, said: Array) -> dict[str, Array]:
    """What the kernel reads of splits by masks; nothing if a tree has too many leaves, or all have one.

    ``nodes``: as packed. ``ends``: the first node of each tree, and the end. ``inner``: which are splits.
    ``said``: of each node the first of its weights, and the one after the last.
    """
    trees = len(ends) - 1
    tree = np.repeat(np.arange(trees), np.diff(ends))
    levels = [ends[:-1]]
    while len(below := nodes["child"][(here := levels[-1])[inner[here]]]):
        levels.append(np.concatenate([below, below + 1]))
    leaves, first = np.ones(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
    for level in reversed(levels):
        split = level[inner[level]]
        low = nodes["child"][split]
        leaves[split] = leaves[low] + leaves[low + 1]
    if len(levels) == 1 or leaves[ends[:-1]].max() > LEAVES:
        return {}
    for level in levels:
        split = level[inner[level]]
        low = nodes["child"][split]
        first[low], first[low + 1] = first[split], first[split] + leaves[low]
    split, exits = np.flatnonzero(inner), np.flatnonzero(~inner)
    missing = nodes["feature"][split] < 0
    feature = np.where(missing, ~nodes["feature"][split], nodes["feature"][split])
    chooses, feature = feature >> CHOOSES, feature & (1 << CHOOSES) - 1
    at, told = nodes["split"][split], nodes["split"][split].view(np.int64)
    begin = told & (1 << 32) - 1
    at = np.where(chooses, begin, at)  # the sets of a feature in the order of their bits
    order = np.lexsort((tree[split], np.where(np.isnan(at), -np.inf, at), ~np.isnan(at), chooses, feature))
    columns, starts = np.unique(2 * feature[order] + chooses[order], return_index=True)
    sets = np.stack([np.where(chooses, told >> 32, -1), begin], 1)[order[starts]]
    code = 8 * tree[split] << 12 | leaves[nodes["child"][split]] - 1 << 6 | first[split]
    counts = np.diff(np.append(np.searchsorted(exits, ends[:-1]), len(exits)))
    table = np.zeros(len(order), [("split", "f8"), ("code", "i8")])
    table["split"], table["code"] = at[order], np.where(missing, ~code, code)[order]
    return {
        "splits": table,
        "columns": (columns // 2).astype(np.int32),
        "column_sets": sets.astype(np.int32),
        "column_starts": np.append(starts, len(order)).astype(np.int32),
        "exits": said[exits[np.lexsort((first[exits], tree[exits]))]],
        "exit_starts": (np.cumsum(counts) - counts).astype(np.int32),
    }


class Ending:
    """What the kernel makes of sums to which ``base`` is added, and with which ``rule`` and ``cut`` it tells
    classes.
    """

    def __init__(
        self, finish: Finish, transform: Transform, base: Array, targets: int,
        rule: Chosen | Other = Chosen.FIRST, cut: float = 0.0,
    ) -> None:  # fmt: skip
        self._table = np.zeros(1 + targets)
        self._table[0] = cut
        self._table[1 : 1 + len(base)] = base
        #: Cells of the record, in the order of the names.
        self.cells = array("q", [finish, transform, rule, self._table.ctypes.data])


class ForestKernel:
    """A laid out forest with its compiled kernels, one for float32 and one for float64 features.

    A call for one row takes a few microseconds: what can be looked up before is.
    """

    def __init__(self, layout: Layout) -> None:
        from bslite.engines.cpu.session import address_of
        from bslite.engines.cpu.threads import default_threads
        from bslite.engines.cpu.turns import fork_join
        from bslite.kernels.cpu.rows.trees import forest

        self._fork_join, self._address_of, self._default_threads = fork_join, address_of, default_threads
        self._layout, self._kernel, self._trees, self._targets = layout, forest, layout.trees, layout.targets
        self._record = array("q", [0] * len(FOREST))
        for name, content in layout.arrays.items():
            self._record[FOREST.index(name)] = content.ctypes.data
        for name in ("trees", "targets", "depth", "abreast"):
            self._record[FOREST.index(name)] = getattr(layout, name)
        self._record[FOREST.index("used")] = len(layout.arrays.get("columns", ()))
        self._masked, self._abreast = "splits" in layout.arrays, layout.abreast
        self._words: list[tuple[Array, int]] = []  # a word for each tree, that no call uses; `pop` is atomic
        self._addresses: dict[Any, int] = {}

    def sums(self, x: Array, how: str, threads: int | None, hits: bool = True) -> tuple[Array, Array | None]:
        """As `Forest.sums` for float32 or float64 rows side by side, but that an average is a sum, and that
        of least and largest nothing is infinite. ``hits``: whether to say which targets a leaf speaks of.
        """
        made = np.empty((len(x), self._targets))
        hit = np.empty(made.shape, bool) if hits else None
        record = self._record[:]
        if hit is not None:
            record[HITS] = self._address_of(hit)
        record[HOW_AT] = HOW[how]
        self._walk(record, x, made, threads)
        return made, hit

    def scores(self, x: Array, ending: Ending, threads: int | None) -> tuple[Array, Array]:
        """The place of each row's class, and [rows, targets] scores in float32, from sums of all trees.

        Of values that are no classes the places mean nothing.
        """
        rows, targets, record = len(x), self._targets, self._record[:]
        made = np.empty((rows, targets))
        scores, places = np.empty((rows, targets), np.float32), np.empty(rows, np.int64)
        record[ENDING] = ending.cells
        record[SCORES], record[PLACES] = self._address_of(scores), self._address_of(places)
        self._walk(record, x, made, threads)
        return places, scores

    def _walk(self, record: Any, x: Array, made: Array, threads: int | None) -> None:
        address = self._addresses.get(x.dtype)
        if address is None:
            kernel = self._kernel(x.dtype == np.float64, self._layout.kind)
            address = self._addresses[x.dtype] = kernel.address
        rows, count = len(x), 1
        if (work := rows * self._trees) > LEAST:
            count = min(threads or self._default_threads(), 1 + work // LEAST)
        record[ROWS], record[ROW_BYTES] = rows, x.strides[0]
        record[X], record[SUMS] = self._address_of(x), self._address_of(made)
        record[AT_A_TIME] = BLOCK if count == 1 else min(BLOCK, -(-rows // (4 * count)) + 7 & ~7)
        record[ENTRIES] = count
        # Rows are taken abreast within blocks: of more abreast than a block has, all are taken by masks.
        if not self._masked or (self._abreast <= BLOCK and rows % self._abreast == 0):
            self._fork_join(count, address, record.buffer_info()[0])
            return
        if count > 1:
            words = np.empty(count * self._trees, np.uint64)
            record[LEFT] = words.ctypes.data
            self._fork_join(count, address, record.buffer_info()[0])
            return
        try:
            kept = self._words.pop()
        except IndexError:
            data = np.empty(self._trees, np.uint64)
            kept = data, data.ctypes.data
        record[LEFT] = kept[1]
        self._fork_join(1, address, record.buffer_info()[0])
        self._words.append(kept)
