"""Batch norm and activation in the store of a pool: fused where they may be, the same bits as apart."""

from typing import Any

import numpy as np
import pytest
from support.check import Array, rel_l2
from support.graphs import Graph
from support.kernel_checks import CHANNELS, MANY, check_in_every_layout, pixels
from support.noise import noise

import bslite
from bslite import ModelSpec, ops, reference
from bslite.explanation.data.fusions import fusions
from bslite.machine import Machine
from bslite.passes import fuse
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan import build_plan

POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "max 3x3/1": ("max_pool2d", {"kernel": 3, "stride": 1, "padding": 1}),
    "max 3x3/2": ("max_pool2d", {"kernel": 3, "stride": 2, "ceil_mode": True}),
    "max 2x2/2": ("max_pool2d", {"kernel": 2}),
    "max dilated": ("max_pool2d", {"kernel": 3, "stride": 1, "padding": 1, "dilation": 2}),
    "max 2x2/1": ("max_pool2d", {"kernel": 2, "stride": 1, "padding": (0, 0, 1, 1)}),
    "max 5x5/1": ("max_pool2d", {"kernel": 5, "stride": 1, "padding": 2}),
    "avg 5x5/1": ("avg_pool2d", {"kernel": 5, "stride": 1, "padding": 2}),
    "avg 3x3/1": ("avg_pool2d", {"kernel": 3, "stride": 1, "padding": 1}),
    "avg 3x3/2, own counts": ("avg_pool2d", {"kernel": 3, "stride": 2, "padding": 1,
                                            "count_include_pad": False}),
    "avg 3x2/(1, 2)": ("avg_pool2d", {"kernel": (3, 2), "stride": (1, 2)}),
    "adaptive avg": ("adaptive_avg_pool2d", {"output_size": (3, 5)}),
    "adaptive max": ("adaptive_max_pool2d", {"output_size": 1}),
}  # fmt: skip


def add_norm(graph: Graph, name: str, value: str, channels: int, affine: bool = True) -> str:
    """A batch norm with statistics of its own; without weight and bias if not ``affine``."""
    rng = np.random.default_rng(len(name))
    lowest = {"running_mean": -1.0, "running_var": 0.5, **({"weight": -1.0, "bias": -1.0} if affine else {})}
    given = {role: rng.uniform(low, 2.0, channels).astype(np.float32) for role, low in lowest.items()}
    return graph("batch_norm", name, value, **given)


def chain(
    pool: str, shape: tuple[int, ...], activation: str | None = "relu", norm: bool = True, affine: bool = True
) -> ModelSpec:
    """pool, batch norm, activation."""
    graph = Graph()
    op, attrs = POOLS[pool]
    value = graph(op, "pool", graph.input("x", ("N", shape[1], "H", "W"), shape), **attrs)
    if norm:
        value = add_norm(graph, "norm", value, shape[1], affine)
    if activation:
        needed = {a.name: 0.5 for a in ops.get(activation).attrs if a.default is ...}
        value = graph(activation, "act", value, **needed)
    return graph.build(value)


@np.errstate(all="ignore")
def check(spec: ModelSpec, x: Array) -> None:
    """One step fused, one per node layerwise; the same bytes, and those of the reference's values."""
    layers = fuse(spec)
    assert len(layers) == 1
    assert len(fuse(spec, enabled=False)) == len(spec.nodes)
    exact = reference.run(spec, [x], np.float64)[0]
    peer = reference.run(spec, [x], np.float32)[0]
    for lies in (x, pixels(x)):  # pooled plane by plane, and as an image
        want = bslite.run(spec, lies, layerwise=True)
        assert isinstance(want, np.ndarray)
        for threads in (1, MANY):
            got = bslite.run(spec, lies, threads=threads)
            assert isinstance(got, np.ndarray)
            assert got.tobytes() == want.tobytes()
        assert rel_l2(want, exact) <= 4 * rel_l2(peer, exact) + 1e-7


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("pool", POOLS)
def test_fused_as_unfused(pool: str, channels: int) -> None:
    for n, h, w in ((1, 7, 9), (3, 13, 11), (1, 5, 40)):
        check(chain(pool, (n, channels, h, w)), noise(n, channels, h, w))


#: Of any number. Near the edge of their domain, or a pole, the others amplify rounding errors at will.
EVERYWHERE = [name for name in ACTIVATIONS if ops.get(name).sample_range is None]


