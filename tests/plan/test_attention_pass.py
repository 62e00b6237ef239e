"""Attention written out is found, in the forms models write it in, and nothing else is taken for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import GraphBuilder, ModelSpec

ROWS, KEYS, DEPTH = 6, 7, 5
RNG = np.random.default_rng(0)


class Net:
    """A graph of q, k and v with heads, to be written down as a test likes."""

    def __init__(self, batch: int = 1) -> None:
        self.graph = GraphBuilder("attention")
        sizes = {"q": (ROWS, DEPTH), "k": (KEYS, DEPTH), "v": (KEYS, 4)}
        for name, size in sizes.items():
            self.graph.input(name, ("N", 3, *size), (batch, 3, *size))

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.graph.add(op, op, *inputs, **attrs)

    def constant(self, *shape: int) -> str:
        key = f"constant{len(self.graph.params)}"
        self.graph.params[key] = RNG.uniform(0.5, 2.0, shape).astype(np.float32)
        return self.graph.add("constant", key, params={"value": key})

    def scores(self, q: str = "q", k: str = "k") -> str:
        return self("matmul", q, self("permute", k, order=(0, 1, 3, 2)))

    def weighted(self, scores: str, v: str = "v") -> str:
        return self("matmul", self("softmax", scores, axis=-1), v)


def plain(n: Net) -> str:
    return n.weighted(n.scores())


def scaled_scores(n: Net) -> str:
    return n.weighted(n("add", n("mul", n.scores(), n.constant()), n.constant(ROWS, KEYS)))


def scaled_before(n: Net) -> str:
    return n.weighted(n.scores(n("mul", "q", n.constant()), n("mul", n.constant(1), "k")))


def divided(n: Net) -> str:
    return n.weighted(n("div", n.scores(n("div", "q", n.constant())), n.constant()))


def scaled_per_head(n: Net) -> str:
    return n.weighted(n("add", n.constant(3, 1, KEYS), n("mul", n.scores(), n.constant(3, 1, 1))))


def two_masks(n: Net) -> str:
    return n.weighted(n("add", n("add", n.constant(ROWS, KEYS), n.scores()), n.constant(1, 3, 1, KEYS)))


def computed_masks(n: Net) -> str:
    mask = n("slice", "k", axis=3, start=0, stop=1)  # [N, 3, KEYS, 1]
    mask = n("permute", mask, order=(0, 1, 3, 2))
    return n.weighted(n("add", n("add", n.scores(), mask), n("add", n.constant(ROWS, KEYS), mask)))


def dropped_out(n: Net) -> str:
    return n("matmul", n("dropout", n("softmax", n.scores(), axis=3), p=0.5), "v")


def keys_transposed_before(n: Net) -> str:
    k = n("tanh", n("permute", "k", order=(0, 1, 3, 2)))
    return n.weighted(n("matmul", "q", k))


def windows(n: Net) -> str:
    """Swin's: a bias for all windows, then a mask for each of the two windows of an image."""
    scores = n("reshape", n("add", n.scores(), n.constant(1, 3, ROWS, KEYS)), shape=(-1, 2, 3, ROWS, KEYS))
    masked = n("add", scores, n.constant(1, 2, 1, ROWS, KEYS))
    return n.weighted(n("reshape", masked, shape=(-1, 3, ROWS, KEYS)))


FOUND = {
    f.__name__: f
    for f in (
        plain, scaled_scores, scaled_before, divided, scaled_per_head, two_masks, computed_masks, dropped_out,
        keys_transposed_before, windows,
    )
}  # fmt: skip


def scores_kept(n: Net) -> str:
    scores = n.scores()
    return n("matmul", n("add", n("softmax", scores, axis=-1), scores), "v")


def weights_kept(n: Net) -> str:
    weights = n("softmax", n.scores(), axis=-1)
    return n("matmul", n("permute", weights, order=(0, 1, 3, 2)), n("matmul", weights, "v"))


def over_the_queries(n: Net) -> str:
    return n("matmul", n("softmax", n.scores(), axis=2), "v")


def scaled_after_the_mask(n: Net) -> str:
    return n.weighted(n("mul", n("add", n.scores(), n.constant(ROWS, KEYS)), n.constant()))


def divides_a_number(n: Net) -> str:
    return n.weighted(n("div", n.constant(), n.scores()))


def scaled_by_key(n: Net) -> str:
    return n.weighted(n("mul", n.scores(), n.constant(KEYS)))


def another_function(n: Net) -> str:
    return n.weighted(n("tanh", n.scores()))


LEFT = {
    f.__name__: f
    for f in (
        scores_kept, weights_kept, over_the_queries, scaled_after_the_mask, divides_a_number, scaled_by_key,
        another_function,
    )
}  # fmt: skip


def build(write: Callable[[Net], str], batch: int) -> tuple[ModelSpec, list[Any]]:
    net = Net(batch)
    spec = net.graph.build(write(net))
    return spec, [RNG.standard_normal(i.example).astype(np.float32) for i in spec.inputs]


@pytest.mark.parametrize("write", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("batch", [2, 4])
def test_found(write: Callable[[Net], str], batch: int) -> None:
    spec, inputs = build(write, batch)
    fused = simplify(spec)
    ops = [n.op for n in fused.nodes]
    assert ops.count("attention") == 1
    assert not {"softmax", "matmul", "dropout"} & set(ops)
    assert fused.outputs == spec.outputs
    exact = reference.run(spec, inputs, np.float64)[0]
    peer = reference.run(spec, inputs, np.float32)[0]
    assert_three_way(reference.run(fused, inputs, np.float32)[0], peer, exact)
    assert_three_way(bslite.run(spec, inputs), peer, exact)


@pytest.mark.parametrize("write", LEFT.values(), ids=LEFT)
def test_left_alone(write: Callable[[Net], str]) -> None:
    spec, inputs = build(write, 2)
    assert "attention" not in [n.op for n in simplify(spec).nodes]
    exact = reference.run(spec, inputs, np.float64)[0]
    assert_three_way(bslite.run(spec, inputs), reference.run(spec, inputs, np.float32)[0], exact)


def test_weights_that_are_an_output_are_left_alone() -> None:
    net = Net()
    weights = net("softmax", net.scores(), axis=-1)
    spec = net.graph.build(net("matmul", weights, "v"), weights)
    assert "attention" not in [n.op for n in simplify(spec).nodes]


def test_a_row_without_a_key_is_nan_as_softmax_has_it() -> None:
    net = Net()
    mask = np.zeros((ROWS, KEYS), np.float32)
    mask[2] = -np.inf
    net.graph.params["mask"] = mask
    spec = net.graph.build(
        net.weighted(net("add", net.scores(), net.graph.add("constant", "mask", params={"value": "mask"})))
    )
    inputs = [RNG.standard_normal(i.example).astype(np.float32) for i in spec.inputs]
    y = bslite.run(spec, inputs)
    assert np.isnan(y[:, :, 2]).all()
    assert np.isfinite(np.delete(y, 2, 2)).all()
