"""Computed places on a GPU: what is out of range, updates that meet, ties, NaN, rows of any length."""

from typing import Any

import numpy as np
import pytest
from support.check import Array, assert_three_way, same_specials
from support.gpu_cases import spec_of
from support.noise import noise
from support.torch_oracle import torch_output

import bslite
from bslite import ops, reference
from bslite.engines.cuda import engine
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.errors import BsliteError
from bslite.explore.gpu import GpuMachine
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.ops.scatter import BLOCKS
from bslite.plan.cuda.tuning import DEFAULT, Tuning

pytestmark = pytest.mark.simulator


def on_gpu(op: str, *inputs: Array, **attrs: Any) -> Array:
    """From the engine."""
    made: Array = bslite.run(spec_of(op, *inputs, **attrs), list(inputs), backend="cuda")
    return made


def expected(op: str, *inputs: Array, **attrs: Any) -> Array:
    """From the reference, in the dtypes given."""
    return reference.run(spec_of(op, *inputs, **attrs), list(inputs), np.float32)[0]


def same_bits(op: str, *inputs: Array, tuning: Tuning = DEFAULT, **attrs: Any) -> bslite.ModelSpec:
    """As on the CPU, which takes updates one after the other."""
    spec = spec_of(op, *inputs, **attrs)
    (got,) = engine.run(spec, list(inputs), tuning=tuning)
    assert got.tobytes() == bslite.run(spec, list(inputs), backend="cpu").tobytes()
    return spec


X = np.arange(20, dtype=np.float32).reshape(4, 5)


@pytest.mark.parametrize("wrong", [4, -5])
@pytest.mark.parametrize(
    ("op", "indices", "updates", "attrs"),
    [
        ("gather_elements", [[0, 1, 2, 3, 0]], None, {"axis": 0}),
        ("gather_nd", [[0], [1]], None, {}),
        ("gather_nd", [[0, 1], [1, 4]], None, {}),
        ("scatter_elements", [[0, 1, 2, 3, 0]], np.zeros((1, 5), np.float32), {"axis": 0}),
        ("scatter_nd", [[0], [1]], np.zeros((2, 5), np.float32), {"reduction": "add"}),
        ("scatter_nd", [[0, 1], [1, 4]], np.zeros(2, np.float32), {}),
        ("one_hot", [0, 1], None, {"depth": 4, "strict": True}),
        ("gather", [3, -4, 0], None, {"axis": 0}),
    ],
)
def test_an_index_out_of_range_is_an_error(
    op: str, indices: Any, updates: Array | None, attrs: dict[str, Any], wrong: int
) -> None:
    places = np.array(indices, np.int64)
    rest = [places] if updates is None else [places, updates]
    inputs = rest if op == "one_hot" else [X, *rest]
    spec = spec_of(op, *inputs, **attrs)
    good = bslite.run(spec, inputs, backend="cuda")
    np.testing.assert_array_equal(good, expected(op, *inputs, **attrs))
    bad = places.copy()
    bad[(0,) * bad.ndim] = wrong
    with pytest.raises(BsliteError, match=f"'y': index {wrong} is out of range for (axis|axes|depth)"):
        bslite.run(spec, [bad if x is places else x for x in inputs], backend="cuda")
    assert bslite.run(spec, inputs, backend="cuda").tobytes() == good.tobytes()


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("shape", "updates", "axis"),
    [
        ((3,), (300,), 0), ((150,), (200,), 0), ((40, 3), (150, 2), 0), ((2, 40), (2, 90), 1),
        ((5, 70), (9, 70), 0),
    ],
    ids=["few cells", "many cells", "columns", "rows", "many lines"],
)  # fmt: skip
def test_updates_that_meet_go_in_order(
    shape: tuple[int, ...], updates: tuple[int, ...], axis: int, reduction: str
) -> None:
    rng = np.random.default_rng(len(reduction) + shape[0])
    x, u = (rng.standard_normal(s).astype(np.float32) for s in (shape, updates))
    indices = rng.integers(-shape[axis], shape[axis], updates)
    for given in ([x, indices, u], [(9 * x).astype(np.int64), indices, u.astype(np.int64)]):
        same_bits("scatter_elements", *given, axis=axis, reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_slices_that_meet_go_in_order(reduction: str) -> None:
    rng = np.random.default_rng(1)
    x, u = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4, 5), (70, 5)))
    same_bits("scatter_nd", x, rng.integers(-3, 3, (70, 2)), u, reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
@pytest.mark.parametrize("op", ["scatter_elements", "scatter_nd"])
def test_many_updates_are_sorted(op: str, reduction: str) -> None:
    """By row, each row's in their own order: the same bits again. Tiles of 64, so that there are several."""
    tuning = Tuning(sorted_updates=100, sorted_each=2)
    rng = np.random.default_rng(7)
    shape, cells = ((1, 40), (1, 150)) if op == "scatter_elements" else ((5, 8, 3), (150, 3))
    places = rng.integers(-40, 40, cells) if op == "scatter_elements" else rng.integers(-5, 5, (150, 2))
    attrs = {"axis": 1} if op == "scatter_elements" else {}
    x, u = (rng.standard_normal(s).astype(np.float32) for s in (shape, cells))
    for given in ([x, places, u], [(9 * x).astype(np.int64), places, u.astype(np.int64)]):
        spec = same_bits(op, *given, tuning=tuning, reduction=reduction, **attrs)
        plan = build_plan(spec, [v.shape for v in given], GpuMachine(), tuning=tuning)
        assert "scatter_sorted" in {s.kernel for s in plan.steps}
        wrong = places.copy()
        wrong[-1, 0] = 99
        with pytest.raises(BsliteError, match="'y': index 99 is out of range"):
            engine.run(spec, [given[0], wrong, given[2]], tuning=tuning)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_updates_of_nan_and_infinities(reduction: str) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, 0, 2, np.inf, 3], np.float32)
    u = np.array([np.nan, 1, -np.inf, np.inf, -np.inf, np.inf, 1, np.inf], np.float32)
    got = on_gpu("scatter_elements", x, np.arange(8), u, axis=0, reduction=reduction)
    with np.errstate(invalid="ignore"):
        want = expected("scatter_elements", x, np.arange(8), u, axis=0, reduction=reduction)
    assert same_specials(got, want)
    np.testing.assert_array_equal(got, want)


