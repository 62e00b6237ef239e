"""Results that tiles of bfloat16 store as cells, and tiles read where they lie: the bits of layers apart."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.cells import ONLY, TOO, WORD, bits, conv, planned, reach_of, said
from support.graphs import Graph
from support.kernel_checks import MANY
from support.noise import noise
from support.tiles import tiles

import bslite
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles")
__all__ = ["tiles"]
DIRECT = "reads them rounded"
Made = tuple[Any, dict[str, str]]
CASES: dict[str, Callable[[Graph, str], Made]] = {}


def case(name: str) -> Callable[[Any], Any]:
    def note(make: Any) -> Any:
        CASES[name] = make
        return make

    return note


@case("filters of one pixel")
def _pixels(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 96), 96, 70), {"a": ONLY, "b": DIRECT}


@case("zeros around")
def _zeros(g: Graph, x: str) -> Made:
    return conv(g, "b", g("relu", "act", conv(g, "a", x, 32, 64)), 64, 40, 3), {"a": ONLY, "b": DIRECT}


@case("windows that lie inside")
def _inside(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 64, 3), 64, 33, 3, padding=0), {"a": ONLY, "b": DIRECT}


@case("more zeros on one side, and dilated")
def _dilated(g: Graph, x: str) -> Made:
    made = conv(g, "a", x, 32, 32, 3)
    return conv(g, "b", made, 32, 32, 3, dilation=2, padding=(3, 0, 1, 4)), {"a": ONLY, "b": DIRECT}


@case("a stride")
def _stride(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 64), 64, 32, 3, stride=2), {"a": ONLY, "b": DIRECT}


@case("more terms than are split at a time")
def _terms(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 1056), 1056, 40), {"a": ONLY, "b": DIRECT}


@case("more terms of every other pixel")
def _strided_terms(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 1056), 1056, 40, stride=2), {"a": ONLY, "b": DIRECT}


@case("a stride, and groups")
def _strided_groups(g: Graph, x: str) -> Made:
    made = conv(g, "b", conv(g, "a", x, 32, 128), 128, 64, 3, groups=2, stride=(1, 2))
    return made, {"a": ONLY, "b": DIRECT}


@case("every other pixel, and all")
def _every_other(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 64)
    made = conv(g, "b", first, 64, 32), conv(g, "c", first, 64, 32, stride=2)
    return made, {"a": ONLY, "b": DIRECT, "c": DIRECT}


@case("every other pixel, and zeros around")
def _every_other_padded(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 64)
    made = conv(g, "b", first, 64, 32, 3, stride=2), conv(g, "c", first, 64, 32, stride=2)
    return made, {"a": ONLY, "b": DIRECT, "c": DIRECT}


@case("every other pixel first, and zeros around")
def _every_other_first(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 64)
    made = conv(g, "b", first, 64, 32, stride=2), conv(g, "c", first, 64, 32, 3)
    return made, {"a": TOO, "c": DIRECT}


@case("part of a block of terms")
def _part(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 48), 48, 32, 3), {}


@case("a residual")
def _residual(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 64)
    made = g("add", "sum", conv(g, "b", first, 64, 64, 3), first)
    return conv(g, "c", made, 64, 32), {"a": ONLY, "b": f"{DIRECT}; {ONLY}", "c": DIRECT}


def adding(g: Graph, x: str, channels: int, act: str) -> Any:
    """Two convolutions, a third one beside them, their sum, an activation, and one that reads it."""
    made = conv(g, "b", conv(g, "a", x, 32, 64), 64, channels, 3)
    made = g("add", "sum", made, conv(g, "beside", x, 32, channels))
    return conv(g, "c", g(act, "act", made), channels, 32)


@case("a residual that nobody else reads")
def _alone(g: Graph, x: str) -> Made:
    made = adding(g, x, 96, "relu")
    return made, {"a": ONLY, "beside": ONLY, "b": f"{DIRECT}; {ONLY}", "c": DIRECT}


@case("a residual, and an activation after the store")
def _alone_silu(g: Graph, x: str) -> Made:
    made = adding(g, x, 64, "silu")
    return made, {"a": ONLY, "beside": ONLY, "b": f"{DIRECT}; {ONLY}", "c": DIRECT}


@case("a residual of an even number of channels")
def _alone_even(g: Graph, x: str) -> Made:
    return adding(g, x, 50, "relu"), {"a": ONLY, "b": f"{DIRECT}; {ONLY}"}


@case("a residual of an odd number of channels")
def _alone_odd(g: Graph, x: str) -> Made:
    return adding(g, x, 51, "relu"), {"a": ONLY, "b": f"{DIRECT}; {ONLY}"}


@case("a residual that no step rounds")
def _float32(g: Graph, x: str) -> Made:
    made = g("relu", "act", g("add", "sum", conv(g, "b", conv(g, "a", x, 32, 64), 64, 32), x))
    return conv(g, "c", made, 32, 40), {"a": ONLY, "b": f"{DIRECT}; {ONLY}", "c": DIRECT}


@case("an output of the model")
def _output(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 32)
    return (first, conv(g, "b", first, 32, 32, 3)), {"a": TOO, "b": DIRECT}


@case("readers with other zeros")
def _readers(g: Graph, x: str) -> Made:
    first = conv(g, "a", x, 32, 32)
    made = g("mul", "product", conv(g, "b", first, 32, 32, 3), conv(g, "c", first, 32, 32, 5))
    return made, {"a": TOO, "b": DIRECT}


@case("an activation after the store")
def _silu(g: Graph, x: str) -> Made:
    return conv(g, "b", g("silu", "act", conv(g, "a", x, 32, 64, 3)), 64, 16), {"a": ONLY, "b": DIRECT}


@case("an activation, and float32, too")
def _silu_too(g: Graph, x: str) -> Made:
    first = g("silu", "act", conv(g, "a", x, 32, 64, 3))
    return g("mul", "product", conv(g, "b", first, 64, 64), first), {"a": TOO, "b": DIRECT}


@case("a sum in parts, and an activation")
def _parts(g: Graph, x: str) -> Made:
    wide = conv(g, "wide", x, 32, 512)
    made = g("silu", "act", conv(g, "a", wide, 512, 64, 3))
    return conv(g, "b", made, 64, 16), {"wide": ONLY, "a": f"{DIRECT}; {ONLY}", "b": DIRECT}


@case("depthwise between")
def _depthwise(g: Graph, x: str) -> Made:
    made = g("relu", "act", conv(g, "a", x, 32, 96))
    made = g("silu", "silu", conv(g, "d", made, 96, 96, 3, groups=96))
    return conv(g, "b", made, 96, 24), {"d": ONLY, "b": DIRECT}


@case("groups")
def _groups(g: Graph, x: str) -> Made:
    made = conv(g, "b", conv(g, "a", x, 32, 128, groups=2), 128, 72, 3, groups=4)
    return made, {"a": ONLY, "b": DIRECT}


@case("parts of a concat")
def _concat(g: Graph, x: str) -> Made:
    parts = [conv(g, name, x, 32, c, size) for name, c, size in (("a1", 32, 1), ("a2", 64, 3), ("a3", 32, 1))]
    joined = g("concat", "joined", *parts, axis=1)
    return conv(g, "b", joined, 128, 16, 3), {"a1": ONLY, "a2": ONLY, "a3": ONLY, "b": DIRECT}


@case("a part of a value")
def _slice(g: Graph, x: str) -> Made:
    part = g("slice", "part", conv(g, "a", x, 32, 96), axis=1, start=32, stop=64)
    return conv(g, "b", part, 32, 16), {}


@case("rows and columns exchanged")
def _turned(g: Graph, x: str) -> Made:
    turned = g("permute", "turned", conv(g, "a", x, 32, 64), order=[0, 1, 3, 2])
    return conv(g, "b", turned, 64, 40), {"a": ONLY, "b": DIRECT}


@case("a pixel's zeros around")
def _padded_pixel(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 64), 64, 40, padding=1), {}


@case("groups that end within a panel")
def _uneven_groups(g: Graph, x: str) -> Made:
    made = conv(g, "b", conv(g, "a", x, 32, 96, groups=2), 96, 72, 3, groups=3)
    return made, {"a": ONLY, "b": DIRECT}


@case("groups of an odd number of channels")
def _odd_groups(g: Graph, x: str) -> Made:
    return conv(g, "b", conv(g, "a", x, 32, 32 * 33, groups=32), 32 * 33, 8), {}


def model(name: str) -> tuple[ModelSpec, dict[str, str]]:
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 32, "H", "W"), (2, 32, 9, 11)))
    y, expected = CASES[name](g, x)
    return g.build(*((y,) if isinstance(y, str) else y)), expected


@pytest.mark.parametrize(
    "shape", [(1, 32, 9, 11), (5, 32, 14, 14), (2, 32, 6, 17), (1, 32, 56, 30), (2, 32, 33, 7)]
)
@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str, shape: tuple[int, ...]) -> None:
    """In a plan of single layers each rounds what it reads."""
    spec, expected = model(name)
    x = noise(*shape)
    assert not said(spec, x, layerwise=True)
    apart = bits(bslite.run(spec, x, threads=1, layerwise=True, precision=WORD))
    for threads in (1, 2, MANY):
        assert bits(bslite.run(spec, x, threads=threads, precision=WORD)) == apart
    for n in range(shape[0]):
        alone = bslite.run(spec, x[n : n + 1], threads=2, precision=WORD)
        whole = bslite.run(spec, x, threads=2, precision=WORD)
        for one, many in zip(
            *((y,) if isinstance(y, np.ndarray) else y for y in (alone, whole)), strict=True
        ):
            np.testing.assert_array_equal(one, many[n : n + 1])
    reached = reach_of(planned(spec, x, threads=2))
    assert all(end <= size for end, size in reached)
    if shape == (1, 32, 9, 11):
        assert said(spec, x) == expected


@pytest.mark.parametrize("planted", [np.inf, np.nan, 3.4e38])
@pytest.mark.parametrize(
    "name",
    [
        "zeros around", "filters of one pixel", "an activation after the store",
        "a residual that nobody else reads", "a residual that no step rounds",
    ],
)  # fmt: skip
def test_results_that_are_not_finite(name: str, planted: float) -> None:
    """The run is done again by float32, whichever step notices."""
    spec, _ = model(name)
    x = noise(1, 32, 9, 11)
    x[0, 3, 4, 5] = planted
    made = bslite.run(spec, x, threads=2, precision=WORD)
    np.testing.assert_array_equal(made, bslite.run(spec, x, threads=2, precision="ieee"))


@pytest.mark.parametrize("rows", [1, 7, 33, 100])
def test_linear_layers(rows: int) -> None:
    g = Graph()
    x = g.input("x", ("N", "T", 64), (2, rows, 64))
    y = g("gelu", "act", g("linear", "a", x, weight=noise(192, 64, seed=1), bias=noise(192)))
    spec, given = g.build(g("linear", "b", y, weight=noise(70, 192, seed=2))), noise(3, rows, 64)
    apart = bslite.run(spec, given, threads=1, layerwise=True, precision=WORD)
    for threads in (1, 2, MANY):
        np.testing.assert_array_equal(bslite.run(spec, given, threads=threads, precision=WORD), apart)
    assert said(spec, given) == {"a": ONLY, "b": DIRECT}


@pytest.mark.parametrize("act", ["", "relu", "silu"])
@pytest.mark.parametrize("twice", [False, True], ids=["cells", "cells and float32"])
def test_finite_results_that_round_to_infinity(act: str, twice: bool) -> None:
    """The step that rounds them notices, and the run is done again by float32."""
    g = Graph()
    x = g.input("x", ("N", 32, "H", "W"), (1, 32, 9, 11))
    bias = noise(64)
    bias[5] = 3.397e38
    y = first = g("conv2d", "a", x, weight=noise(64, 32, 1, 1) / 6, bias=bias)
    if act:
        y = first = g(act, "act", first)
    y = conv(g, "b", y, 64, 64)
    spec = g.build(g("mul", "product", y, first) if twice else y)
    given = noise(1, 32, 9, 11)
    made = bslite.run(spec, given, threads=2, precision=WORD)
    np.testing.assert_array_equal(made, bslite.run(spec, given, threads=2, precision="ieee"))


def test_axes_without_a_distance() -> None:
    """A reshape gives axes of one element any stride, 0 among them."""
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 32, 6, 7), (2, 32, 6, 7)))
    y = g("reshape", "volume", conv(g, "a", x, 32, 64), shape=(-1, 64, 6, 7, 1))
    spec = g.build(g("conv3d", "b", y, weight=noise(24, 64, 1, 1, 1) / 8))
    given = noise(2, 32, 6, 7)
    apart = bslite.run(spec, given, threads=1, layerwise=True, precision=WORD)
    np.testing.assert_array_equal(bslite.run(spec, given, threads=2, precision=WORD), apart)
