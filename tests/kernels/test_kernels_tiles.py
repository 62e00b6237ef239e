"""Products of bfloat16 tiles in the place of float32's: as exact, the same bits however they are cut."""

from typing import Any

import numpy as np
import pytest
from support.check import all_cases, assert_three_way, rel_l2, single_op_spec
from support.graphs import Graph, one_op
from support.kernel_checks import MANY
from support.noise import noise
from support.products import CONVS, OTHERS, convolution
from support.tiles import split_layers, tiles, with_tiles
from support.torch_oracle import torch_output

import bslite
from bslite import ops, reference
from bslite.engines.cpu.constants import has_parts, split
from bslite.engines.cpu.engine import prepare
from bslite.ops import Case, Kind, Op
from bslite.plan.cpu.on_tiles import split as split_step
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("tiles", "images")
__all__ = ["tiles"]
FACTOR = 1.5  # of torch's error


def ran(spec: ModelSpec, *inputs: Any, split: bool = True) -> Any:
    """The output: the same bits on one thread and in many items, layer by layer, and where others compute it
    with float32 multiply-adds, other ones.
    """
    whole = bslite.run(spec, list(inputs), threads=1)
    for how in ({"threads": 2}, {"threads": MANY}, {"threads": MANY, "layerwise": True}):
        np.testing.assert_array_equal(bslite.run(spec, list(inputs), **how), whole, strict=True)
    assert bool(split_layers(prepare(spec, list(inputs), 1, False).plan)) is split
    return whole


