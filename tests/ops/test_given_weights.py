"""Weights that are inputs of a model: for every case of every op that takes them, the bits of constants."""

from pathlib import Path

import numpy as np
import pytest
from support.check import Array, all_cases, assert_three_way, single_op_spec
from support.graphs import Graph
from support.noise import noise
from support.plans import gpu_plan_of

import bslite
from bslite import ops, reference
from bslite.errors import EngineError, SpecError, UnsupportedError
from bslite.ops import Case, Op
from bslite.ops.training.given import Given
from bslite.passes import fuse, simplify
from bslite.spec import ModelSpec

GIVEN = [op.of.name for op in ops.REGISTRY.values() if isinstance(op, Given)]
NORMS = ["batch_norm", "layer_norm", "rms_norm", "group_norm"]


def opened(spec: ModelSpec, given: list[Array]) -> tuple[ModelSpec, list[Array]]:
    """The model with all its parameters as inputs, and those that it takes."""
    changed = bslite.weights_as_inputs(spec, list(spec.params))
    assert not changed.params.keys() & spec.params.keys()
    return changed, [*given, *spec.params.values()]


@pytest.mark.parametrize(("op", "case"), all_cases(names=GIVEN))
def test_bits_are_those_of_constants(op: Op, case: Case) -> None:
    spec, given = single_op_spec(op, case)
    changed, taken = opened(spec, given)
    assert [node.op for node in changed.nodes] == [f"{op.name}_given"]
    assert bslite.run(changed, taken).tobytes() == bslite.run(spec, given).tobytes()


@pytest.mark.parametrize(("op", "case"), all_cases(names=NORMS))
def test_norms_become_nodes(op: Op, case: Case) -> None:
    spec, given = single_op_spec(op, case)
    changed, taken = opened(spec, given)
    exact, peer = (reference.run(spec, given, dtype)[0] for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(
        reference.run(changed, taken)[0], exact, rtol=1e-6, atol=1e-6
    )  # eps is float32
    assert_three_way(bslite.run(changed, taken), peer, exact)


def residual_block() -> ModelSpec:
    g = Graph("block")
    x = g.input("x", ("N", 24, "H", "W"), (2, 24, 9, 7))
    y = g("conv2d", "a", x, weight=noise(40, 24, 3, 3, seed=1, scale=0.1), bias=noise(40, seed=2), padding=1)
    y = g("conv2d", "b", g("relu", "r", y), weight=noise(40, 1, 5, 5, seed=3), padding=2, groups=40)
    y = g("conv2d", "c", y, weight=noise(24, 40, 1, 1, seed=4, scale=0.1), bias=noise(24, seed=5))
    return g.build(g("relu", "out", g("add", "sum", y, x)))


def test_stores_add_and_activate_and_weights_are_read_at_every_run() -> None:
    spec = residual_block()
    changed = bslite.weights_as_inputs(spec)
    assert changed.inputs[0].shape == ("N", 24, "H", "W")
    for seed, shape in enumerate([(2, 24, 9, 7), (1, 24, 30, 31)]):
        x = noise(*shape, seed=seed)
        arrays = [np.asarray((1 + seed) * array) for array in spec.params.values()]
        fixed = spec.replace(params=dict(zip(spec.params, arrays, strict=True)))
        for threads in (1, 2):
            made = bslite.run(changed, [x, *arrays], threads=threads)
            assert made.tobytes() == bslite.run(fixed, x, threads=threads).tobytes()
    kinds = {layer.node.op for layer in fuse(simplify(changed))}
    assert kinds == {"conv2d_given"}  # the sum and both activations are in stores


def test_weights_may_be_made_by_layers(tmp_path: Path) -> None:
    g = Graph("made")
    x, w = g.input("x", (2, 6, 8, 9)), g.input("w", (12, 3, 3, 6))
    turned = g.add("permute", "turned", w, order=(0, 3, 1, 2))
    y = g.add("conv2d_given", "y", x, g.add("tanh", "bounded", turned), padding=1)
    vector = g.add("mean", "vector", y, axes=(0, 2, 3))
    kernels = g.add("reshape", "kernels", g.add("slice", "s", y, axis=2, start=0, stop=1), shape=(2, 12, 9))
    last = g.add("conv1d_given", "z", g.add("flatten", "f", y, start_axis=2), kernels)
    dense = g.add("linear_given", "d", last, g.add("slice", "t", last, axis=1, start=0, stop=2), vector)
    with pytest.raises(SpecError, match=r"layer 'd'.*a weight \[K, C\], got .* rank 3"):
        g.build(dense)
    g.nodes.pop()
    matrix = g.add("reshape", "matrix", g.add("mean", "m", last, axes=(0,)), shape=(2, 64))
    spec = g.build(
        g.add("linear_given", "e", last, matrix, g.add("slice", "u", vector, axis=0, start=2, stop=4))
    )
    bslite.save(spec, tmp_path / "made")
    again = bslite.load(tmp_path / "made")
    given = [noise(2, 6, 8, 9), noise(12, 3, 3, 6, seed=1)]
    exact, peer = (reference.run(again, given, dtype)[0] for dtype in (np.float64, np.float32))
    made = bslite.run(again, given, threads=1)
    assert_three_way(made, peer, exact)
    for how in ({"threads": 2}, {"layerwise": True}):
        assert bslite.run(spec, given, **how).tobytes() == made.tobytes()


def test_what_takes_no_values_says_so() -> None:
    g = Graph("lacking")
    x = g.input("x", (5, 2, 4))
    y = g("lstm", "first", x, weight_ih=noise(12, 4), weight_hh=noise(12, 3), peephole=noise(9))
    spec = g.build(g("linear", "second", y, weight=noise(2, 3)))
    with pytest.raises(UnsupportedError, match=r"layer 'first': op 'lstm'.*peephole"):
        bslite.weights_as_inputs(spec)
    with pytest.raises(SpecError, match=r"'second\.bias' is no parameter"):
        bslite.weights_as_inputs(spec, ["second.bias"])
    key = spec.nodes[1].params["weight"]
    changed = bslite.weights_as_inputs(spec, [key])
    assert [node.op for node in changed.nodes] == ["lstm", "linear_given"]
    with pytest.raises(EngineError, match="the GPU engine has no kernel for linear_given"):
        gpu_plan_of(changed, (5, 2, 4), (2, 3))


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (3, 0, 2, 1), (2, 1, 3, 0)])
def test_filters_of_one_column_lie_anywhere(order: tuple[int, ...]) -> None:
    """A column of pixels is taken as a line; the filter with it, whose strides are a permutation's."""
    sizes = [0] * 4
    for size, place in zip((9, 6, 3, 5), order, strict=True):
        sizes[place] = size
    g = Graph("column")
    x, w = g.input("x", (2, 6, 12, 1)), g.input("w", sizes)
    turned = g.add("permute", "turned", g.add("neg", "values", w), order=order)
    weight = g.add("slice", "weight", turned, axis=3, start=2, stop=3)
    spec = g.build(g.add("conv2d_given", "y", x, weight, padding=(1, 0)))
    given = [noise(2, 6, 12, 1), noise(*sizes, seed=1)]
    exact, peer = (reference.run(spec, given, dtype)[0] for dtype in (np.float64, np.float32))
    assert_three_way(bslite.run(spec, given), peer, exact)
