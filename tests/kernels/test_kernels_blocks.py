"""Products with weights of few bits: the same bits however rows and threads are cut, nothing read beyond."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way, rel_l2
from support.graphs import Graph, one_op
from support.kernel_checks import MANY
from support.noise import noise
from support.torch_oracle import torch_output

import bslite
from bslite import ops, reference
from bslite.engines.cpu.engine import prepare
from bslite.errors import SpecError, UnsupportedError
from bslite.kernels.contracts.cpu.blocks import Blocks
from bslite.passes.simplify import simplify_for_gpu
from bslite.plan.cpu.ops.block_linear import CHUNK, FEW, piece
from bslite.spec import ModelSpec


def layer(terms: int, k: int, block: int, bits: int = 4, zeros: bool = False, **extra: Any) -> ModelSpec:
    """A layer of random numbers, for any number of rows; zeros may be fractions."""
    rng, blocks = np.random.default_rng(5), -(-terms // block)
    params = {
        "weight": rng.integers(0, 256, (k, blocks, block * bits // 8), np.uint8),
        "scale": noise(k, blocks, seed=1) / np.float32(2**bits),
    }
    if zeros:
        params["zero"] = rng.uniform(0, 2**bits, (k, blocks)).astype(np.float32)
    return one_op("block_linear", ("N", terms), bits=bits, **params, **extra)


def check(spec: ModelSpec, x: Any) -> Any:
    """The output, three-way, the same bits on any threads."""
    node = spec.nodes[0]
    exact = reference.run(spec, [x], np.float64)[0]
    peer = torch_output(ops.get(node.op), [x], spec.node_params(node), node.attrs, np.float32)
    made = bslite.run(spec, x, threads=1)
    assert_three_way(made, peer, exact)
    for how in ({"threads": 2}, {"threads": MANY}, {"threads": 2, "layerwise": True}):
        assert bslite.run(spec, x, **how).tobytes() == made.tobytes()
    return made


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("terms", "block"), [(256, 32), (1000, 64), (2048, 16), (1031, 256), (520, 8)])
@pytest.mark.parametrize("k", [1, 17, 64, 130])
def test_a_row_has_the_bits_that_it_has_among_others(
    k: int, terms: int, block: int, bits: int, zeros: bool
) -> None:
    """Few rows widen weights in registers, many in memory, in bands of rows."""
    x = noise(300, terms)
    spec = layer(terms, k, block, bits, zeros, bias=noise(k))
    made = check(spec, x)
    for rows in (1, 2, FEW, FEW + 1, 9, 129):
        assert bslite.run(spec, x[7 : 7 + rows]).tobytes() == made[7 : 7 + rows].tobytes()


@pytest.mark.parametrize("planted", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [1, 9])
def test_what_is_not_finite_reaches_the_results(rows: int, planted: float) -> None:
    x = noise(rows, 128)
    spec = layer(128, 40, 32)
    x[0, 70] = planted
    made = bslite.run(spec, x)
    assert np.isnan(made[0]).all() == np.isnan(planted)
    assert not np.isfinite(made[0]).any()
    assert np.isfinite(made[1:]).all()


def test_scales_that_are_not_finite_reach_their_column() -> None:
    x = noise(2, 128)
    spec = layer(128, 40, 32)
    key = spec.nodes[0].params["scale"]
    scale = spec.params[key].copy()
    scale[3, 1] = np.nan
    spec = dataclasses.replace(spec, params={**spec.params, key: scale})
    made = bslite.run(spec, x)
    assert (np.isnan(made).any(0) == (np.arange(40) == 3)).all()


@pytest.mark.parametrize(("block", "bits", "taken"), [(32, 4, 32), (1024, 8, 128), (24, 4, 24), (96, 8, 96)])
def test_large_blocks_are_taken_in_pieces(block: int, bits: int, taken: int) -> None:
    assert piece(block, bits) == taken <= CHUNK


def test_weights_lie_in_few_bits() -> None:
    x = noise(1, 4096)
    spec = layer(4096, 1024, 32)
    session = prepare(spec, [x], 2, False)
    (record,) = (s.record for s in session.plan.steps)
    assert isinstance(record, Blocks)
    assert record.panels * record.panel_bytes == 4096 * 1024 * (4 + 1) // 8
    assert "weights lie in 4 bits, blocks of 32" in bslite.explain(spec, x).layers[0].holds


@pytest.mark.parametrize(
    ("weight", "scale", "bits", "says"),
    [
        ((8, 4, 16), (8, 4), 3, "3 bits, expected 4 or 8"),
        ((8, 3, 16), (8, 3), 4, "has 3 blocks of 32"),
        ((8, 5, 16), (8, 5), 4, "has 5 blocks of 32"),
        ((8, 4, 16), (8, 3), 4, "scale"),
    ],
)
def test_what_does_not_fit_is_an_error(weight: Any, scale: Any, bits: int, says: str) -> None:
    params = {"weight": np.zeros(weight, np.uint8), "scale": np.ones(scale, np.float32)}
    with pytest.raises(SpecError, match=says):
        one_op("block_linear", noise(2, 128), bits=bits, **params)
    with pytest.raises(SpecError, match="'weight' is float32, expected uint8"):
        one_op("block_linear", noise(2, 128), **{**params, "weight": np.zeros((8, 4, 16), np.float32)})


@pytest.mark.parametrize("function", ["relu", "silu", "gelu"])
@pytest.mark.parametrize("rows", [1, 50])
def test_an_activation_rides_along(function: str, rows: int) -> None:
    g, x = Graph(), noise(rows, 300)
    of = layer(300, 70, 32, bias=noise(70))
    node = of.nodes[0]
    y = g("block_linear", "layer", g.input("x", ("N", 300), x.shape), **of.node_params(node), bits=4)
    spec = g.build(g(function, "act", y))
    assert len(prepare(spec, [x], 2, False).plan.steps) == 1
    made = bslite.run(spec, x)
    np.testing.assert_array_equal(made, bslite.run(spec, x, layerwise=True))
    assert_three_way(made, *(reference.run(spec, [x], kind)[0] for kind in (np.float32, np.float64)))


def test_a_model_file_keeps_them(tmp_path: Path) -> None:
    spec, x = layer(300, 40, 32, zeros=True), noise(3, 300)
    spec.save(tmp_path / "model.safetensors")
    again = bslite.load(tmp_path / "model.safetensors")
    assert {a.dtype.name for a in again.params.values()} == {"uint8", "float32"}
    assert bslite.run(again, x).tobytes() == bslite.run(spec, x).tobytes()


def test_a_gpu_gets_them_as_float32() -> None:
    spec, x = layer(300, 40, 32, zeros=True, bias=noise(40)), noise(3, 300)
    widened = simplify_for_gpu(spec)
    assert [node.op for node in widened.nodes] == ["linear"]
    exact = reference.run(spec, [x], np.float64)[0]
    assert rel_l2(reference.run(widened, [x], np.float64)[0], exact) < 1e-7


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 5, 96), (1, 3, 96)])
def test_results_may_be_slices_of_a_concat(shape: Any, axis: int) -> None:
    """Rows that are not one run in memory."""
    g, x, of = Graph(), noise(*shape), layer(96, 24, 32)
    source = g.input("x", shape)
    y = g("block_linear", "few", source, **of.node_params(of.nodes[0]), bits=4)
    z = g("linear", "all", source, weight=noise(24, 96))
    check_all(g.build(g("concat", "both", y, z, axis=axis)), x)


def check_all(spec: ModelSpec, x: Any) -> None:
    """Three-way, with the reference in float32 for a peer."""
    peer, exact = (reference.run(spec, [x], kind)[0] for kind in (np.float32, np.float64))
    for how in ({}, {"layerwise": True}):
        assert_three_way(bslite.run(spec, x, **how), peer, exact)


def test_gradients_are_those_by_the_numbers_as_float32() -> None:
    spec, x = layer(64, 24, 32, zeros=True, bias=noise(24)), noise(3, 64)
    grad = bslite.gradient(spec, wrt=["x0"], shapes=[x.shape])
    _, made = bslite.run(grad, [x, np.ones((3, 24), np.float32)])
    widened = simplify_for_gpu(spec)
    weight = widened.params[widened.nodes[0].params["weight"]]
    assert rel_l2(made, np.ones((3, 24)) @ weight.astype(np.float64)) < 1e-6
    assert "d/layer/widened" in bslite.gradient(spec, shapes=[x.shape]).labels
    scale = spec.nodes[0].params["scale"]
    with pytest.raises(
        UnsupportedError, match="layer 'layer': op 'block_linear' has no gradient by its scale"
    ):
        bslite.gradient(spec, wrt=[scale])
