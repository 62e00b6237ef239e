"""Scales, shifts and clamps before a convolution of one pixel, computed while tiles split what it reads: the
bits of a step for each.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.cells import bits, conv, steps_of
from support.check import assert_three_way
from support.graphs import Graph
from support.kernel_checks import MANY
from support.noise import noise
from support.tiles import tiles

import bslite
from bslite import reference
from bslite.engines.cpu.engine import prepare
from bslite.kernels.contracts.cpu.elementwise import Elementwise
from bslite.kernels.contracts.cpu.tiles import SplitConv
from bslite.passes.norms import FAR
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles")
__all__ = ["tiles"]
Case = Callable[[Graph, str], Any]
TAKEN: dict[str, Case] = {}
APART: dict[str, Case] = {}


def case(cases: dict[str, Case], name: str) -> Callable[[Case], Case]:
    def note(make: Case) -> Case:
        cases[name] = make
        return make

    return note


def norm(g: Graph, name: str, x: str, channels: int) -> str:
    """A batch norm that moves zero, so that zeros around an image would show."""
    given = {
        "weight": 1 + 0.3 * noise(channels, seed=3), "bias": noise(channels, seed=4),
        "running_mean": noise(channels, seed=5), "running_var": 1 + noise(channels, seed=6) ** 2,
    }  # fmt: skip
    given["running_mean"][1] = 2 * FAR * given["running_var"][1]  # it would go into the weights behind it
    return g("batch_norm", name, x, **given)


def gate(g: Graph, x: str, channels: int) -> str:
    """One number for each channel of each image."""
    mean = g("adaptive_avg_pool2d", "mean", x, output_size=1)
    return g("sigmoid", "gate", conv(g, "few", mean, channels, channels))


@case(TAKEN, "a batch norm")
def _norm(g: Graph, x: str) -> Any:
    return conv(g, "b", norm(g, "norm", x, 40), 40, 70)


@case(TAKEN, "a batch norm and a clamp from below")
def _relu(g: Graph, x: str) -> Any:
    return conv(g, "b", g("relu", "act", norm(g, "norm", x, 40)), 40, 70)


@case(TAKEN, "a clamp that zero is not in")
def _clamp(g: Graph, x: str) -> Any:
    return conv(g, "b", g("clamp", "act", norm(g, "norm", x, 40), low=0.5, high=1.5), 40, 33)


@case(TAKEN, "every other pixel")
def _stride(g: Graph, x: str) -> Any:
    return conv(g, "b", g("relu", "act", norm(g, "norm", x, 40)), 40, 32, stride=(2, 3))


@case(TAKEN, "a gate")
def _gate(g: Graph, x: str) -> Any:
    return conv(g, "b", g("mul", "gated", x, gate(g, x, 40)), 40, 24)


@case(TAKEN, "a gate, the other way round, and a residual")
def _gate_first(g: Graph, x: str) -> Any:
    made = conv(g, "b", g("mul", "gated", gate(g, x, 40), x), 40, 40)
    return g("relu", "act", g("add", "sum", made, x))


@case(TAKEN, "more channels than are split at a time")
def _long(g: Graph, x: str) -> Any:
    wide = g("concat", "wide", *[x] * 27, axis=1)
    return conv(g, "b", g("relu", "act", norm(g, "norm", wide, 1080)), 1080, 33)


@case(TAKEN, "some channels of a concat")
def _concat(g: Graph, x: str) -> Any:
    both = g("concat", "both", x, conv(g, "a", x, 40, 32, 3), axis=1)
    made = conv(g, "b", g("relu", "act", norm(g, "norm", both, 72)), 72, 32)
    return conv(g, "d", made, 32, 32, 3)


@case(APART, "windows of more pixels")
def _window(g: Graph, x: str) -> Any:
    return conv(g, "b", g("relu", "act", norm(g, "norm", x, 40)), 40, 32, 3)


@case(APART, "zeros around pixels")
def _padded(g: Graph, x: str) -> Any:
    return conv(g, "b", norm(g, "norm", x, 40), 40, 32, padding=1)


@case(APART, "two readers")
def _two(g: Graph, x: str) -> Any:
    made = norm(g, "norm", x, 40)
    return conv(g, "b", made, 40, 32), conv(g, "c", made, 40, 32, stride=2)


@case(APART, "the sum's other side")
def _residual(g: Graph, x: str) -> Any:
    made = norm(g, "norm", x, 40)
    return g("add", "sum", conv(g, "b", made, 40, 40), made)


@case(APART, "an output")
def _output(g: Graph, x: str) -> Any:
    made = norm(g, "norm", x, 40)
    return made, conv(g, "b", made, 40, 32)


@case(APART, "another activation")
def _silu(g: Graph, x: str) -> Any:
    return conv(g, "b", g("silu", "act", norm(g, "norm", x, 40)), 40, 32)


@case(APART, "a number for each pixel")
def _mask(g: Graph, x: str) -> Any:
    mask = g("sigmoid", "mask", conv(g, "few", x, 40, 1))
    return conv(g, "b", g("mul", "masked", x, mask), 40, 32)


@case(APART, "groups")
def _groups(g: Graph, x: str) -> Any:
    return conv(g, "b", norm(g, "norm", x, 40), 40, 40, groups=2)


def model(name: str) -> ModelSpec:
    g = Graph()
    x = conv(g, "first", g.input("x", ("N", 40, "H", "W"), (2, 40, 9, 11)), 40, 40, 3)
    y = (TAKEN | APART)[name](g, x)
    # It is an output, so that no batch norm becomes part of it.
    return g.build(x, *((y,) if isinstance(y, str) else y))


def scaled(spec: ModelSpec, x: Any, layerwise: bool = False) -> tuple[set[str], set[str]]:
    """Layers of elementwise steps, and layers that scale what they read."""
    tuning = Tuning(precision=bslite.Precision.FLOAT32)
    steps = steps_of(prepare(spec, [x], 1, layerwise, tuning=tuning).plan)
    own = {n for s in steps if isinstance(s.record, Elementwise) for n in s.layers}
    found = [s for s in steps if isinstance(s.record, SplitConv) and s.record.prologue.scaled]
    assert all("scales its input on the way" in s.record.beside for s in found)
    return own, {n for s in found for n in s.layers}


@pytest.mark.parametrize("shape", [(1, 40, 9, 11), (3, 40, 14, 14), (2, 40, 56, 30)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16_3x", "bfloat16"])
@pytest.mark.parametrize("name", [*TAKEN, *APART])
def test_bits_are_those_of_a_step_for_each_layer(name: str, precision: str, shape: tuple[int, ...]) -> None:
    spec, x = model(name), noise(*shape)
    apart = bits(bslite.run(spec, x, threads=1, layerwise=True, precision=precision))
    for threads in (1, 2, MANY):
        assert bits(bslite.run(spec, x, threads=threads, precision=precision)) == apart
    whole = bslite.run(spec, x, threads=2, precision=precision)
    for n in range(shape[0]):
        alone = bslite.run(spec, x[n : n + 1], threads=2, precision=precision)
        for one, many in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(one, many[n : n + 1])


@pytest.mark.parametrize("shape", [(1, 40, 9, 11), (2, 40, 14, 14)])
@pytest.mark.parametrize("name", TAKEN)
def test_the_step_before_is_gone(name: str, shape: tuple[int, ...]) -> None:
    spec, x = model(name), noise(*shape)
    own, joined = scaled(spec, x)
    assert "b" in joined
    assert not own & {"norm", "gated"}
    assert not scaled(spec, x, layerwise=True)[1]


@pytest.mark.parametrize("name", APART)
def test_layers_that_do_not_scale_what_they_read(name: str) -> None:
    assert not scaled(model(name), noise(2, 40, 9, 11))[1]


@pytest.mark.parametrize("name", [*TAKEN, *APART])
def test_answers_are_as_near_to_the_truth_as_multiply_adds(name: str) -> None:
    spec, x = model(name), noise(2, 40, 14, 14)
    exact = reference.run(spec, [x], np.float64)[-1]
    ours, peer = (bslite.run(spec, x, threads=2, precision=p) for p in ("float32", "ieee"))
    assert_three_way(ours[-1], peer[-1], exact, factor=1.5, least=1e-7)


@pytest.mark.parametrize("planted", [np.inf, np.nan, 3.4e38, 1e-38, 1e30])
@pytest.mark.parametrize(
    "name", ["a batch norm and a clamp from below", "a gate", "a clamp that zero is not in"]
)
def test_numbers_whose_parts_are_not_exact(name: str, planted: float) -> None:
    """The run is done again by float32; not where the clamp makes such a number an ordinary one."""
    g = Graph()
    x = g.input("x", ("N", 40, "H", "W"), (1, 40, 9, 11))
    spec = g.build(TAKEN[name](g, x))
    given = noise(1, 40, 9, 11)
    given[0, 3, 4, 5] = planted
    made, peer = (bslite.run(spec, given, threads=2, precision=p) for p in ("float32", "ieee"))
    for find in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(find(made), find(peer))
    exact = reference.run(spec, [given], np.float64)[0]
    if np.isfinite(exact).all():
        assert_three_way(made, peer, exact, factor=1.5, least=1e-7)


@pytest.mark.parametrize("name", TAKEN)
def test_values_that_are_kept_have_steps_of_their_own(name: str) -> None:
    """Of a plan whose values can all be read afterwards."""
    tuning = Tuning(precision=bslite.Precision.FLOAT32)
    plan = prepare(model(name), [noise(2, 40, 9, 11)], 1, False, keep_values=True, tuning=tuning).plan
    assert not any(s.record.prologue.scaled for s in steps_of(plan) if isinstance(s.record, SplitConv))


@pytest.mark.parametrize("name", ["a batch norm and a clamp from below", "a gate"])
def test_explain_says_who_computes_the_layer(name: str) -> None:
    rows = bslite.explain(model(name), noise(1, 40, 56, 56), threads=1, runs=1).layers
    (row,) = (r for r in rows if any("computed on the way by b" in text for text in r.holds))
    assert row.name in ("norm", "gated")
    assert row.kernels == ()
    (reader,) = (r for r in rows if any("scales its input on the way" in text for text in r.holds))
    assert reader.name == "b"