def check(spec: ModelSpec, *inputs: Any, split: bool = True) -> None:
    exact, peer = (reference.run(spec, list(inputs), kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(ran(spec, *inputs, split=split), peer, exact, FACTOR, least=1e-7)


def test_parts_add_up_to_the_number() -> None:
    x = np.random.default_rng(0).integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    x = x[has_parts_each(x)]
    parts = [(p.astype(np.uint32) << 16).view(np.float32) for p in split(x)]
    np.testing.assert_array_equal((parts[2] + parts[1]) + parts[0], x)
    with np.errstate(all="ignore"):
        for part, before in zip(parts[1:], parts, strict=False):
            assert (np.abs(part) <= np.abs(before) * 2.0**-8).all()


def has_parts_each(x: Any) -> Any:
    return np.array([has_parts(v) for v in x.reshape(-1, 1)])


def test_a_product_with_ones_returns_the_number() -> None:
    """Every bit of the numbers arrives: their three parts do."""
    x = noise(40, 64) * np.float32(10.0) ** np.random.default_rng(1).integers(-25, 25, (40, 64)).astype("f4")
    made = ran(one_op("linear", x, weight=np.eye(64, dtype=np.float32)), x)
    np.testing.assert_array_equal(made, x)


MULTIPLY = [n for n, op in ops.REGISTRY.items() if op.kind is Kind.CONTRACTION]


@pytest.mark.parametrize(("op", "case"), all_cases(names=MULTIPLY))
def test_cases_of_ops(op: Op, case: Case) -> None:
    """As in `test_engine_ops`: every op that multiplies, whether it is computed by tiles or not."""
    spec, inputs = single_op_spec(op, case)
    exact = reference.run(spec, inputs, np.float64)[0]
    node = spec.nodes[0]
    peer = torch_output(op, inputs, spec.node_params(node), node.attrs, np.float32)
    got = bslite.run(spec, inputs, threads=1)
    assert_three_way(got, peer, exact)
    for how in ({"threads": 2}, {"threads": MANY}, {"layerwise": True}):
        assert bslite.run(spec, inputs, **how).tobytes() == got.tobytes(), how


@pytest.mark.parametrize("after", ["", "relu", "silu", "residual"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name: str, after: str) -> None:
    spec, inputs = convolution(name, after)
    check(spec, *inputs, split=name != "1x1 with padding")


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_that_multiply(name: str) -> None:
    spec, inputs = OTHERS[name]()
    check(spec, *inputs)


@pytest.mark.parametrize("rows", [1, 15, 32, 33, 100])
@pytest.mark.parametrize(("terms", "outputs"), [(32, 32), (33, 31), (700, 16), (1500, 70)])
def test_products_of_rows(rows: int, terms: int, outputs: int) -> None:
    x = noise(rows, terms)
    check(one_op("linear", x, weight=noise(outputs, terms, seed=1), bias=noise(outputs)), x)


ATTENTION = {  # queries, keys, depth, features, and attributes
    "heads of 64": (50, 50, 64, 64, {}),
    "one of all": (1, 1, 1, 1, {}),
    "odd sizes": (33, 47, 17, 35, {"scale": 0.3}),
    "few queries": (3, 100, 40, 64, {}),
    "blocks of keys": (40, 700, 33, 70, {}),
    "causal": (300, 300, 16, 16, {"is_causal": True}),
    "causal, keys that nobody sees": (40, 600, 32, 16, {"is_causal": True}),
    "many rows": (290, 64, 32, 32, {}),
    "deep": (20, 40, 1000, 20, {}),
}


@pytest.mark.parametrize("mask", ["", "added", "allowed", "rows without a key"])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, mask: str) -> None:
    rows, keys, depth, features, attributes = ATTENTION[name]
    arrays = [
        noise(2, *shape, seed=n) for n, shape in enumerate(((rows, depth), (keys, depth), (keys, features)))
    ]
    seen = np.random.default_rng(3).random((rows, keys)) < 0.7
    seen[:, 0] = True
    if mask == "added":
        arrays.append(np.where(seen, noise(rows, keys, seed=4), -np.inf).astype(np.float32))
    elif mask:
        seen[::3] &= mask == "allowed"
        arrays.append(seen)
    spec = one_op("attention", *arrays, **attributes)
    exact = reference.run(spec, arrays, np.float64)[0]
    peer = torch_output(ops.get("attention"), arrays, {}, spec.nodes[0].attrs, np.float32)
    assert_three_way(ran(spec, *arrays), peer, exact, FACTOR, least=1e-7)


def test_sums_of_scores_are_not_cut() -> None:
    arrays = [noise(20, 1025), noise(30, 1025, seed=1), noise(30, 16, seed=2)]
    spec = one_op("attention", *arrays)
    assert bslite.run(spec, arrays).tobytes() == bslite.run(spec, arrays, precision="ieee").tobytes()


QKV_MASK = [(2, 40, 32), (2, 50, 32), (2, 50, 16), (40, 50)]


def with_one(operand: int, planted: float) -> tuple[ModelSpec, list[Any]]:
    arrays = [noise(*shape, seed=n) for n, shape in enumerate(QKV_MASK)]
    arrays[operand].flat[70] = planted
    return one_op("attention", *arrays), arrays


WITHOUT_PARTS = [(n, x) for n in range(3) for x in (np.inf, -np.inf, np.nan, 1e-38, 3.4e38)]


@pytest.mark.parametrize(("operand", "planted"), [*WITHOUT_PARTS, (3, np.inf), (3, np.nan)])
def test_numbers_in_attention_that_float32_computes(operand: int, planted: float) -> None:
    """Bit by bit what multiply-adds give. A mask is not split, but a score that is NaN is seen."""
    spec, arrays = with_one(operand, planted)
    made, ieee = (bslite.run(spec, arrays, precision=word) for word in ("float32", "ieee"))
    assert made.tobytes() == ieee.tobytes()


@pytest.mark.parametrize(
    ("operand", "planted"), [(0, 1e30), (1, -1e30), (2, 1e30), (3, -np.inf), (3, 1e-38), (3, -3.4e38)]
)
def test_numbers_in_attention_that_tiles_compute(operand: int, planted: float) -> None:
    spec, arrays = with_one(operand, planted)
    check(spec, *arrays)
    assert bslite.run(spec, arrays).tobytes() != bslite.run(spec, arrays, precision="ieee").tobytes()


def test_an_image_has_the_bits_that_it_has_alone() -> None:
    g = Graph()
    x = g.input("x", ("N", 48, 9, 9), (2, 48, 9, 9))
    y = g("conv2d", "a", x, weight=noise(40, 48, 1, 1))
    y = g("conv2d", "b", g("relu", "act", y), weight=noise(33, 40, 3, 3), padding=1)
    spec = g.build(y)
    batch = noise(5, 48, 9, 9)
    together = ran(spec, batch)
    for image, made in zip(batch, together, strict=True):
        np.testing.assert_array_equal(bslite.run(spec, image[None])[0], made)


@pytest.mark.parametrize("planted", [np.inf, -np.inf, np.nan, 1e-38, 1e-33, 3.4e38, -3.4e38])
@pytest.mark.parametrize("op", ["conv2d", "linear"])
def test_numbers_without_exact_parts_are_computed_by_float32(op: str, planted: float) -> None:
    """Bit by bit what multiply-adds give, from the layer to the end of the model."""
    shape = (2, 32, 6, 6) if op == "conv2d" else (7, 32)
    x = noise(*shape)
    weight = noise(32, 32, *(3, 3)[: 2 * (op == "conv2d")])
    g = Graph()
    y = g(op, "layer", g.input("x", ("N", *shape[1:]), shape), weight=weight)
    spec = g.build(g("relu", "act", y))
    usual = bslite.run(spec, x)
    assert usual.tobytes() != bslite.run(spec, x, precision="ieee").tobytes()
    x.flat[17] = planted
    assert bslite.run(spec, x).tobytes() == bslite.run(spec, x, precision="ieee").tobytes()
    x.flat[17] = noise(*shape).flat[17]
    assert bslite.run(spec, x).tobytes() == usual.tobytes()  # the flag is down again


@pytest.mark.parametrize("word", ["float32", "bfloat16_3x", "bfloat16"])
@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7FFF8000, 0x7FC00000, 0x7F800001, 0xFF7FFFFF])
def test_no_bits_of_a_number_that_is_not_finite_are_rounded_away(bits: int, word: str) -> None:
    """Rounding carries some NaN into the sign, and the largest numbers into infinity."""
    x = noise(40, 64)
    x.view(np.uint32)[3, 4] = bits
    spec = one_op("linear", x, weight=noise(64, 64, seed=1))
    made = bslite.run(spec, x, precision=word)
    assert made.tobytes() == bslite.run(spec, x, precision="ieee").tobytes()


