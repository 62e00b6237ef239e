"""Weights that fit 16 bits, on tiles of bfloat16: fewer parts, fewer products, the same bits."""

import dataclasses
from typing import Any

import pytest
import torch
from support.graphs import one_op
from support.noise import noise
from support.products import CONVS, OTHERS, convolution
from support.tiles import tiles, with_tiles

import bslite
from bslite.engines.cpu.engine import engine_for, prepare
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.contracts.cpu.tiles import SplitConv
from bslite.kernels.cpu.vector.simd import LANES
from bslite.plan.cpu.on_tiles import split as split_step
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles", "images")
__all__ = ["tiles"]

BY_PRICE = split_step.is_faster  # the fixture puts another in its place
LAYERS = {name: lambda name=name: convolution(name, "relu") for name in CONVS if "with padding" not in name}
LAYERS |= {name: make for name, make in OTHERS.items() if make()[0].params}
KINDS = pytest.mark.parametrize("kind", [Narrow.BFLOAT16, Narrow.FLOAT16])
PRODUCTS = {  # precision -> products with weights of 16 bits
    "float32": {Narrow.BFLOAT16: 3, Narrow.FLOAT16: 5},
    "bfloat16_3x": {Narrow.BFLOAT16: 2, Narrow.FLOAT16: 3},
    "bfloat16": {Narrow.BFLOAT16: 1, Narrow.FLOAT16: 1},
}


def fitted(spec: ModelSpec, kind: Narrow) -> ModelSpec:
    """The model with weights rounded to 16 bits."""
    dtype = getattr(torch, kind.name.lower())
    params = {key: torch.tensor(a).to(dtype).float().numpy() for key, a in spec.params.items()}
    return dataclasses.replace(spec, params=params)


def records(spec: ModelSpec, inputs: Any, **tuning: Any) -> list[SplitConv]:
    """Those of its plan."""
    plan = prepare(spec, inputs, 2, False, tuning=Tuning(**tuning)).plan
    return [s.record for s in plan.steps if isinstance(s.record, SplitConv)]


def both(spec: ModelSpec, inputs: Any, threads: int = 2, **tuning: Any) -> tuple[Any, Any]:
    """What is computed by fewer products, and by all."""
    engine = engine_for(spec)
    ways = [Tuning(narrowing=narrowing, **tuning) for narrowing in (True, False)]
    made = [engine.compute(prepare(spec, inputs, threads, False, tuning=how), inputs)[0] for how in ways]
    return made[0], made[1]


@KINDS
@pytest.mark.parametrize("precision", PRODUCTS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_same_bits(name: str, precision: str, kind: Narrow) -> None:
    spec, inputs = LAYERS[name]()
    spec, word = fitted(spec, kind), bslite.Precision(precision)
    assert {r.of_parts for r in records(spec, inputs, precision=word)} == {PRODUCTS[precision][kind]}
    for threads in (1, 2):
        got, want = both(spec, inputs, threads, precision=word)
        assert got.tobytes() == want.tobytes()


@KINDS
@pytest.mark.parametrize("rows", [1, 32, 130])
@pytest.mark.parametrize(("terms", "outputs"), [(96, 32), (2100, 70)])
def test_weights_that_no_cache_holds(
    rows: int, terms: int, outputs: int, kind: Narrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are fetched ahead: the same bits."""
    with_tiles(monkeypatch.setattr, l2=1 << 12, l3=1 << 12)
    x = noise(rows, terms)
    spec = fitted(one_op("linear", x, weight=noise(outputs, terms, seed=1), bias=noise(outputs)), kind)
    (record,) = records(spec, [x])
    assert record.b_parts == kind.parts
    assert record.far
    assert record.quarters > 0
    got, want = both(spec, [x])
    assert got.tobytes() == want.tobytes()


def test_the_step_says_why_there_are_fewer_products() -> None:
    x = noise(40, 64)
    spec = fitted(one_op("linear", x, weight=noise(64, 64, seed=1)), Narrow.BFLOAT16)
    (fewer,), (all_of,) = records(spec, [x]), records(spec, [x], narrowing=False)
    assert fewer.arithmetic == "3 products of bfloat16 for each of float32; weights have 1 of 3 parts"
    assert all_of.arithmetic == "6 products of bfloat16 for each of float32"


@pytest.mark.skipif(LANES < 16, reason="of 8 lanes, six products make it faster, too")
def test_layers_are_chosen_by_the_products_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that six products would not make faster, and three do."""
    monkeypatch.undo()
    with_tiles(monkeypatch.setattr)
    monkeypatch.setattr(split_step, "is_faster", BY_PRICE)
    x = noise(64, 64)
    layer = one_op("linear", x, weight=noise(64, 64, seed=1))
    assert [len(records(spec, [x])) for spec in (layer, fitted(layer, Narrow.BFLOAT16))] == [0, 1]
