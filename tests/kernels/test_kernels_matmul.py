"""Products of two computed matrices: packing from any layout, broadcasting, long sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import TINY, Array
from support.graphs import Graph, one_op
from support.kernel_checks import ran
from support.noise import noise

from bslite import reference
from bslite.kernels.contracts.cpu.gemm import PackPanels
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.spec import ModelSpec


def check(spec: ModelSpec, *inputs: Array, terms: int) -> None:
    """Each element within the bound for a sum of ``terms`` roundings, and well within if they are many."""
    exact = reference.run(spec, list(inputs), np.float64)[0]
    size = reference.run(spec, [np.abs(x) for x in inputs], np.float64)[0]
    error = np.abs(ran(spec, *inputs) - exact)
    assert (error <= min(terms + 1, 40) * TINY * size).all()


@pytest.mark.parametrize("n", [1, 3, 15, 16, 17, 33, 64, 65, 130])
@pytest.mark.parametrize("m", [1, 2, 14, 37])
def test_sizes(m: int, n: int) -> None:
    for k in (1, 5, 16, 33, 300):
        check(one_op("matmul", (m, k), (k, n)), noise(m, k), noise(k, n, seed=1), terms=k)


@pytest.mark.parametrize("m", [251, 499])
def test_a_prime_number_of_rows(m: int) -> None:
    """Lines of rows that are equal but for the last, and an activation applied once."""
    graph = Graph()
    product = graph("matmul", "product", graph.input("x", (m, 19)), graph.input("w", (19, 21)))
    spec = graph.build(graph("silu", "act", product))
    inputs = [noise(m, 19), noise(19, 21, seed=1)]
    exact = reference.run(spec, inputs, np.float64)[0]
    assert np.abs(ran(spec, *inputs) - exact).max() < 40 * TINY * np.abs(exact).max()
    check(one_op("matmul", (m, 19), (19, 21)), *inputs, terms=19)


@pytest.mark.parametrize("k", [1024, 1025, 1031, 2048, 5000])
def test_long_sums(k: int) -> None:
    check(one_op("matmul", (3, k), (k, 20)), noise(3, k), noise(k, 20, seed=1), terms=k)


BATCH = st.lists(st.integers(1, 3), max_size=3)


@settings(deadline=None, max_examples=80)
@given(BATCH, st.data(), st.tuples(*[st.integers(1, 20)] * 3))
def test_broadcasting(batch: list[int], data: st.DataObject, mkn: tuple[int, int, int]) -> None:
    m, k, n = mkn
    shapes = []
    for tail in ((m, k), (k, n)):
        lead = [1 if data.draw(st.booleans()) else size for size in batch]
        shapes.append((*lead[data.draw(st.integers(0, len(lead))) :], *tail))
    check(one_op("matmul", *shapes), noise(*shapes[0]), noise(*shapes[1], seed=1), terms=k)


@pytest.mark.parametrize("images", [1, 2, 20])
@pytest.mark.parametrize(("tokens", "heads", "width"), [(5, 3, 8), (50, 4, 16), (33, 2, 20)])
def test_attention(images: int, tokens: int, heads: int, width: int) -> None:
    """Heads split off by permuting, keys transposed; 20 images would make more steps than are worth it."""
    graph = Graph()
    split = {}
    for name, order in {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}.items():
        value = graph.input(f"{name}0", (images, tokens, heads * width))
        value = graph("reshape", f"{name} heads", value, shape=(images, tokens, heads, width))
        split[name] = graph("permute", name, value, order=order)
    scores = graph("matmul", "scores", split["q"], split["k"])
    value = graph("matmul", "mixed", graph("softmax", "attention", scores), split["v"])
    value = graph("permute", "tokens first", value, order=(0, 2, 1, 3))
    spec = graph.build(graph("reshape", "joined", value, shape=(images, tokens, heads * width)))
    inputs = [noise(images, tokens, heads * width, seed=i) for i in range(3)]
    exact = reference.run(spec, inputs, np.float64)[0]
    assert np.abs(ran(spec, *inputs) - exact).max() < 1e-5


def test_operands_with_steps() -> None:
    """Every second column and row: neither operand has a contiguous axis."""
    graph = Graph()
    values = []
    for i, shape in enumerate([(4, 10, 66), (4, 66, 70)]):
        value = graph.input(f"x{i}", shape)
        for axis in (1, 2):
            value = graph("slice", "step", value, axis=axis, step=2)
        values.append(value)
    spec = graph.build(graph("matmul", "product", *values))
    check(spec, noise(4, 10, 66), noise(4, 66, 70, seed=1), terms=33)


def test_many_batches_broadcast_both_ways() -> None:
    """More separate products than steps: copied out first."""
    a, b = noise(30, 1, 5, 7), noise(1, 40, 7, 9, seed=1)
    check(one_op("matmul", a.shape, b.shape), a, b, terms=7)


def test_images_times_images() -> None:
    """The last two axes of channels-last images, into a concat and a residual."""
    graph = Graph()
    x, z = graph.input("x0", (2, 5, 6, 6)), graph.input("x1", (2, 10, 6, 6))
    y = graph("relu", "relu", x)
    joined = graph("concat", "join", graph("matmul", "product", x, y), y, axis=1)
    spec = graph.build(graph("add", "sum", joined, z))
    inputs = [noise(2, 5, 6, 6), noise(2, 10, 6, 6, seed=1)]
    assert np.abs(ran(spec, *inputs) - reference.run(spec, inputs, np.float64)[0]).max() < 1e-5


def test_nan_stays_in_its_row_and_column() -> None:
    a, b = noise(4, 20, 9), noise(4, 9, 35, seed=1)
    spec = one_op("matmul", a.shape, b.shape)
    clean = ran(spec, a, b)
    a[2, 3, 4], b[1, 0, 34] = np.nan, np.nan
    got = ran(spec, a, b)
    touched = np.zeros(clean.shape, bool)
    touched[2, 3], touched[1, :, 34] = True, True
    assert np.isnan(got[touched]).all()
    np.testing.assert_array_equal(got[~touched], clean[~touched])


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 300, 130), (2, 33, 65), (5, 1100, 40), (16, 257, 1000), (16, 2100, 10), (37, 130, 47), (1, 2, 3)],
)
def test_a_matrix_that_is_not_packed(m: int, k: int, n: int, by_columns: bool) -> None:
    """It gives the bits of a weight that is a constant; its rows are a part of longer ones."""
    graph = Graph()
    x = graph.input("x", (m, k))
    wide, bias = noise(n, k + 3, seed=1) if by_columns else noise(k, n + 3, seed=1), noise(n, seed=2)
    inputs = [noise(m, k), wide]
    w = graph("slice", "part", graph.input("wide", wide.shape), axis=1, start=1, stop=wide.shape[1] - 2)
    part = wide[:, 1:-2]
    if by_columns:
        y, inputs = graph("linear_given", "y", x, w, graph.input("bias", (n,))), [*inputs, bias]
        packed = one_op("linear", (m, k), weight=np.ascontiguousarray(part), bias=bias)
    else:
        y = graph("matmul", "y", x, w)
        packed = one_op("linear", (m, k), weight=np.ascontiguousarray(part.T))
    spec = graph.build(y)
    plan = build_plan(spec, [i.shape for i in inputs], Machine())
    assert [type(step.record).__name__ for step in plan.steps] == ["Unpacked"]
    np.testing.assert_array_equal(ran(spec, *inputs), ran(packed, inputs[0]), strict=True)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 300, 40), (3, 33, 65), (16, 70, 17), (5, 1100, 40)])
@pytest.mark.parametrize("heads", [1, 3])
def test_matrices_that_are_not_packed(m: int, k: int, n: int, heads: int) -> None:
    """Each has the bits of a weight that is a constant; heads lie beside one another, images apart."""
    graph = Graph()
    x, w = noise(2, heads, m, k), noise(2, k, heads * n, seed=1)
    left, right = graph.input("x", x.shape), graph.input("w", w.shape)
    right = graph("reshape", "split", right, shape=(2, k, heads, n))
    right = graph("permute", "heads", right, order=(0, 2, 1, 3))
    spec = graph.build(graph("matmul", "y", left, right))
    plan = build_plan(simplify(spec), [x.shape, w.shape], Machine())
    assert [type(step.record).__name__ for step in plan.steps] == ["Unpacked"]
    got = ran(spec, x, w)
    for image in range(2):
        for head in range(heads):
            part = np.ascontiguousarray(w[image, :, head * n : (head + 1) * n].T)
            alone = ran(one_op("linear", (m, k), weight=part), x[image, head])
            np.testing.assert_array_equal(got[image, head], alone, strict=True)


def by_turned(images: int, m: int, k: int, n: int, activation: str = "") -> ModelSpec:
    """``x [images, m, k]`` times ``w [images, n, k]``, turned."""
    graph = Graph()
    x, w = graph.input("x", (images, m, k)), graph.input("w", (images, n, k))
    y = graph("matmul", "y", x, graph("permute", "turned", w, order=(0, 2, 1)))
    return graph.build(graph(activation, "act", y) if activation else y)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_columns(n: int) -> None:
    """Lanes run along the sums; a matrix alone has the bits of one in a batch."""
    for m, k in ((1, 17), (9, 64), (37, 100), (5, 1030)):
        x, w = noise(3, m, k), noise(3, k, n, seed=1)
        check(one_op("matmul", x.shape, w.shape), x, w, terms=k)
        rows, spec = np.ascontiguousarray(w.swapaxes(1, 2)), by_turned(3, m, k, n, "sigmoid")
        got, exact = ran(spec, x, rows), reference.run(spec, [x, rows], np.float64)[0]
        assert np.abs(got - exact).max() < 40 * TINY * max(1.0, np.abs(x @ w).max())
        alone = ran(by_turned(1, m, k, n, "sigmoid"), x[:1], rows[:1])
        np.testing.assert_array_equal(alone, got[:1], strict=True)


def test_a_vector_times_rows() -> None:
    """The rows of the second matrix, turned, are read as they lie; the vector alone is packed."""
    for images, k, n in ((1, 64, 197), (6, 40, 33), (20, 19, 7)):
        x, w, spec = noise(images, 1, k), noise(images, n, k, seed=1), by_turned(images, 1, k, n)
        check(spec, x, w, terms=k)
        plan = build_plan(simplify(spec), [x.shape, w.shape], Machine(lanes=16), layerwise=True)
        packed = [s.record.matrices for s in plan.steps if isinstance(s.record, PackPanels)]
        assert [(m.rows, m.cols) for m in packed] == [(1, k)]


@pytest.mark.parametrize("op", ["linear", "matmul"])
def test_the_callers_rows_a_page_apart(op: str) -> None:
    """They are copied out of one set of L1; the bits are those of rows that lie apart in memory."""
    for m, k, n, copied in (
        (40, 1024, 300, True),
        (9, 512, 256, True),
        (8, 1024, 300, False),
        (40, 512, 255, False),
    ):
        wide = noise(m, k + 16)
        x, w = np.ascontiguousarray(wide[:, :k]), noise(k, n, seed=1)
        if op == "linear":
            spec, others = one_op("linear", x, weight=np.ascontiguousarray(w.T)), []
        else:
            spec, others = one_op("matmul", x.shape, w.shape), [w]
        plan = build_plan(spec, [v.shape for v in (x, *others)], Machine())
        assert ("copy" in {step.kernel for step in plan.steps}) == copied, (m, k, n)
        np.testing.assert_array_equal(ran(spec, x, *others), ran(spec, wide[:, :k], *others), strict=True)


def test_when_a_matrix_is_packed() -> None:
    """Where there are many rows, and where a matrix in cache is narrow for the threads there are."""

    def kernels(m: int, k: int, n: int, threads: int = 2) -> list[str]:
        plan = build_plan(one_op("matmul", (m, k), (k, n)), [(m, k), (k, n)], Machine(threads=threads))
        names = [type(step.record).__name__ for step in plan.steps]
        return names[names[0] == "Copy" :]  # rows a page apart

    assert kernels(16, 4096, 25088) == kernels(64, 768, 3072) == ["Unpacked"]
    assert kernels(1024, 768, 3072) == kernels(40, 4096, 33, threads=8) == ["PackPanels", "Conv"]