@pytest.mark.parametrize(("filter_size", "padding"), [((1, 7), (1, 3)), ((1, 1), (1, 0)), ((1, 3), 1)])
def test_filters_of_one_row_beside_padded_rows(filter_size: Any, padding: Any) -> None:
    """Bands at an edge of the image read rows of zeros, others do not: the same bits layer by layer."""
    g = Graph()
    x = g.input("x", ("N", 24, 112, 112), (1, 24, 112, 112))
    for n, (size, pad, channels) in enumerate((((3, 3), 1, 24), (filter_size, padding, 64), ((3, 3), 1, 24))):
        depth = 64 if n == 2 else 24
        weight = noise(channels, depth, *size, seed=n) / np.float32(20)
        x = g("relu", f"act{n}", g("conv2d", f"conv{n}", x, weight=weight, padding=pad))
    spec, image = g.build(x), noise(1, 24, 112, 112)
    want = bslite.run(spec, image, threads=1, layerwise=True).tobytes()
    for threads in (1, 2):
        assert bslite.run(spec, image, threads=threads).tobytes() == want


@pytest.mark.parametrize("planted", [np.inf, np.nan, 1e-38, 3.4e38])
def test_weights_without_exact_parts_stay_float32(planted: float) -> None:
    weight = noise(32, 32)
    weight[3, 4] = planted
    x = noise(40, 32)
    spec = one_op("linear", x, weight=weight)
    made = ran(spec, x, split=False)
    assert made.tobytes() == bslite.run(spec, x, precision="ieee").tobytes()


