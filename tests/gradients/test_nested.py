"""Concatenations of concatenations, and sums in the stores of gradients."""

import numpy as np
from support.check import assert_three_way

import bslite
from bslite import GraphBuilder, reference
from bslite.gradients.nested import nested
from bslite.passes import fuse, simplify


def dense_block(layers: int) -> bslite.ModelSpec:
    g = GraphBuilder("dense")
    parts = [g.input("x", (2, 8, 6, 5))]
    rng = np.random.default_rng(0)
    for i in range(layers):
        joined = g.add("concat", f"join{i}", *parts, axis=1) if i else parts[0]
        stats = g.add("batch_stats", f"stats{i}", joined)
        norm = g.add("batch_norm_given", f"norm{i}", joined, stats, own=True)
        key = f"conv{i}.weight"
        g.params[key] = (0.2 * rng.standard_normal((8, 8 + 8 * i, 3, 3))).astype("f4")
        active = g.add("relu", f"relu{i}", norm)
        parts.append(g.add("conv2d", f"conv{i}", active, params={"weight": key}, padding=1))
    return g.build(g.add("concat", "all", *parts, axis=1))


def test_a_concatenation_takes_an_earlier_one() -> None:
    spec = dense_block(4)
    found = {n.name: n.inputs for n in nested(spec).nodes if n.op == "concat"}
    assert found == {
        "join1": ("x", "conv0"),
        "join2": ("join1", "conv1"),
        "join3": ("join2", "conv2"),
        "all": ("join3", "conv3"),
    }
    x = np.random.default_rng(1).standard_normal((2, 8, 6, 5)).astype("f4")
    assert np.array_equal(bslite.run(spec, x), bslite.run(nested(spec), x))


def test_sums_of_gradients_ride_in_those_of_batch_norms() -> None:
    spec = dense_block(4)
    backward = bslite.gradient(spec, ["x", "conv0.weight"])
    layers = fuse(simplify(backward))
    assert sum(layer.node.op == "batch_norm_grad" and layer.residual is not None for layer in layers) == 4
    rng = np.random.default_rng(2)
    given = [rng.standard_normal(i.example).astype("f4") for i in backward.inputs]
    exact, near = (reference.run(backward, given, d) for d in (np.float64, np.float32))
    for made, peer, truth in zip(bslite.run(backward, given), near, exact, strict=True):
        assert_three_way(made, peer, truth)
    one, two = (bslite.run(backward, given, threads=t) for t in (1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))
