"""Which values lie as quads, and that products of bytes stay exact with any weights."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.noise import noise

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.passes.quads import MOST, exact_parts
from bslite.spec import GraphBuilder, ModelSpec

SHAPE = (1, 24, 6, 7)


def drawn(*shape: int, most: int = 127) -> Array:
    return np.random.default_rng(len(shape)).integers(-most, most + 1, shape).astype(np.int8)


def model(least: float, most: int, **how: Any) -> ModelSpec:
    """A convolution of rounded numbers ``[least, least + 255]``, with weights of that size."""
    graph = GraphBuilder("quads")
    graph.params["w"] = drawn(40, SHAPE[1], 3, 3, most=most)
    graph.params["offset"] = np.arange(40, dtype=np.int32)
    q = graph.add("quantize", "q", graph.input("x", SHAPE), scale=0.02, low=least)
    params = {"weight": "w", "offset": "offset"}
    return graph.build(graph.add("int_conv2d", "y", graph.add("pairs", "p", q), params=params, **how))


def exact(spec: ModelSpec) -> Array:
    """The reference's result, which the engine has bit by bit, whatever it runs with."""
    given = noise(*SHAPE, seed=1, scale=3)
    want = reference.run(spec, [given], np.float32)[0]
    for how in ({}, {"threads": 2}, {"layerwise": True}):
        np.testing.assert_array_equal(bslite.run(spec, given, **how), want)
    return want


def test_parts_of_weights_fit_sixteen_bits() -> None:
    weight = np.stack(np.meshgrid(*[np.arange(-128, 128)] * 2), -1).reshape(1, -1, 1).astype(np.int8)
    for array in (weight, weight[:, :-1]):  # all two weights there are; and an odd number of them
        parts = exact_parts(array)
        np.testing.assert_array_equal(sum(p.astype(int) for p in parts), array)
        for part in parts:
            two = np.pad(part, ((0, 0), (0, array.shape[1] % 2), (0, 0))).astype(int).reshape(-1, 2)
            assert np.maximum(two, 0).sum(1).max() <= MOST
            assert np.minimum(two, 0).sum(1).min() >= -MOST


@pytest.mark.parametrize(
    ("least", "most", "how", "quads"),
    [
        (0.0, 40, {"padding": 1}, True),
        (-9.0, 40, {}, True),  # the offset makes up for the zero point
        (-9.0, 40, {"padding": 1}, False),  # but not in the padding
        (0.0, 127, {"padding": 1}, False),  # most weights would need another part
    ],
)
def test_which_values_are_quads(least: float, most: int, how: dict[str, Any], quads: bool) -> None:
    spec = model(least, most, **how)
    assert [n.op for n in simplify(spec).nodes][1] == ("quads" if quads else "pairs")
    assert [n.op for n in simplify(spec, dots=True).nodes][1] == ("pairs" if least and how else "quads")
    assert [n.op for n in simplify(spec, dots=None).nodes][1] == "pairs"
    exact(spec)


def test_a_residual_of_quads() -> None:
    """A value that a convolution and a sum read, and one that only the sum reads, whose zero is not 0."""
    graph = GraphBuilder("block")
    for name in ("a", "b", "c"):
        graph.params[name] = drawn(SHAPE[1], SHAPE[1], 1, 1, most=30)
        graph.params[f"{name}_s"] = np.full(SHAPE[1], 2.0**-9, np.float32)  # sums and steps are exact

    def conv(name: str, *inputs: str, least: float, **how: Any) -> str:
        params = {"weight": name, "scale": f"{name}_s"}
        first = (-np.inf, np.inf, 0.125, least)
        return graph.add("int_conv2d", f"y{name}", *inputs, params=params, first=first, to="pairs", **how)

    x = graph.add("pairs", "p", graph.add("quantize", "q", graph.input("x", SHAPE), scale=0.02, low=0.0))
    side = conv("a", x, least=-77.0)
    added = {"own": 0.125, "other": 0.0625, "second": (0.0, np.inf, 0.125, 0.0)}
    both = conv("b", x, side, least=-50.0, **added)
    again = conv("b", both, x, least=-50.0, **added)
    last = graph.add("int_conv2d", "last", again, params={"weight": "c"})
    spec = graph.build(last)
    made = {n.name: n for n in simplify(spec).nodes}
    assert made["p"].op == "quads"
    assert [made[n].attrs["to"] for n in (side, both, again)] == ["quads"] * 3
    assert (made[both].attrs["adds"], made[both].attrs["under"]) == ("quads", -77)
    assert np.ptp(exact(spec)) > 1000


