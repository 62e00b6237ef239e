"""Quantised layers become sums of integers with what follows them in their store, and stay exact."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.onnx_models import helper, model

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import GraphBuilder, ModelSpec


def block(form: str) -> Any:
    """A residual block of two convolutions, quantised by hand: input, outputs and all scales in ``form``."""
    rng = np.random.default_rng(0)
    nodes, stored = [], {}

    def const(name: str, value: Any) -> str:
        stored[name] = np.asarray(value)
        return name

    steps = {"x": (0.02, 3), "c1": (0.05, 128), "c2": (0.04, 120), "y": (0.06, 100), "z": (0.05, 90)}
    for name, (step, zero) in steps.items():
        const(f"{name}_s", np.float32(step))
        const(f"{name}_z", np.uint8(zero))

    def quantize(x: str, name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [x, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
        return f"{name}_q"

    def dequantize(name: str) -> str:
        made = f"{name}_d{len(nodes)}"
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [made]))
        return made

    def conv(x: str, name: str, k: int, r: int) -> None:
        weight = rng.integers(-127, 128, (k, 20, r, r)).astype(np.int8)
        ws, wz = (
            const(f"{name}_ws", np.float32(rng.uniform(1e-4, 1e-3, k))),
            const(f"{name}_wz", np.zeros(k, np.int8)),
        )
        w, pads = const(f"{name}_w", weight), [r // 2] * 4
        if form == "QDQ":
            nodes.append(helper.make_node("DequantizeLinear", [w, ws, wz], [f"{name}_wd"], axis=0))
            b = const(f"{name}_b", rng.standard_normal(k).astype(np.float32))
            nodes.append(helper.make_node("Conv", [dequantize(x), f"{name}_wd", b], [name], pads=pads))
            if name == "c1":
                nodes.append(helper.make_node("Relu", [name], [f"{name}_r"]))
            quantize(f"{name}_r" if name == "c1" else name, name)
        else:
            b = const(f"{name}_b", rng.integers(-9000, 9000, k).astype(np.int32))
            ins = [f"{x}_q", f"{x}_s", f"{x}_z", w, ws, wz, f"{name}_s", f"{name}_z", b]
            nodes.append(helper.make_node("QLinearConv", ins, [f"{name}_q"], pads=pads))

    quantize("x", "x")
    conv("x", "c1", 20, 3)
    conv("c1", "c2", 20, 1)
    if form == "QDQ":
        nodes.append(helper.make_node("Add", [dequantize("c2"), dequantize("x")], ["sum"]))
        nodes.append(helper.make_node("Relu", ["sum"], ["relu"]))
        quantize("relu", "y")
    else:
        ins = ["c2_q", "c2_s", "c2_z", "x_q", "x_s", "x_z", "y_s", "y_z"]
        nodes.append(helper.make_node("QLinearAdd", ins, ["y_q"], domain="com.microsoft"))
    conv("y", "z", 12, 1)
    image = helper.make_tensor_value_info("x", 1, ["n", 20, 7, 9])
    made = [helper.make_tensor_value_info("z_q", 2, None)]
    return model(nodes, [image], made, stored, ir=9, domains={"com.microsoft": 1})


def images(batch: int) -> Array:
    return np.random.default_rng(batch).standard_normal((batch, 20, 7, 9)).astype(np.float32)


def ops_of(spec: ModelSpec) -> list[str]:
    return [n.op for n in simplify(spec).nodes]


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_block_is_three_sums(form: str) -> None:
    """The first two with everything up to the next pairs, the second with the residual."""
    spec = bslite.from_onnx(block(form))
    sums = [n for n in simplify(spec).nodes if n.op == "int_conv2d"]
    assert [n.attrs["to"] for n in sums] == ["pairs", "pairs", "float32"]
    assert [n.attrs["own"] != 0 for n in sums] == [False, True, False]
    assert not {"conv2d", "mul", "relu", "clamp"} & set(ops_of(spec))


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_block_is_what_the_graph_says(form: str) -> None:
    """Against the reference of the model as it was read; in steps, and as bytes mostly the same."""
    spec = bslite.from_onnx(block(form))
    for batch in (1, 3):
        x = images(batch)
        want = reference.run(spec, [x])[0].astype(int)
        got = np.asarray(bslite.run(spec, x))
        apart = np.abs(got.astype(int) - want)
        assert apart.max() <= 1
        assert apart.mean() < 0.01
        assert np.ptp(want) > 20
        for how in ({"threads": 2}, {"layerwise": True}):
            assert np.asarray(bslite.run(spec, x, **how)).tobytes() == got.tobytes(), how


def test_products_do_not_saturate() -> None:
    """Sums of products of the largest numbers are beyond 16 bits at once."""
    graph = GraphBuilder("extremes")
    graph.params["w"] = np.full((3, 512), -128, np.int8)
    x = graph.input("x", (2, 512))
    y = graph.add("int_linear", "y", graph.add("pairs", "p", x, axis=-1), params={"weight": "w"})
    got = np.asarray(bslite.run(graph.build(y), np.full((2, 512), 255, np.float32)))
    np.testing.assert_array_equal(got, np.full((2, 3), -128 * 255 * 512, np.int32))


def test_two_readers_keep_the_value() -> None:
    """Numbers that something else reads as well stay float32; their pairs are a step."""
    graph = GraphBuilder("readers")
    graph.params["w"] = np.random.default_rng(1).integers(-9, 9, (6, 4, 1, 1)).astype(np.int8)
    x = graph.input("x", (1, 4, 5, 5))
    q = graph.add("quantize", "q", x, scale=0.1, low=-128.0)
    y = graph.add("int_conv2d", "y", graph.add("pairs", "p", q), params={"weight": "w"}, to="float32")
    rounded = graph.add("quantize", "r", y, scale=2.0, low=-128.0)
    spec = graph.build(graph.add("pairs", "out", rounded), rounded)
    assert ops_of(spec) == ["quantize", "quads", "int_conv2d", "pairs"]
    given = np.random.default_rng(2).standard_normal((1, 4, 5, 5)).astype(np.float32)
    for got, want in zip(bslite.run(spec, given), reference.run(spec, [given]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_weights_beyond_16_bits_are_an_error() -> None:
    graph = GraphBuilder("wide")
    graph.params["w"] = np.full((1, 2), 2**15, np.int32)
    pairs = graph.add("pairs", "p", graph.input("x", (1, 2)), axis=-1)
    spec = graph.build(graph.add("int_linear", "y", pairs, params={"weight": "w"}))
    with pytest.raises(bslite.SpecError, match="expected numbers of 16 bits"):
        bslite.run(spec, np.zeros((1, 2), np.float32))
