"""Dot products of bfloat16: what float64 gives for rounded factors, the same bits however they are cut."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.cells import nearest
from support.check import all_cases, assert_three_way, rel_l2, single_op_spec
from support.dots import dots
from support.graphs import Graph, one_op
from support.kernel_checks import MANY
from support.noise import noise
from support.products import CONVS, OTHERS, convolution
from support.tiles import split_layers

import bslite
from bslite import ops, reference
from bslite.engines.cpu.engine import prepare
from bslite.ops import Case, Kind, Op
from bslite.plan.cpu.rounded import LEAST
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("dots", "images")
__all__ = ["dots"]
WORD = "bfloat16"
#: Layers that stay multiply-adds: few outputs of a group, odd numbers of inputs of a group, given weights.
NOT = {"few of all", "narrow groups", "planes", *(n for n in OTHERS if "given" in n or "matri" in n)}


def ran(spec: ModelSpec, *inputs: Any, split: bool = True) -> Any:
    """The output: the same bits on one thread and in many items, and layer by layer."""
    given = list(inputs)
    whole = bslite.run(spec, given, threads=1, precision=WORD)
    for how in ({"threads": 2}, {"threads": MANY}, {"threads": MANY, "layerwise": True}):
        np.testing.assert_array_equal(bslite.run(spec, given, precision=WORD, **how), whole, strict=True)
    tuning = Tuning(precision=bslite.Precision.BFLOAT16)
    assert bool(split_layers(prepare(spec, given, 1, False, tuning=tuning).plan)) is split
    return whole


MULTIPLY = [n for n, op in ops.REGISTRY.items() if op.kind is Kind.CONTRACTION]


def check(spec: ModelSpec, *inputs: Any, split: bool = True) -> None:
    """The layer, whose first input is x, has float32's error on factors that are rounded beforehand."""
    got = ran(spec, *inputs, split=split)
    if split:
        weights = {key: nearest(a) if a.ndim > 1 else a for key, a in spec.params.items()}
        spec = dataclasses.replace(spec, params=weights)
        inputs = (nearest(inputs[0]), *inputs[1:])
    exact, peer = (reference.run(spec, list(inputs), kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(got, peer, exact, least=1e-7)


@pytest.mark.parametrize(("op", "case"), all_cases(names=MULTIPLY))
def test_cases_of_ops(op: Op, case: Case) -> None:
    """Whether they are computed so or not."""
    spec, inputs = single_op_spec(op, case)
    exact = reference.run(spec, inputs, np.float64)[0]
    got = bslite.run(spec, inputs, threads=1, precision=WORD)
    assert rel_l2(got, exact) < 2e-2
    for how in ({"threads": 2}, {"threads": MANY}, {"layerwise": True}):
        assert bslite.run(spec, inputs, precision=WORD, **how).tobytes() == got.tobytes(), how


@pytest.mark.parametrize("after", ["", "relu", "silu", "residual"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name: str, after: str) -> None:
    spec, inputs = convolution(name, after)
    check(spec, *inputs, split=name not in NOT)


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_that_multiply(name: str) -> None:
    spec, inputs = OTHERS[name]()
    check(spec, *inputs, split=name not in NOT)


@pytest.mark.parametrize("rows", [1, 15, 32, 33, 100])
@pytest.mark.parametrize(("terms", "outputs"), [(2, 16), (32, 32), (33, 31), (700, 16), (2500, 70), (40, 15)])
def test_products_of_rows(rows: int, terms: int, outputs: int) -> None:
    x = noise(rows, terms)
    spec = one_op("linear", x, weight=noise(outputs, terms, seed=1), bias=noise(outputs))
    check(spec, x, split=outputs >= LEAST)


def test_an_image_has_the_bits_that_it_has_alone() -> None:
    g = Graph()
    x = g.input("x", ("N", 48, 9, 9), (2, 48, 9, 9))
    y = g("conv2d", "a", x, weight=noise(40, 48, 1, 1))
    y = g("conv2d", "b", g("relu", "act", y), weight=noise(33, 40, 3, 3), padding=1)
    spec, batch = g.build(y), noise(5, 48, 9, 9)
    together = ran(spec, batch)
    for image, made in zip(batch, together, strict=True):
        np.testing.assert_array_equal(bslite.run(spec, image[None], precision=WORD)[0], made)


def test_filters_of_a_picture_with_other_zeros_beside_it() -> None:
    """In memory there are as many as the widest filter needs, and the other ones' windows begin at odd
    numbers of a line.
    """
    g = Graph()
    x = g.input("x", ("N", 3, 20, 20), (2, 3, 20, 20))
    a = g("conv2d", "a", x, weight=noise(32, 3, 7, 7), padding=3, stride=2)
    b = g("conv2d", "b", x, weight=noise(32, 3, 5, 5, seed=1), padding=2, stride=2)
    check(g.build(g("mul", "product", a, b)), noise(2, 3, 20, 20, seed=2))


def test_a_value_is_rounded_once_for_all_its_readers() -> None:
    g = Graph()
    x = g("relu", "act", g.input("x", ("N", 32, 8, 8), (1, 32, 8, 8)))
    made = [g("conv2d", f"c{n}", x, weight=noise(32, 32, 1, 1, seed=n)) for n in range(3)]
    spec, image = g.build(*made), noise(2, 32, 8, 8)
    tuning = Tuning(precision=bslite.Precision.BFLOAT16)
    plan = prepare(spec, [image], 1, True, tuning=tuning).plan
    assert [s.kernel for s in plan.steps].count("rounded") == 1


@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan, 3.4e38, -3.4e38])
@pytest.mark.parametrize("op", ["conv2d", "linear"])
def test_numbers_without_a_finite_bfloat16_are_computed_by_float32(op: str, planted: float) -> None:
    """Bit by bit what multiply-adds give, wherever the number stands."""
    shape = (2, 34, 6, 6) if op == "conv2d" else (7, 34)
    weight = noise(32, 34, *(3, 3)[: 2 * (op == "conv2d")])
    g = Graph()
    y = g(op, "layer", g.input("x", ("N", *shape[1:]), shape), weight=weight)
    spec, x = g.build(g("relu", "act", y)), noise(*shape)
    usual = bslite.run(spec, x, precision=WORD)
    assert usual.tobytes() != bslite.run(spec, x, precision="ieee").tobytes()
    for place in (0, 17, x.size - 1):
        kept, x.flat[place] = x.flat[place], planted
        assert (
            bslite.run(spec, x, precision=WORD).tobytes() == bslite.run(spec, x, precision="ieee").tobytes()
        )
        x.flat[place] = kept
    assert bslite.run(spec, x, precision=WORD).tobytes() == usual.tobytes()  # the flag is down again


@pytest.mark.parametrize("planted", [np.inf, np.nan, 3.4e38])
def test_weights_without_a_finite_bfloat16_stay_float32(planted: float) -> None:
    weight, x = noise(32, 32), noise(40, 32)
    weight[3, 4] = planted
    spec = one_op("linear", x, weight=weight)
    assert ran(spec, x, split=False).tobytes() == bslite.run(spec, x, precision="ieee").tobytes()


def test_only_plain_bfloat16_takes_them() -> None:
    x = noise(64, 256)
    spec = one_op("linear", x, weight=noise(64, 256, seed=1))
    exact = reference.run(spec, [x], np.float64)[0]
    ieee = bslite.run(spec, x, precision="ieee").tobytes()
    for word in ("float32", "bfloat16_3x"):
        assert bslite.run(spec, x, precision=word).tobytes() == ieee
    assert 1e-3 < rel_l2(bslite.run(spec, x, precision=WORD), exact) < 1e-2


ATTENTION = {  # queries, keys, depth, features, and attributes
    "heads of 64": (50, 50, 64, 64, {}),
    "odd sizes": (33, 47, 17, 35, {"scale": 0.3}),
    "blocks of keys": (40, 701, 33, 70, {}),
    "causal": (300, 300, 16, 16, {"is_causal": True}),
}


def given(name: str) -> tuple[list[Any], dict[str, Any]]:
    rows, keys, depth, features, attributes = ATTENTION[name]
    shapes = (rows, depth), (keys, depth), (keys, features)
    return [noise(2, *shape, seed=n) for n, shape in enumerate(shapes)], attributes


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    arrays, attributes = given(name)
    spec = one_op("attention", *arrays, **attributes)
    exact = reference.run(spec, [nearest(a) for a in arrays], np.float64)[0]
    got = ran(spec, *arrays)
    assert 1e-5 < rel_l2(got, exact) < 3e-3  # exponentials are rounded, too


@pytest.mark.parametrize("name", ATTENTION)
def test_values_of_equal_scores_are_as_exact_as_float32(name: str) -> None:
    """All exponentials are 1, and what rounds them takes nothing."""
    (q, k, v), attributes = given(name)
    q[...] = 0
    spec = one_op("attention", q, k, v, **attributes)
    exact, peer = (reference.run(spec, [q, k, nearest(v)], kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(ran(spec, q, k, v), peer, exact, least=1e-7)


def test_scores_are_as_exact_as_float32() -> None:
    """Values that are ones at a key each give the exponentials, which have 8 bits."""
    (q, k, _), attributes = given("heads of 64")
    v = np.broadcast_to(np.eye(50, dtype=np.float32), (2, 50, 50)).copy()
    spec = one_op("attention", q, k, v, **attributes)
    exact = reference.run(spec, [nearest(q), nearest(k), v], np.float64)[0]
    assert (np.abs(ran(spec, q, k, v) / exact - 1) < 2.0**-8).all()


@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan, 3.4e38])
@pytest.mark.parametrize("operand", range(3))
def test_numbers_in_attention_that_float32_computes(operand: int, planted: float) -> None:
    arrays, attributes = given("odd sizes")
    arrays[operand].flat[70] = planted
    spec = one_op("attention", *arrays, **attributes)
    made, ieee = (bslite.run(spec, arrays, precision=word) for word in (WORD, "ieee"))
    assert made.tobytes() == ieee.tobytes()


def test_rows_without_a_key_are_what_float32_gives() -> None:
    arrays, _ = given("odd sizes")
    seen = np.random.default_rng(3).random((33, 47)) < 0.7
    seen[::3] = False
    spec = one_op("attention", *arrays, seen)
    made, ieee = (bslite.run(spec, [*arrays, seen], precision=word) for word in (WORD, "ieee"))
    assert rel_l2(made, ieee) < 1e-2  # and NaN in the same places