@pytest.mark.parametrize("channels", [(24, 40), (24, 10)])
def test_parts_of_a_concat_round_twice(channels: tuple[int, int]) -> None:
    """Sums rounded in steps of their own, joined and rounded again: no pass over them; cells need fours."""
    graph = GraphBuilder("parts")
    x = graph.add("pairs", "p", graph.add("quantize", "q", graph.input("x", SHAPE), scale=0.02, low=0.0))
    made = []
    for i, (k, step) in enumerate(zip(channels, (0.25, 0.5), strict=True)):
        graph.params[f"w{i}"] = drawn(k, SHAPE[1], 1, 1, most=30)
        graph.params[f"s{i}"], graph.params[f"by{i}"] = (
            np.full(k, 2.0**-9, np.float32),
            np.array(step, np.float32),
        )
        params, first = {"weight": f"w{i}", "scale": f"s{i}"}, (0.0, np.inf, step, 0.0)
        y = graph.add("int_conv2d", f"y{i}", x, params=params, to="float32", first=first)
        by = graph.add("constant", f"c{i}", params={"value": f"by{i}"})
        made.append(graph.add("mul", f"m{i}", y, by))
    graph.params["w"] = drawn(8, sum(channels), 3, 3, most=30)
    again = graph.add("quantize", "again", graph.add("concat", "joined", *made, axis=1), scale=0.5, low=0.0)
    pairs = graph.add("pairs", "pairs", again)
    spec = graph.build(graph.add("int_conv2d", "last", pairs, params={"weight": "w"}, padding=1))
    rest = ["concat"] if channels[1] % 4 == 0 else ["concat", "quads"]
    assert [n.op for n in simplify(spec).nodes] == [
        "quantize", "quads", "int_conv2d", "int_conv2d", *rest, "int_conv2d",
    ]  # fmt: skip
    exact(spec)


def test_parts_of_a_concat_get_names_of_their_own() -> None:
    """The model has a value whose name is the one that the pass would give."""
    graph = GraphBuilder("taken")
    x = graph.input("x", SHAPE)
    pairs = graph.add("pairs", "p", graph.add("quantize", "q0", x, scale=0.02, low=0.0))
    made = []
    for name in "ab":
        graph.params[name] = drawn(SHAPE[1], SHAPE[1], 1, 1, most=30)
        graph.params[f"{name}_s"] = np.full(SHAPE[1], 2.0**-9, np.float32)
        params, first = {"weight": name, "scale": f"{name}_s"}, (-np.inf, np.inf, 0.125, -100.0)
        made.append(graph.add("int_conv2d", f"y{name}", pairs, params=params, to="float32", first=first))
    other = graph.add("relu", "q/0", x)
    q = graph.add("quantize", "q", graph.add("concat", "c", *made, axis=1), scale=0.5, low=-128.0)
    spec = graph.build(graph.add("add", "z", q, graph.add("concat", "d", other, other, axis=1)))
    nodes = simplify(spec).nodes
    assert len({n.name for n in nodes}) == len(nodes)
    assert [n.op for n in nodes].count("quantize") == 1  # the pass did rewrite it
    exact(spec)


@pytest.mark.parametrize("form", ["pairs", "quads"])
def test_a_residual_is_added_to_what_was_not_rounded(form: str) -> None:
    graph = GraphBuilder("unrounded")
    graph.params["w"] = drawn(32, SHAPE[1], 1, 1, most=3)
    graph.params["s"] = np.full(32, 0.125, np.float32)
    x, z = graph.input("x", SHAPE), graph.input("z", (1, 32, *SHAPE[2:]))
    p = graph.add(form, "p", x, **({"least": -128} if form == "quads" else {}))
    q = graph.add(form, "q", z, **({"least": -128} if form == "quads" else {}))
    how = {"reads": form, "adds": form, **({"under": -128} if form == "quads" else {})}
    params, second = {"weight": "w", "scale": "s"}, (-np.inf, np.inf, 1.0, -128.0)
    y = graph.add("int_conv2d", "y", p, q, params=params, own=3.0, other=1.0, second=second, to=form, **how)
    spec = graph.build(y)
    given = [np.rint(noise(*i.example, seed=1, scale=3)) for i in spec.inputs]
    np.testing.assert_array_equal(bslite.run(spec, given), reference.run(spec, given)[0])
