"""The kernel of tree ensembles against the same in NumPy: the same bits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from bslite.errors import InputError, SpecError
from bslite.onnx.host.forest import BLOCK, EQ, GT, GTE, LEAST, LEQ, LT, MEMBER, NEQ, laid_out
from bslite.onnx.host.sets import MOST_WORDS, as_bits
from bslite.onnx.host.trees import MODES, Forest

FEATURES = 6
DTYPES = ("float32", "float64", "int64", "float16")


def grown(
    modes: Sequence[int], trees: int = 5, targets: int = 1, each: bool = False, seed: int = 0,
    depth: int = 7, whole: bool = False,
) -> Forest:  # fmt: skip
    """Unbalanced random trees whose splits are among the values that `rows` makes; some are special.

    ``whole``: sets are of integers from 0 on.
    """
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {n: [] for n in ("feature", "split", "mode", "true", "false", "missing")}
    roots: list[int] = []
    members: dict[int, Any] = {}

    def grow(depth: int) -> int:
        number = len(columns["mode"])
        inner = depth > 0 and rng.random() < 0.85
        mode = int(rng.choice(modes)) if inner else -1
        split = float(rng.choice([*rng.integers(-3, 4, 6) / 2, 0.0, np.inf, -np.inf, np.nan]))
        for name, entry in zip(
            columns, (rng.integers(FEATURES), split, mode, 0, 0, rng.random() < 0.4), strict=True
        ):
            columns[name].append(entry)
        if mode == MEMBER:
            members[number] = rng.integers(-3, 4, int(rng.integers(4))) / 2
        if whole and mode in (EQ, NEQ, MEMBER):
            columns["split"][number] = float(rng.integers(4))
            members[number] = rng.integers(0, 4, int(rng.integers(4))).astype(float)
        if inner:
            columns["true"][number] = grow(depth - 1)
            columns["false"][number] = grow(depth - 1)
        return number

    for _ in range(trees):
        roots.append(grow(depth))
    kinds = {"split": np.float32, "missing": bool}
    arrays = {n: np.array(c, kinds.get(n, np.int64)) for n, c in columns.items()}
    ends = np.flatnonzero(arrays["mode"] < 0)
    leaves = np.zeros(len(arrays["mode"]), np.int64)
    leaves[ends] = np.arange(len(ends))
    hit = rng.random((len(ends), targets)) < (1 if each else 0.5)
    weights = np.where(hit, rng.normal(size=hit.shape), 0)
    return Forest(
        np.array(roots), arrays["feature"], arrays["split"], arrays["mode"], arrays["true"], arrays["false"],
        arrays["missing"], leaves, weights, hit, members,
    )  # fmt: skip


def written_out(forest: Forest) -> Forest:
    """The same trees with each set of several numbers as a chain: is it the first, else is it the second."""
    names = ("feature", "split", "mode", "true", "false", "missing")
    columns = {n: getattr(forest, n).tolist() for n in names}
    leaves = forest.leaves.tolist()
    for node, members in forest.members.items():
        if columns["mode"][node] != MEMBER or not len(members):
            continue
        values, rest = members.tolist(), columns["false"][node]
        columns["mode"][node], columns["split"][node] = EQ, values[0]
        at = node
        for value in values[1:]:
            new = len(columns["mode"])
            for name, column in columns.items():
                column.append(value if name == "split" else column[node])
            leaves.append(0)
            columns["false"][at], at = new, new
        columns["false"][at] = rest
    arrays = {n: np.array(c, getattr(forest, n).dtype) for n, c in columns.items()}
    members = {n: m for n, m in forest.members.items() if not len(m)}
    return replace(forest, **arrays, leaves=np.array(leaves), members=members)


def rows(count: int, dtype: str, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, (count, FEATURES)) / 2
    if dtype.startswith("float"):
        odd = rng.random(x.shape)
        x[odd < 0.1], x[odd > 0.95], x[(odd > 0.9) & (odd < 0.95)] = np.nan, np.inf, -np.inf
        x[(odd > 0.85) & (odd < 0.9)] = -0.0
    return x.astype(dtype)


def agree(forest: Forest, x: Any, how: str = "SUM", threads: int | None = 1) -> None:
    want, spoken = forest.sums(x, how)
    got, hit = forest.said(x, how, False, threads, hits=True)
    assert forest.kernel is not None
    assert hit is not None
    assert got.tobytes() == want.tobytes()
    assert np.array_equal(hit, spoken)


@pytest.mark.parametrize(
    "modes", [(mode,) for mode in range(len(MODES))] + [(LEQ, GT), tuple(range(7))], ids=str
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_modes(modes: tuple[int, ...], dtype: str) -> None:
    forest = grown(modes, targets=2)
    for count in (1, 7, 8, 21):
        agree(forest, rows(count, dtype))


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("trees", [1, 8, 11])
def test_sums(how: str, each: bool, trees: int) -> None:
    forest = grown((LEQ, GTE), trees, 3, each)
    forest.weights[0, 0] = np.nan
    forest.hit[0, 0] = True
    x = rows(200, "float32")
    agree(forest, x, how)
    assert forest.layout is not None
    assert forest.layout.covers or not each
    assert forest.sums(x, how)[1].all() or not forest.layout.covers


@pytest.mark.parametrize("modes", [(LEQ,), (LT,), (GTE,), (GT,), (LEQ, LT, GTE, GT)], ids=str)
@pytest.mark.parametrize("depth", [0, 1, 6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(modes: tuple[int, ...], depth: int, dtype: str) -> None:
    """Trees of up to 64 leaves: rows that are no eight go split by split."""
    for each in (False, True):
        forest = grown(modes, 30, 2, each, depth=depth)
        assert forest.layout is not None
        assert ("splits" in forest.layout.arrays) == (depth > 0)
        for how in ("SUM", "MIN"):
            for count in (1, 2, 7, 15):
                agree(forest, rows(count, dtype), how)


@pytest.mark.parametrize("modes", [(MEMBER,), (EQ,), (NEQ,), (LEQ, MEMBER), (GT, EQ, NEQ, MEMBER)], ids=str)
@pytest.mark.parametrize("depth", [1, 4, 9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sets(modes: tuple[int, ...], depth: int, dtype: str) -> None:
    """Sets of categories are bits, in small trees and in large ones; chains are what they write out."""
    forest = grown(modes, 9, 2, depth=depth, whole=True)
    assert forest.layout is not None
    assert forest.layout.kind == "sets"
    assert ("splits" in forest.layout.arrays) == (depth < 9)
    chains = written_out(forest)
    assert chains.layout is not None
    assert chains.layout.kind == "sets"
    assert len(chains.mode) >= len(forest.mode)
    assert len(chains.layout.arrays["nodes"]) == len(forest.layout.arrays["nodes"])
    for count in (1, 8, 13):
        x = rows(count, dtype)
        agree(forest, x)
        agree(chains, x)
        assert chains.sums(x, "SUM")[0].tobytes() == forest.sums(x, "SUM")[0].tobytes()


def test_chains_of_any_numbers() -> None:
    forest = grown((LEQ, MEMBER), 9, 2)
    chains = written_out(forest)
    assert chains.layout is not None
    assert chains.layout.kind == "any"
    agree(chains, rows(30, "float64"))


def test_what_is_no_chain_is_left() -> None:
    """The same question of another feature, with another answer, or asked from elsewhere too."""
    forest = written_out(grown((LEQ, MEMBER), 3, whole=True))
    linked = (forest.mode == EQ) & (forest.mode[forest.false] == EQ)
    linked &= forest.true[forest.false] == forest.true
    first = int(np.flatnonzero(linked)[0])
    second, x = int(forest.false[first]), rows(50, "float32")
    for name, at, value in (
        ("feature", second, (forest.feature[first] + 1) % FEATURES),
        ("true", second, forest.roots[1]),
        ("roots", 2, second),
    ):
        other = replace(forest, **{name: getattr(forest, name).copy()})
        getattr(other, name)[at] = value
        assert other.said(x, "SUM", False, 1)[0].tobytes() == other.sums(x, "SUM")[0].tobytes()


@pytest.mark.parametrize("value", [64.0 * MOST_WORDS, 1e30, -1.0, 0.5, np.inf])
def test_sets_that_are_no_bits(value: float) -> None:
    one, two = np.array([2]), np.array([1.0, value])
    assert as_bits(np.array([3]), one, two) is None
    found = as_bits(np.array([3, 1, 3]), np.array([1, 0, 1]), np.array([64.0, 2.0]))
    assert found is not None
    assert [part.tolist() for part in found] == [[1, 0, 3], [65, 0, 65], [0, 0, 1, 4, 0]]


def test_features_beyond_a_nodes_bits() -> None:
    forest = grown((LEQ,), 1)
    forest.feature[forest.roots[0]] = 1 << 30
    assert forest.layout is None


def test_masks_hold_no_more_leaves_than_they_have_bits() -> None:
    full = _full(6), _full(7)
    assert [len(forest.weights) for forest in full] == [64, 128]
    assert ["splits" in laid_out(forest).arrays for forest in full] == [True, False]
    for forest in full:
        agree(forest, rows(23, "float64"))


def _full(depth: int) -> Forest:
    """One tree of all leaves."""
    inner = 2**depth - 1
    count = 2 * inner + 1
    place = np.arange(count)
    mode = np.where(place < inner, LEQ, -1)
    rng = np.random.default_rng(depth)
    weights = rng.normal(size=(inner + 1, 1))
    return Forest(
        np.zeros(1, np.int64), place % FEATURES, rng.integers(-3, 4, count) / 2, mode,
        np.where(mode < 0, 0, 2 * place + 1), np.where(mode < 0, 0, 2 * place + 2), place % 3 == 0,
        np.maximum(place - inner, 0), weights, np.ones(weights.shape, bool), {},
    )  # fmt: skip


@pytest.mark.parametrize(("modes", "depth"), [((LT,), 7), ((LT,), 3), ((LT, MEMBER), 5)], ids=str)
def test_any_number_of_threads_and_rows_gives_the_same_bits(modes: tuple[int, ...], depth: int) -> None:
    forest = grown(modes, 40, 2, depth=depth, whole=True)
    assert forest.layout is not None
    assert (forest.layout.abreast > BLOCK) == (depth < 7)
    for count in (BLOCK, BLOCK + 1, 2 * BLOCK + 2, 2 * LEAST // 40 + BLOCK + 3):
        x = rows(count, "float32")
        want, _ = forest.sums(x, "SUM")
        for threads in (1, 2, 3):
            assert forest.said(x, "SUM", False, threads)[0].tobytes() == want.tobytes()
    alone = [forest.said(x[i : i + 1], "SUM", False, 1)[0] for i in range(20)]
    assert np.concatenate(alone).tobytes() == want[:20].tobytes()


def test_rows_of_any_strides() -> None:
    forest = grown((LEQ,))
    agree(forest, rows(40, "float32")[::2])
    agree(forest, np.asfortranarray(rows(9, "float64")))
    agree(forest, rows(9, "float32")[:0])


def test_deep_trees_without_branches() -> None:
    """Chains: one leaf at each depth."""
    n = 50
    mode = np.array([LEQ] * n + [-1] * (n + 1))
    true = np.array([n + i for i in range(n)] + [0] * (n + 1))
    false = np.array([*range(1, n), 2 * n] + [0] * (n + 1))
    count = 2 * n + 1
    leaves = np.concatenate([np.zeros(n, np.int64), np.arange(n + 1)])
    forest = Forest(
        np.array([0]), np.arange(count) % FEATURES, np.linspace(-2, 2, count), mode, true, false,
        np.zeros(count, bool), leaves, np.arange(n + 1.0)[:, None], np.ones((n + 1, 1), bool), {},
    )  # fmt: skip
    agree(forest, rows(30, "float32"))


def test_shared_nodes_and_wrong_ones() -> None:
    forest = grown((LEQ,))
    forest.false[forest.roots[0]] = forest.true[forest.roots[0]]
    x = rows(9, "float32")
    assert forest.layout is None
    assert forest.said(x, "SUM", False, 1)[0].tobytes() == forest.sums(x, "SUM")[0].tobytes()
    circle = grown((LEQ,))
    circle.false[circle.roots[0]] = circle.true[circle.roots[0]] = circle.roots[0]
    with pytest.raises(SpecError, match="below itself"):
        circle.said(x, "SUM", False, 1)
    with pytest.raises(InputError, match="a tree asks for feature"):
        grown((LEQ,)).said(x[:, :2], "SUM", False, 1)
    with pytest.raises(InputError, match="a tree asks for feature"):
        grown((LEQ,)).said(x[0], "SUM", False, 1)
    with pytest.raises(SpecError, match="aggregate function 'MEDIAN'"):
        grown((LEQ,)).said(x, "MEDIAN", False, 1)