def test_integers_that_do_not_fit_are_errors() -> None:
    big = np.array([2**31 - 1, 1], np.int64)
    with pytest.raises(BsliteError, match="'y': 2147483648 is beyond the 32 bits"):
        on_gpu("scatter_elements", big, np.array([0]), np.array([1]), axis=0, reduction="add")


def test_what_few_lines_are_shared_by() -> None:
    """The cells of a long line have owners of their own: as many as a GPU holds, and each its share."""
    x, indices = np.zeros(10**6, np.float32), np.zeros(1000, np.int64)
    spec = spec_of("scatter_elements", x, indices, x[:1000], axis=0)
    plan = build_plan(spec, [x.shape, (1000,), (1000,)], GpuMachine())
    (step,) = (s for s in plan.steps if s.kernel == "scatter")
    owners = step.grid[0] * step.grid[1] * step.block[0]
    assert BLOCKS * 132 >= step.grid[1] > 132
    assert owners * step.record.numbers()["share"] >= 10**6 > (owners - 256) * step.record.numbers()["share"]


SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 1.0, -1.0, np.nan, 2.0**-140], np.float32)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("length", [1, 10, 32, 33, 129, 600])
def test_ties_and_nan_in_order(length: int, largest: bool) -> None:
    """Equal values, zeros of both signs and NaN among them, in the order of their places."""
    x = np.random.default_rng(length).choice(SPECIAL, (3, length))
    for k in sorted({1, (length + 1) // 2, length}):
        got = on_gpu("topk", x, k=k, axis=1, largest=largest)
        np.testing.assert_array_equal(got, expected("topk", x, k=k, axis=1, largest=largest))


@pytest.mark.parametrize("k", [1, 5, 100, 700])
def test_runs_are_merged_in_rounds(k: int) -> None:
    """Eleven tiles of a row, four at a time, then two; the last of them less than full."""
    tuning = Tuning(sorted_each=2, merged_runs=((64, 4),))
    x = np.random.default_rng(k).integers(-50, 50, (2, 701))
    x[1, :3] = 2**31 - 1, -(2**31), 2**31 - 1
    for largest in (True, False):
        (got,) = engine.run(spec_of("topk", x, k=k, axis=1, largest=largest), [x], tuning=tuning)
        np.testing.assert_array_equal(got, expected("topk", x, k=k, axis=1, largest=largest))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("axes", [2, 3])
def test_positions_that_are_none_or_far(axes: int, padding: str, mode: str) -> None:
    if axes == 3 and mode == "cubic":
        pytest.skip("there are no cubic volumes")
    rng = np.random.default_rng(axes)
    x = rng.standard_normal((1, 3, *(4, 5, 3)[:axes])).astype(np.float32)
    x[0, 0].flat[:2] = np.nan, np.inf
    grid = rng.uniform(-1.5, 1.5, (1, *(1,) * (axes - 1), 9, axes)).astype(np.float32)
    for i, special in enumerate((np.nan, np.inf, -np.inf, 1e30, -7.25)):
        grid[..., i, i % axes] = special
    for align in (False, True):
        attrs = {"mode": mode, "padding": padding, "align_corners": align}
        with np.errstate(invalid="ignore"):
            exact = reference.run(spec_of("grid_sample", x, grid, **attrs), [x, grid], np.float64)[0]
        peer = torch_output(ops.get("grid_sample"), [x, grid], {}, attrs, np.float32)
        assert_three_way(on_gpu("grid_sample", x, grid, **attrs), peer, exact)


def test_even_rows_of_a_layers_result_are_gathered_in_pairs() -> None:
    graph = bslite.GraphBuilder("net")
    x, at = graph.input("x", (5, 6)), graph.input("at", (4,), dtype="int64")
    spec = graph.build(graph.add("gather", "picked", graph.add("relu", "r", x), at, axis=0))
    plan = build_plan(spec, [(5, 6), (4,)], SimulatedDriver.machine)
    assert "gather_pairs" in [step.kernel for step in plan.steps]
    given = [noise(5, 6), np.array([4, -5, 0, 2])]
    np.testing.assert_array_equal(bslite.run(spec, given, backend="cuda"), np.maximum(given[0], 0)[given[1]])
