"""What the tests of single kernels share: small graphs around one op, run whole and cut into many items."""

from collections.abc import Callable

import numpy as np

import bslite
from bslite import reference
from bslite.spec import ModelSpec
from support.check import TINY, Array, rel_l2, same_specials
from support.graphs import Graph
from support.noise import noise

#: Channel counts around the widths of vector registers and of the runs kernels take at once.
CHANNELS = (1, 3, 8, 17, 33, 64, 65, 130)
MANY = 8  # threads to plan for; fewer may run


def ran(spec: ModelSpec, *inputs: Array) -> Array:
    """The engine's output: the same bits whole, in many items, and layer by layer in memory of its own."""
    whole = bslite.run(spec, list(inputs), threads=1)
    assert isinstance(whole, np.ndarray)
    for options in ({"threads": MANY}, {"threads": MANY, "layerwise": True}):
        other = bslite.run(spec, list(inputs), **options)
        assert isinstance(other, np.ndarray)
        np.testing.assert_array_equal(other, whole, strict=True)
    return whole


@np.errstate(all="ignore")
def check(spec: ModelSpec, *inputs: Array, factor: float = 4.0) -> Array:
    """Run, and compare with the reference in float64 by the error of the reference in float32."""
    got = ran(spec, *inputs)
    exact = reference.run(spec, list(inputs), np.float64)[0]
    peer = reference.run(spec, list(inputs), np.float32)[0]
    theirs = rel_l2(peer, exact) if same_specials(peer, exact) else 0.0
    assert rel_l2(got, exact) <= factor * theirs + 4 * TINY
    return got


def pixels(x: Array) -> Array:
    """The image with its channels last in memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def check_in_every_layout(add: Callable[[Graph, str], str], x: Array) -> None:
    """An op of one image ``x`` that keeps the number of channels, wherever its input and output may lie.

    From the caller's planes and pixels, from a slice and a permuted tensor; into a concat (its neighbour
    computed first, so that a store beyond the end shows), and inside the zeros of a convolution that pads.
    """
    n, c, h, w = x.shape

    def model(make: Callable[[Graph, str], str], *shape: int) -> ModelSpec:
        graph = Graph()
        return graph.build(make(graph, graph.input("x", shape)))

    plain = model(add, *x.shape)
    check(plain, x)
    check(plain, pixels(x))

    wide = noise(n, c + 5, h, w, seed=1)
    wide[:, 2 : 2 + c] = x
    check(model(lambda g, v: add(g, g("slice", "cut", v, axis=1, start=2, stop=2 + c)), *wide.shape), wide)

    turned = np.ascontiguousarray(x.transpose(2, 3, 0, 1))
    check(model(lambda g, v: add(g, g("permute", "turn", v, order=(2, 3, 0, 1))), *turned.shape), turned)

    def joined(g: Graph, v: str) -> str:
        neighbour = add(g, g("relu", "other", v))
        return g("concat", "join", add(g, v), neighbour, axis=1)

    check(model(joined, *x.shape), x)

    def padded(g: Graph, v: str) -> str:
        v = add(g, g("relu", "first", v))
        return g("conv2d", "conv", v, weight=noise(4, c, 3, 3, seed=2), padding=1)

    check(model(padded, *x.shape), x)
