"""The kernel of tree ensembles against the same in NumPy: the same bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from bslite.errors import InputError, SpecError
from bslite.onnx.host.forest import BLOCK, GT, GTE, LEAST, LEQ, LT, MEMBER, laid_out
from bslite.onnx.host.trees import MODES, Forest

FEATURES = 6
DTYPES = ("float32", "float64", "int64", "float16")


def grown(
    modes: Sequence[int], trees: int = 5, targets: int = 1, each: bool = False, seed: int = 0,
    depth: int = 7,
) -> Forest:  # fmt: skip
    """Unbalanced random trees whose splits are among the values that `rows` makes; some are special."""
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


def test_any_number_of_threads_and_rows_gives_the_same_bits() -> None:
    forest = grown((LT,), 40, 2)
    x = rows(2 * LEAST // 40 + BLOCK + 3, "float32")
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