@pytest.mark.parametrize("norm", [True, False], ids=["norm", "no norm"])
@pytest.mark.parametrize("activation", [*EVERYWHERE, None])
@pytest.mark.parametrize("pool", ["max 3x3/1", "avg 3x3/1", "max 2x2/2"])
def test_every_activation(pool: str, activation: str | None, norm: bool) -> None:
    check(chain(pool, (2, 33, 12, 10), activation, norm), noise(2, 33, 12, 10, scale=4.0))


@pytest.mark.parametrize("pool", ["max 3x3/1", "avg 3x3/1", "adaptive avg"])
def test_norm_without_weight_and_bias(pool: str) -> None:
    check(chain(pool, (1, 17, 8, 8), affine=False), noise(1, 17, 8, 8))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities(pool: str, poison: float) -> None:
    x = noise(1, 19, 14, 15)
    places = np.random.default_rng(0).choice(x.size, 60, replace=False)
    x.reshape(-1)[places] = poison
    for activation in ("relu", "relu6", "sigmoid", None):
        check(chain(pool, x.shape, activation), x)


def test_every_layout() -> None:
    def add(graph: Graph, value: str) -> str:
        number = len(graph.params)
        value = graph("max_pool2d", f"pool{number}", value, kernel=3, stride=1, padding=1)
        return graph("relu", f"act{number}", add_norm(graph, f"norm{number}", value, 33))

    check_in_every_layout(add, noise(2, 33, 6, 7))


def test_zeros_of_both_signs() -> None:
    """Of equal zeros the same one wins however the windows are taken."""
    x = np.where(noise(2, 48, 9, 20) > 0, np.float32(0), np.float32(-0.0))
    for pool in POOLS:
        check(chain(pool, x.shape, None), x)
        check(chain(pool, x.shape, "leaky_relu", norm=False), x)


def layers_of(spec: ModelSpec) -> dict[str, tuple[str, ...]]:
    return {layer.node.name: layer.members for layer in fuse(spec)}


def test_what_is_not_fused_and_why() -> None:
    graph = Graph()
    x = graph.input("x", (1, 4, 8, 8))
    shared = graph("max_pool2d", "shared", x, kernel=2)
    first = graph("relu", "act1", add_norm(graph, "norm1", shared, 4))
    kept = graph("max_pool2d", "kept", first, kernel=1)
    second = add_norm(graph, "norm2", kept, 4)
    late = add_norm(graph, "late", graph("relu", "early", graph("max_pool2d", "p", x, kernel=2)), 4)
    twice = add_norm(graph, "n2", add_norm(graph, "n1", graph("max_pool2d", "q", x, kernel=2), 4), 4)
    spec = graph.build(graph("add", "sum", shared, second), kept, late, twice)
    assert layers_of(spec) == {
        "shared": ("shared",), "norm1": ("norm1", "act1"), "kept": ("kept",), "norm2": ("norm2",),
        "p": ("p", "early"), "late": ("late",), "q": ("q", "n1"), "n2": ("n2",), "sum": ("sum",),
    }  # fmt: skip
    plan = build_plan(spec, [(1, 4, 8, 8)], Machine())
    said = {fusion.name: fusion for fusion in fusions(spec, spec, plan)}
    assert "2 layers" in said["shared"].apart
    assert "output of the model" in said["kept"].apart
    assert "late comes after the activation" in said["p"].apart
    assert "n2 is a second batch norm" in said["q"].apart
    assert said["q"].holds == ("batch norm n1 in the store",)
    assert said["p"].holds == ("relu in the store",)
    x_value = noise(1, 4, 8, 8)
    for got, want in zip(bslite.run(spec, x_value), bslite.run(spec, x_value, layerwise=True), strict=True):
        assert got.tobytes() == want.tobytes()


def test_a_folded_batch_norm_is_not_said_to_be_in_the_store() -> None:
    graph = Graph()
    conv = graph("conv2d", "conv", graph.input("x", (1, 3, 8, 8)), weight=noise(4, 3, 1, 1))
    original = graph.build(graph("max_pool2d", "pool", add_norm(graph, "norm", conv, 4), kernel=2))
    spec = bslite.passes.simplify(original)
    said = fusions(original, spec, build_plan(spec, [(1, 3, 8, 8)], Machine()))
    assert [fusion.holds for fusion in said] == [("batch norm norm folded into the weights",), ()]
