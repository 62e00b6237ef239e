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
    ("rows", "left", "right"), [(1000, 96, 33), (2051, 20, 70), (4096, 512, 64), (513, 1, 9), (300, 17, 1)]
)
def test_products_over_many_rows_read_both_as_they_lie(
    rows: int, left: int, right: int, turned: bool
) -> None:
    """The gradient of a linear layer's weight: neither a copy nor panels, and the bits of any threads."""
    graph = GraphBuilder("rows")
    x, g = graph.input("x", (rows, left)), graph.input("g", (rows, right))
    made = graph.add("matmul", "made", graph.add("permute", "t", x, order=(1, 0)), g)
    spec = graph.build(graph.add("permute", "back", made, order=(1, 0)) if turned else made)
    taken = [noise(rows, left), noise(rows, right, seed=1)]
    one, two = (bslite.run(spec, taken, threads=t) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    assert rel_l2(one, reference.run(spec, taken)[0]) < 6e-7
    made_by = [step.kernel for step in build_plan(spec, [x.shape for x in taken], detect(2)).steps]
    assert made_by[0] == "weight_update"
    assert "pack_panels" not in made_by