@pytest.mark.parametrize("terms", [1, 2, 9, 16, 31])
def test_few_terms_are_as_exact(terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What six products leave out would show most there."""
    monkeypatch.setattr(split_step, "is_faster", lambda *_: True)
    x = noise(64, terms)
    check(one_op("linear", x, weight=noise(64, terms)), x)


def _only(spec: ModelSpec, x: Any, precision: str) -> Any:
    """The record of the model's one step on tiles."""
    plan = prepare(spec, [x], 1, False, tuning=Tuning(precision=bslite.Precision(precision))).plan
    (record,) = (s.record for s in plan.steps if s.record.of_parts)
    return record


@pytest.mark.parametrize("precision", ["float32", "bfloat16_3x", "bfloat16"])
@pytest.mark.parametrize(("terms", "outputs"), [(96, 32), (1500, 70), (2100, 33)])
@pytest.mark.parametrize("rows", [1, 32, 40, 64, 130])
def test_weights_that_no_cache_holds(
    rows: int, terms: int, outputs: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are fetched ahead, while pixels are split and during products before: the same bits."""
    x = noise(rows, terms)
    spec = one_op("linear", x, weight=noise(outputs, terms, seed=1), bias=noise(outputs))
    with_tiles(monkeypatch.setattr, l2=1 << 24)
    want = bslite.run(spec, x, precision=precision)
    assert not _only(spec, x, precision).far
    monkeypatch.undo()
    with_tiles(monkeypatch.setattr, l2=1 << 12)
    spec = one_op("linear", x, weight=noise(outputs, terms, seed=1), bias=noise(outputs))
    record = _only(spec, x, precision)
    assert record.far
    assert record.first_lines > 0
    assert record.quarters > 0
    made = ran(spec, x) if precision == "float32" else bslite.run(spec, x, precision=precision)
    assert made.tobytes() == want.tobytes()


def test_rows_have_the_bits_that_they_have_among_more() -> None:
    """Many are split chunk by chunk, few at once."""
    x, weight = noise(130, 2100), noise(33, 2100, seed=1)
    among = bslite.run(one_op("linear", x, weight=weight), x)
    alone = bslite.run(one_op("linear", x[:40], weight=weight), x[:40])
    assert alone.tobytes() == among[:40].tobytes()


def test_magnitudes_of_thirty_decades() -> None:
    rng = np.random.default_rng(2)
    x = noise(64, 96) * np.float32(10.0) ** rng.integers(-15, 15, (64, 96)).astype(np.float32)
    check(one_op("linear", x, weight=noise(64, 96)), x)


def test_rows_between_windows_are_not_looked_at() -> None:
    """Whether a band ends there or not."""
    x = noise(1, 32, 24, 6)
    x[:, :, 10] = 1e-38
    check(one_op("conv2d", x, weight=noise(33, 32, 1, 3), stride=(4, 1)), x)


@pytest.mark.parametrize("batch", [1, 3])
def test_matrices_of_a_batch_have_the_bits_that_they_have_alone(batch: int) -> None:
    spec = one_op("matmul", ("N", 36, 32), ("N", 32, 40))
    a, b = noise(batch, 36, 32), noise(batch, 32, 40, seed=1)
    made = ran(spec, a, b)
    for x, y, want in zip(a, b, made, strict=True):
        np.testing.assert_array_equal(bslite.run(spec, [x[None], y[None]])[0], want)


@pytest.mark.parametrize("planted", [3e38, -3e38])
def test_products_beyond_float32_are_infinite(planted: float) -> None:
    x, weight = noise(40, 64), noise(64, 64, seed=1)
    x[3, 4] = planted
    made = ran(one_op("linear", x, weight=weight), x)
    with np.errstate(over="ignore"):
        peer = x @ weight.T
    certain = np.isinf(peer) | (np.abs(peer) < 3e38)
    np.testing.assert_array_equal(np.isposinf(made[certain]), np.isposinf(peer[certain]))
    np.testing.assert_array_equal(np.isneginf(made[certain]), np.isneginf(peer[certain]))
    assert not np.isnan(made).any()


def test_fewer_products_are_less_exact() -> None:
    x = noise(64, 256)
    spec = one_op("linear", x, weight=noise(64, 256, seed=1))
    exact = reference.run(spec, [x], np.float64)[0]
    errors = {p: rel_l2(bslite.run(spec, x, precision=p.value), exact) for p in bslite.Precision}
    assert errors[bslite.Precision.FLOAT32] < 3e-7
    assert 3e-6 < errors[bslite.Precision.BFLOAT16_3X] < 1e-4
    assert 1e-3 < errors[bslite.Precision.BFLOAT16] < 2e-2
