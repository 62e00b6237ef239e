"""Ensembles of decision trees (the operator set ai.onnx.ml): what gradient boosting and forests export.

The CPU kernel takes rows through trees; the same in NumPy, all rows through all trees a level at a time, is
what is taken for the truth. Sums are float64, in the order of the trees, rounded once at the end.
https://github.com/onnx/onnx/blob/main/docs/Operators-ml.md
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.kernels.contracts.cpu.trees import Chosen, Finish, Other, Transform
from bslite.onnx.host.forest import Ending, ForestKernel, Layout, laid_out
from bslite.onnx.host.node import host_op
from bslite.onnx.host.node_index import NodeIndex
from bslite.onnx.host.scores import array_of, finished
from bslite.spec import Array

#: How a value is compared with a node's, in the order of TreeEnsemble's numbers.
COMPARED: dict[str, Callable[..., Any]] = {
    "BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater, "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal,
}  # fmt: skip
MODES = (*COMPARED, "BRANCH_MEMBER")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
AT_ONCE = 1 << 20  # pairs of a row and a tree


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees: ``feature``, ``split``, ``mode`` (-1 of a leaf), the nodes ``true`` and ``false``,
    whether a missing value is ``missing`` true. ``leaves``: node -> its row of ``weights`` [leaves, targets];
    ``hit``: whether the leaf has a weight of that target.
    """

    roots: Array
    feature: Array
    split: Array
    mode: Array
    true: Array
    false: Array
    missing: Array
    leaves: Array
    weights: Array
    hit: Array
    members: dict[int, Array]

    def __post_init__(self) -> None:
        count, inner = len(self.mode), self.mode >= 0
        ends = np.concatenate([self.roots, self.true[inner], self.false[inner]])
        if (ends < 0).any() or (ends >= count).any() or (self.feature[inner] < 0).any():
            raise SpecError("a tree points at a node that is not there")

    def reached(self, x: Array) -> Array:
        """The leaf of every row in every tree, [rows, trees], as rows of ``weights``."""
        x = self.fit(x)
        at = np.repeat(self.roots[None], len(x), 0)
        kinds = np.unique(self.mode[self.mode >= 0])
        for _ in range(len(self.mode) + 1):
            row, tree = np.nonzero(self.mode[at] >= 0)
            if not len(row):
                return np.asarray(self.leaves[at])
            node = at[row, tree]
            values, split = x[row, self.feature[node]], self.split[node]
            yes = np.zeros(len(node), bool)
            for kind in kinds:
                here = slice(None) if len(kinds) == 1 else self.mode[node] == kind
                if MODES[kind] == "BRANCH_MEMBER":
                    pairs = zip(values[here], node[here], strict=True)
                    yes[here] = [v in self.members[int(n)] for v, n in pairs]
                else:
                    yes[here] = COMPARED[MODES[kind]](values[here], split[here])
            yes |= self.missing[node] & np.isnan(values)
            at[row, tree] = np.where(yes, self.true[node], self.false[node])
        raise SpecError("its trees are no trees: a node is below itself")

    def sums(self, x: Array, how: str) -> tuple[Array, Array]:
        """What the leaves that rows reach say of each target, [rows, targets]; and whether any does."""
        if how not in AGGREGATES:
            raise SpecError(f"aggregate function {how!r}")
        made = np.zeros((len(x), self.weights.shape[1]))
        hit = np.zeros(made.shape, bool)
        step = max(1, AT_ONCE // max(1, len(self.roots) * self.weights.shape[1]))
        for start in range(0, len(x), step):
            leaves = self.reached(x[start : start + step])
            weights, there = self.weights[leaves], self.hit[leaves]
            hit[start : start + step] = there.any(1)
            if how in ("MIN", "MAX"):
                worst = np.inf if how == "MIN" else -np.inf
                best = (np.min if how == "MIN" else np.max)(np.where(there, weights, worst), 1)
                made[start : start + step] = np.where(np.isfinite(best), best, 0)
            else:
                for tree in range(weights.shape[1]):
                    made[start : start + step] += weights[:, tree]
        return made / len(self.roots) if how == "AVERAGE" and len(self.roots) else made, hit

    @cached_property
    def layout(self) -> Layout | None:
        """As the kernel has it; None if nodes are reached on several paths, for which it has no form."""
        return laid_out(self)

    @cached_property
    def kernel(self) -> ForestKernel | None:
        """What computes it."""
        return None if self.layout is None else ForestKernel(self.layout)

    @cached_property
    def ever(self) -> Array:
        """For each target whether any leaf speaks of it."""
        return np.asarray(self.hit.any(0))

    @cached_property
    def positive(self) -> bool:
        """Whether leaves speak of one target only, and never against it."""
        return bool(self.ever.sum() == 1 and (self.weights[self.hit] >= 0).all())

    def said(
        self, x: Array, how: str, exact: bool, threads: int | None, hits: bool = False
    ) -> tuple[Array, Array | None]:
        """As `sums`, by the kernel; ``exact``: by NumPy. What no leaf says is only told if ``hits``."""
        if how not in AGGREGATES:
            raise SpecError(f"aggregate function {how!r}")
        if exact or self.kernel is None or not x.size:
            return self.sums(x, how)
        made, hit = self.kernel.sums(self.fit(x), how, threads, hits)
        if how in ("MIN", "MAX"):
            made = np.where(np.isfinite(made), made, 0)
        elif how == "AVERAGE" and len(self.roots):
            made /= len(self.roots)
        return made, hit

    def fit(self, x: Array) -> Array:
        """``x`` as the kernel takes it, nothing rounded. InputError if it has too few features."""
        if x.ndim != 2 or x.shape[1] <= self.widest:
            raise InputError(f"{x.dtype} {list(x.shape)}: a tree asks for feature {self.widest} of rows")
        if x.dtype != np.float32 and x.dtype != np.float64:
            x = x.astype(np.float32 if x.dtype == np.float16 else np.float64)
        return x if x.flags.c_contiguous else np.ascontiguousarray(x)

    @cached_property
    def widest(self) -> int:
        """The last feature that a node asks for."""
        return int(self.feature[self.mode >= 0].max(initial=0))


def _classic(given: dict[str, Any], kind: str, targets: int) -> Forest:
    """The forest of the operators that number nodes within their tree."""

    def array(name: str, count: int | None = None, filler: Any = None) -> Array:
        tensor = given.get(f"{name}_as_tensor")
        found = given.get(name) if tensor is None else tensor
        if found is None and filler is not None:
            return np.full(count or 0, filler)
        made = np.asarray(() if found is None else found)
        if tensor is None and made.dtype.kind == "f":
            made = made.astype(np.float32)
        if count is not None and len(made) != count:
            raise SpecError(f"{name} has {len(made)} entries, expected {count}")
        return made

    trees = array("nodes_treeids")
    count = len(trees)
    places = NodeIndex(trees, array("nodes_nodeids", count))
    known = {**{m: i for i, m in enumerate(COMPARED)}, "LEAF": -1}
    modes = np.array([known.get(m, -1) for m in given["nodes_modes"]], np.int64)
    if set(given["nodes_modes"]) - set(known) or len(modes) != count:
        raise SpecError(f"nodes_modes has {len(modes)} entries for {count} nodes, or some of no known kind")

    def child(name: str) -> Array:
        return np.where(modes >= 0, places.of(trees, array(name, count)), 0)

    speaking = array(f"{kind}_treeids")
    leaf_nodes = places.of(speaking, array(f"{kind}_nodeids", len(speaking)))
    ids, weights = array(f"{kind}_ids", len(leaf_nodes)), array(f"{kind}_weights", len(leaf_nodes))
    if len(leaf_nodes) and (leaf_nodes.min() < 0 or ids.min() < 0 or ids.max() >= targets):
        raise SpecError(f"{kind}_ids or {kind}_nodeids point at what is not there")
    # onnxruntime reads weights of leaves only, and a leaf without any as zeros
    rows = np.zeros(count, np.int64)
    ends = np.flatnonzero(modes < 0)
    rows[ends] = np.arange(len(ends))
    leaf = modes[leaf_nodes] < 0
    table, hit = np.zeros((len(ends), targets)), np.zeros((len(ends), targets), bool)
    where = rows[leaf_nodes[leaf]], ids[leaf].astype(np.int64)
    np.add.at(table, where, weights[leaf])
    hit[where] = True
    _, first = np.unique(trees, return_index=True)
    return Forest(
        np.sort(first), array("nodes_featureids", count), array("nodes_values", count),
        modes, child("nodes_truenodeids"), child("nodes_falsenodeids"),
        array("nodes_missing_value_tracks_true", count, 0).astype(bool), rows, table, hit, {},
    )  # fmt: skip


def _base(values: Sequence[float] | Array | None) -> Array:
    return np.asarray(() if values is None else values, np.float64)


def _given_base(given: dict[str, Any]) -> Array:
    tensor = given.get("base_values_as_tensor")
    return _base(given.get("base_values") if tensor is None else tensor)


@host_op("ai.onnx.ml:TreeEnsembleRegressor")
def regressor(
    x: Array, *, aggregate_function: str = "SUM", post_transform: str, n_targets: int, exact: bool,
    threads: int | None, cache: dict[str, Any], **given: Any,
) -> Array:  # fmt: skip
    """[rows, targets]."""
    forest, base = _classic(given, "target", n_targets or 1), _given_base(given)

    kernel = forest.kernel if aggregate_function == "SUM" and not exact else None
    known = post_transform in Transform.__members__ and len(base) in (0, n_targets or 1)
    if kernel is not None and known:
        ending = Ending(Finish.EACH, Transform[post_transform], base, n_targets or 1)
        cache["call"] = lambda x: kernel.scores(forest.fit(x), ending, threads)[1]
        cache["silent"] = True
        return cache["call"](x)

    def call(x: Array) -> Array:
        made, _ = forest.said(x, aggregate_function, exact, threads)
        made = finished(made + base if len(base) else made, post_transform)
        return made if exact else made.astype(np.float32)

    cache["call"] = call
    return call(x)


@host_op("ai.onnx.ml:TreeEnsembleClassifier")
def classifier(
    x: Array, *, post_transform: str, exact: bool, threads: int | None, cache: dict[str, Any],
    classlabels_int64s: Sequence[int] | None, classlabels_strings: Sequence[str] | None, **given: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """The label of each row, and [rows, classes] scores."""
    labels = array_of(classlabels_int64s or classlabels_strings or (0, 1))
    forest, base = _classic(given, "class", max(2, len(labels))), _given_base(given)
    two, positive = len(labels) <= 2, forest.positive
    known = bool(
        (forest.layout is not None and forest.layout.covers)
        or (two and not forest.ever[1])
        or (not two and len(base))
    )

    kernel, ending = forest.kernel, None
    if known and not exact and kernel is not None:
        ending = _ending_of(post_transform, base, len(labels), bool(forest.ever[1]), positive)
    if kernel is not None and ending is not None:

        def scored(x: Array) -> tuple[Array, Array]:
            places, made = kernel.scores(forest.fit(x), ending, threads)
            return labels[places], made

        cache["call"], cache["silent"] = scored, True
        return scored(x)

    def call(x: Array) -> tuple[Array, Array]:
        made, hit = forest.said(x, "SUM", exact, threads, not known)
        if two:
            second: Any = bool(forest.ever[1]) if hit is None else hit[:, 1]
            place, made = _of_two(made, second, base, post_transform, positive)
        else:
            made = made + base if len(base) else made
            spoken = made if known or hit is None else np.where(hit, made, -np.inf)
            place = spoken.argmax(1)  # of classes that a leaf speaks of
            made = finished(made, post_transform)
        return labels[place], made if exact else made.astype(np.float32)

    cache["call"] = call
    return call(x)


def _ending_of(transform: str, base: Array, labels: int, second: bool, positive: bool) -> Ending | None:
    """What the kernel makes of the sums of classes, where each row has all of them, or of two the first
    alone; None if it does not know the form.
    """
    if transform not in Transform.__members__:
        return None
    applied, targets = Transform[transform], max(2, labels)
    if labels > 2:
        return Ending(Finish.CLASSES, applied, base, targets) if len(base) in (0, labels) else None
    if len(base) > 1:
        return None
    if second:
        return Ending(Finish.CLASSES, applied, base, targets, Chosen.ABOVE)
    rule = Other.REST if positive and applied != Transform.LOGISTIC else Other.OPPOSITE
    if applied != Transform.LOGISTIC:  # of one score no other transformation is taken
        applied = Transform.NONE
    return Ending(Finish.LONE, applied, base, targets, rule, 0.5 if positive else 0.0)


def _of_two(made: Array, second: Any, base: Array, transform: str, positive: bool) -> tuple[Array, Array]:
    """Place of the label and scores [rows, 2], as onnxruntime reads what ONNX leaves open of two classes: a
    second class that no leaf speaks of is the first one's opposite. ``second``: where one does, or whether.
    """
    if len(base):
        made[:, 0] += base[0]
    if len(base) == 2:
        turned = base[1] + made[:, 0] - base[0]
        opposite = np.stack([-turned, turned], 1)
        made = np.where(np.reshape(second, (-1, 1)), opposite, made)
    everywhere = second is True or (second is not False and bool(second.all()))
    nowhere = second is False
    weight = made[:, 1] if everywhere else made[:, 0] if nowhere else np.where(second, made[:, 1], made[:, 0])
    place = (weight > (0.5 if positive else 0)).view(np.int8)
    if len(base) == 2 or everywhere:
        return place, finished(made, transform)
    lone = made[:, 0]
    alone = np.empty_like(made)
    alone[:, 1] = lone
    if positive and transform != "LOGISTIC":
        np.subtract(1, lone, alone[:, 0])
    else:
        np.negative(lone, alone[:, 0])
    alone = finished(alone, transform) if transform == "LOGISTIC" else alone
    if nowhere:
        return place, alone
    return place, np.where(np.reshape(second, (-1, 1)), finished(made, transform), alone)


@host_op("ai.onnx.ml:TreeEnsemble")
def ensemble(
    x: Array, *, aggregate_function: int, post_transform: int, n_targets: int, exact: bool,
    threads: int | None, cache: dict[str, Any], **given: Any,
) -> Array:  # fmt: skip
    """[rows, targets], in the type of ``x``."""
    forest = _modern(given, n_targets)
    names = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    if not 0 <= aggregate_function < len(AGGREGATES) or not 0 <= post_transform < len(names):
        raise SpecError(f"aggregate function {aggregate_function}, post-transform {post_transform}")

    how, transform = AGGREGATES[aggregate_function], names[post_transform]
    kernel = forest.kernel
    if how == "SUM" and transform == "NONE" and not exact and kernel is not None and x.dtype == np.float64:
        cache["call"], cache["silent"] = lambda x: kernel.sums(forest.fit(x), how, threads, False)[0], True
        return cache["call"](x)

    def call(x: Array) -> Array:
        made, _ = forest.said(x, how, exact, threads)
        made = finished(made, transform)
        return made if exact else made.astype(x.dtype, copy=False)

    cache["call"] = call
    return call(x)


def _modern(given: dict[str, Any], targets: int) -> Forest:
    """The forest of TreeEnsemble: leaves are numbered apart from nodes, and stand behind them here."""
    features = np.asarray(given["nodes_featureids"], np.int64)
    nodes, ids = len(features), np.asarray(given["leaf_targetids"], np.int64)
    weights = given["leaf_weights"]
    leaves = len(ids)
    if leaves != len(weights) or (leaves and (ids.min() < 0 or ids.max() >= targets)):
        raise SpecError(f"{leaves} leaf_targetids, {len(weights)} leaf_weights, {targets} targets")
    behind = np.full(leaves, -1)

    def child(way: str) -> Array:
        to = np.asarray(given[f"nodes_{way}nodeids"], np.int64)
        is_leaf = np.asarray(given[f"nodes_{way}leafs"], np.int64).astype(bool)
        if len(to) != nodes or len(is_leaf) != nodes:
            raise SpecError(f"nodes_{way}nodeids has {len(to)} entries for {nodes} nodes")
        return np.concatenate([np.where(is_leaf, to + nodes, to), behind])

    mode = np.asarray(given["nodes_modes"], np.int64)
    missing = given.get("nodes_missing_value_tracks_true")
    missing = np.zeros(nodes) if missing is None else np.asarray(missing)
    if len(mode) != nodes or len(missing) != nodes or (mode >= len(MODES)).any():
        raise SpecError(f"{len(mode)} nodes_modes for {nodes} nodes, or one of no known kind")
    splits = given["nodes_splits"]
    if len(splits) != nodes:
        raise SpecError(f"nodes_splits has {len(splits)} entries for {nodes} nodes")
    table, hit = np.zeros((leaves, targets)), np.zeros((leaves, targets), bool)
    table[np.arange(leaves), ids] = weights
    hit[np.arange(leaves), ids] = True
    sets = given.get("membership_values")
    members: dict[int, Array] = {}
    if sets is not None:
        ends = np.flatnonzero(np.isnan(sets))
        parts = [p[~np.isnan(p)] for p in np.split(sets, ends)]
        members = dict(
            zip(np.flatnonzero(mode == MODES.index("BRANCH_MEMBER")).tolist(), parts, strict=False)
        )
    return Forest(
        np.asarray(given["tree_roots"], np.int64), np.concatenate([features, behind * 0]),
        np.concatenate([splits, np.zeros(leaves, splits.dtype)]), np.concatenate([mode, behind]),
        child("true"), child("false"), np.concatenate([missing, behind * 0]).astype(bool),
        np.concatenate([np.zeros(nodes, np.int64), np.arange(leaves)]), table, hit, members,
    )  # fmt: skip
