"""Results that are stored as cells of bfloat16 by the steps that make them: the bits of a step of its own."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.cells import ONLY, TOO, WORD, bits, conv, said
from support.dots import dots
from support.graphs import Graph, network
from support.kernel_checks import MANY
from support.noise import noise

import bslite
from bslite.engines.cpu.engine import prepare
from bslite.plan.cpu import stored_cells
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("dots")
__all__ = ["dots"]
CASES: dict[str, Callable[[Graph, str], tuple[Any, dict[str, str]]]] = {}


def case(name: str) -> Callable[[Any], Any]:
    def note(make: Any) -> Any:
        CASES[name] = make
        return make

    return note


@case("a filter of one pixel")
def _pixel(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 48), 48, 16), {"a": ONLY}


@case("zeros beside the image")
def _zeros(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", g("relu", "act", conv(g, "a", x, 32, 48)), 48, 16, 3), {"a": ONLY}


@case("a stride")
def _stride(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 48, 3), 48, 16, 3, stride=2), {"a": ONLY}


@case("an odd number of channels")
def _odd(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 49, 3), 49, 16, 3), {"a": ONLY}


@case("a residual")
def _residual(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    first = conv(g, "a", x, 32, 32)
    return g("add", "sum", conv(g, "b", first, 32, 32, 3), first), {"a": TOO}


@case("an output of the model")
def _output(g: Graph, x: str) -> tuple[tuple[str, str], dict[str, str]]:
    first = conv(g, "a", x, 32, 32)
    return (first, conv(g, "b", first, 32, 32, 3)), {"a": TOO}


@case("readers with other zeros")
def _readers(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    first = conv(g, "a", x, 32, 32)
    return g("mul", "product", conv(g, "b", first, 32, 32, 3), conv(g, "c", first, 32, 32, 5)), {"a": TOO}


@case("an activation after the store")
def _silu(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", g("silu", "act", conv(g, "a", x, 32, 70, 3)), 70, 16), {"a": ONLY}


@case("a sum in parts")
def _parts(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    wide = conv(g, "wide", x, 32, 512)
    return conv(g, "b", conv(g, "a", wide, 512, 40, 3), 40, 16), {"wide": ONLY, "a": ONLY}


@case("a sum in parts and an activation")
def _parts_silu(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    wide = conv(g, "wide", x, 32, 512)
    return conv(g, "b", g("silu", "act", conv(g, "a", wide, 512, 40, 3)), 40, 16), {"wide": ONLY, "a": ONLY}


@case("depthwise")
def _depthwise(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 32, 3, groups=32), 32, 16), {"a": ONLY}


@case("depthwise, an activation, zeros")
def _depthwise_silu(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    made = g("silu", "act", conv(g, "a", x, 32, 32, 3, groups=32))
    return conv(g, "b", made, 32, 16, 3), {"a": ONLY}


@case("groups")
def _groups(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 72, groups=2), 72, 16), {"a": ONLY}


@case("groups of an odd number of channels")
def _odd_groups(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    return conv(g, "b", conv(g, "a", x, 32, 66, groups=2), 66, 16), {}


@case("parts of a concat")
def _concat(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    made = [conv(g, name, x, 32, c) for name, c in (("a1", 24), ("a2", 40), ("a3", 17))]
    joined = g("concat", "joined", *made, axis=1)
    return conv(g, "b", joined, 81, 16, 3), {"a1": ONLY, "a2": ONLY, "a3": ONLY}


@case("parts of a concat that share a cell")
def _odd_concat(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    joined = g("concat", "joined", conv(g, "a1", x, 32, 33), conv(g, "a2", x, 32, 33), axis=1)
    return conv(g, "b", joined, 66, 16), {}


@case("a part of a value")
def _slice(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    part = g("slice", "part", conv(g, "a", x, 32, 96), axis=1, start=32, stop=80)
    return conv(g, "b", part, 48, 16), {}


@case("a sum in parts and a residual")
def _parts_residual(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    first = conv(g, "a", conv(g, "wide", x, 32, 512), 512, 40, 3)
    return g("add", "sum", conv(g, "b", first, 40, 40, 3), first), {"wide": ONLY, "a": TOO}


@case("depthwise, averaged, too")
def _averaged(g: Graph, x: str) -> tuple[tuple[str, str], dict[str, str]]:
    """The sums of lines are of the float32 results, whoever reads these."""
    first = conv(g, "a", x, 32, 32, 3, groups=32)
    average = g("adaptive_avg_pool2d", "average", first, output_size=1)
    return (average, conv(g, "b", first, 32, 16)), {"a": TOO}


@case("phases of a transposed convolution")
def _phases(g: Graph, x: str) -> tuple[str, dict[str, str]]:
    made = g("conv_transpose2d", "a", x, weight=noise(32, 24, 4, 4) / 22, stride=2, padding=1)
    return conv(g, "b", made, 24, 16), {"a": ONLY}


def model(name: str) -> tuple[ModelSpec, dict[str, str]]:
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 32, "H", "W"), (2, 32, 9, 11)))
    y, expected = CASES[name](g, x)
    return g.build(*((y,) if isinstance(y, str) else y)), expected


@pytest.mark.parametrize("shape", [(1, 32, 9, 11), (5, 32, 14, 14), (2, 32, 1, 17), (1, 32, 30, 1)])
@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str, shape: tuple[int, ...]) -> None:
    """Beside a plan of single layers, each value is rounded by a step of its own."""
    spec, expected = model(name)
    x = noise(*shape)
    assert not said(spec, x, layerwise=True)
    apart = bits(bslite.run(spec, x, threads=1, layerwise=True, precision=WORD))
    for threads in (1, 2, MANY):
        assert bits(bslite.run(spec, x, threads=threads, precision=WORD)) == apart
    if shape == (1, 32, 9, 11):
        assert said(spec, x) == expected


def test_linear_layers() -> None:
    g = Graph()
    x = g.input("x", ("N", 7, 64), (2, 7, 64))
    y = g("gelu", "act", g("linear", "a", x, weight=noise(200, 64, seed=1)))
    spec, given = g.build(g("linear", "b", y, weight=noise(64, 200, seed=2))), noise(3, 7, 64)
    assert said(spec, given) == {"a": ONLY}
    apart = bslite.run(spec, given, threads=1, layerwise=True, precision=WORD)
    np.testing.assert_array_equal(bslite.run(spec, given, precision=WORD), apart)


@pytest.mark.parametrize("name", ["a filter of one pixel", "an activation after the store", "depthwise"])
@pytest.mark.parametrize("planted", [np.inf, np.nan, 3.4e38])
def test_results_without_a_finite_bfloat16(name: str, planted: float) -> None:
    """The run is done again by float32 products, wherever the number comes up."""
    spec, _ = model(name)
    x, key = noise(1, 32, 9, 11), next(key for key in spec.params if key.startswith("a.bias"))
    assert bslite.run(spec, x, precision=WORD).tobytes() != bslite.run(spec, x, precision="ieee").tobytes()
    for channel in (0, -1):
        bias = spec.params[key].copy()
        bias[channel] = planted
        changed = dataclasses.replace(spec, params={**spec.params, key: bias})
        made, ieee = (bslite.run(changed, x, precision=word) for word in (WORD, "ieee"))
        assert made.tobytes() == ieee.tobytes()


@pytest.mark.parametrize("arch", ["resnet50", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0"])
@pytest.mark.parametrize("batch", [1, 3])
def test_networks(arch: str, batch: int) -> None:
    spec, x = network(arch, size=64), noise(batch, 3, 64, 64)
    assert ONLY in said(spec, x).values()
    apart = bslite.run(spec, x, threads=1, layerwise=True, precision=WORD)
    np.testing.assert_array_equal(bslite.run(spec, x, precision=WORD), apart)


def test_volumes() -> None:
    g = Graph()
    x = g.input("x", ("N", 16, 5, 6, 7), (2, 16, 5, 6, 7))
    weights = [noise(c, d, k, k, k, seed=k) / (d * k**3) ** 0.5 for c, d, k in ((32, 16, 3), (24, 32, 3))]
    y = g("conv3d", "a", x, weight=weights[0], padding=1)
    spec, given = g.build(g("conv3d", "b", y, weight=weights[1], padding=1)), noise(2, 16, 5, 6, 7)
    assert said(spec, given) == {"a": ONLY}
    apart = bslite.run(spec, given, threads=1, layerwise=True, precision=WORD)
    np.testing.assert_array_equal(bslite.run(spec, given, precision=WORD), apart)


def test_results_that_would_fill_the_cache_until_they_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay in memory, and are rounded beside that."""
    monkeypatch.setattr(stored_cells, "KEPT", 0.0)
    spec, expected = model("a sum in parts and an activation")
    x = noise(1, 32, 9, 11)
    assert said(spec, x) == expected | {"a": TOO}
    apart = bslite.run(spec, x, threads=1, layerwise=True, precision=WORD)
    np.testing.assert_array_equal(bslite.run(spec, x, precision=WORD), apart)


def test_other_sizes_need_no_kernel_that_is_not_ready() -> None:
    """A model that has run once compiles nothing more, whoever stores cells at another size."""
    spec = network("mobilenet_v2", size=64)
    tuning = Tuning(precision=WORD)
    first, other = (
        prepare(spec, [noise(n, 3, size, size)], 2, False, tuning=tuning).kernels
        for n, size in ((1, 64), (4, 96))
    )
    assert {k.name for k in other} <= {k.name for k in first}
