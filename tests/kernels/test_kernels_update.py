"""Gradients of filters: sizes that are cut in every way, any layout of what they read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.check import rel_l2
from support.noise import noise

import bslite
from bslite import reference
from bslite.engines.cpu.detect import detect
from bslite.plan import build_plan
from bslite.spec import GraphBuilder, ModelSpec


def update(x: tuple[int, ...], g: tuple[int, ...], **attrs: object) -> ModelSpec:
    graph = GraphBuilder("update")
    names = graph.input("x", x), graph.input("g", g)
    return graph.build(graph.add("conv2d_grad_weight", "dw", *names, **attrs))


@pytest.mark.parametrize(
    ("x", "g", "attrs"),
    [
        ((3, 40, 28, 28), (3, 70, 28, 28), {"kernel": 3, "before": 1}),
        ((2, 24, 30, 31), (2, 33, 15, 16), {"kernel": 5, "before": 2, "stride": 2}),
        ((2, 512, 9, 9), (2, 48, 9, 9), {"kernel": 1}),
        ((1, 3, 64, 600), (1, 16, 64, 600), {"kernel": 3, "before": 1}),
        ((5, 48, 30, 29), (5, 48, 30, 29), {"kernel": 7, "before": 3, "groups": 48}),
        ((1, 20, 3, 70), (1, 20, 3, 61), {"kernel": (1, 19), "groups": 20, "before": (0, 4)}),
    ],
)
def test_bits_do_not_depend_on_threads(x: tuple[int, ...], g: tuple[int, ...], attrs: dict) -> None:
    spec, taken = update(x, g, **attrs), [noise(*x), noise(*g, seed=1)]
    one, two = (bslite.run(spec, taken, threads=t) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    assert rel_l2(one, reference.run(spec, taken)[0]) < 1e-6


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    groups = draw(1, 3)
    n, c, k = draw(1, 3), groups * draw(1, 20), groups * draw(1, 20)
    x, g = (n, c, draw(1, 12), draw(1, 40)), (n, k, draw(1, 12), draw(1, 40))
    attrs = {name: (draw(1, most), draw(1, most)) for name, most in [("kernel", 5), ("stride", 3)]}
    attrs |= {"dilation": (draw(1, 3), draw(1, 3)), "before": (draw(0, 6), draw(0, 6))}
    spec, taken = update(x, g, groups=groups, **attrs), [noise(*x), noise(*g, seed=1)]
    made, exact = bslite.run(spec, taken), reference.run(spec, taken)[0]
    assert np.abs(made - exact).max() <= 2e-6 * max(1.0, np.abs(exact).max())


def test_in_other_layouts() -> None:
    """Permuted and sliced operands; the gradient is read by a permutation and goes into a concat."""
    graph = GraphBuilder("layouts")
    x = graph.add("permute", "turned", graph.input("x", (2, 6, 7, 18)), order=(0, 3, 1, 2))
    g = graph.add("slice", "cut", graph.input("g", (2, 15, 6, 7)), axis=1, start=2, stop=12)
    made = graph.add("conv2d_grad_weight", "dw", x, g, kernel=3, before=1)
    turned = graph.add("permute", "last", made, order=(2, 3, 1, 0))
    twice = graph.add("concat", "twice", turned, graph.add("neg", "minus", turned), axis=3)
    spec, taken = graph.build(twice, made), [noise(2, 6, 7, 18), noise(2, 15, 6, 7, seed=1)]
    for got, exact in zip(bslite.run(spec, taken), reference.run(spec, taken), strict=True):
        assert rel_l2(got, exact) < 1e-6


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        (1000, 96, 33), (2051, 20, 70), (4096, 512, 64), (513, 2, 9), (300, 17, 1), (5, 90, 90, 32),
        (2, 3, 70, 20, 65), (3, 1500, 64, 64), (7, 16, 16, 16), (2, 600, 512, 3), (4, 2, 9, 2, 1),
    ],
)  # fmt: skip
def test_products_of_rows_read_both_as_they_lie(sizes: tuple[int, ...], turned: bool) -> None:
    """Gradients of weights of linear layers, of keys and values: neither a copy nor panels; the same bits
    by any threads, alone or in a batch.
    """
    *batch, rows, left, right = sizes
    spec = product_of_rows(batch, rows, left, right, turned)
    taken = [noise(*batch, rows, left), noise(*batch, rows, right, seed=1)]
    one, two = (bslite.run(spec, taken, threads=t) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    assert rel_l2(one, reference.run(spec, taken)[0]) < 6e-7
    made_by = [step.kernel for step in build_plan(spec, [x.shape for x in taken], detect(2)).steps]
    assert made_by[0] == "weight_update"
    assert "pack_panels" not in made_by
    if len(batch) == 1:
        alone = product_of_rows([1], rows, left, right, turned)
        first = bslite.run(alone, [x[:1] for x in taken])
        assert first.tobytes() == one[:1].tobytes()


def product_of_rows(batch: list[int], rows: int, left: int, right: int, turned: bool) -> ModelSpec:
    """``x^T g``, or the transpose of that."""
    graph, n = GraphBuilder("rows"), len(batch)
    swapped = (*range(n), n + 1, n)
    x, g = graph.input("x", (*batch, rows, left)), graph.input("g", (*batch, rows, right))
    made = graph.add("matmul", "made", graph.add("permute", "t", x, order=swapped), g)
    return graph.build(graph.add("permute", "back", made, order=swapped) if turned else made)


@pytest.mark.parametrize("batch", [1, 2, 20])
def test_products_of_rows_in_any_batch(batch: int) -> None:
    """Batch axes that do not merge, few and many, and an operand that all share: the bits of one alone."""

    def spec(n: int) -> ModelSpec:
        graph = GraphBuilder("heads")
        s, q = graph.input("s", (n, 2, 700, 700)), graph.input("q", (n, 700, 2, 32))
        heads = graph.add("permute", "heads", q, order=(0, 2, 1, 3))
        turned = graph.add("permute", "turned", s, order=(0, 1, 3, 2))
        own = graph.add("matmul", "own", turned, heads)
        shared = graph.input("shared", (1, 1, 700, 40))
        return graph.build(own, graph.add("matmul", "all", turned, shared))

    s, q = noise(20, 2, 700, 700), noise(20, 700, 2, 32, seed=1)
    shared = noise(1, 1, 700, 40, seed=2)
    made = bslite.run(spec(batch), [s[:batch], q[:batch], shared])
    alone = bslite.run(spec(1), [s[:1], q[:1], shared])
    for got, one in zip(made, alone, strict=True):
        assert got[:1].tobytes() == one.tobytes()
    for got, exact in zip(made, reference.run(spec(batch), [s[:batch], q[:batch], shared]), strict=True):
        assert rel_l2(got, exact) < 6e-7
