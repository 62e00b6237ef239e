"""Layers of ONNX whose weights alone are whole numbers: they stay so."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.check import rel_l2
from support.noise import noise

import bslite
from bslite.errors import SpecError
from bslite.spec import ModelSpec

RANGES = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}
K, N = 1024, 300


def read(nodes: Any, inits: Any, k: int = K, n: int = N) -> ModelSpec:
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", k])]
    ends.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", n]))
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], inits)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bslite.from_onnx(helper.make_model(graph, opset_imports=sets, ir_version=10))


def numbers_of(name: str, kind: str, array: Any) -> Any:
    return helper.make_tensor(name, getattr(TensorProto, kind.upper()), array.shape, array.ravel().tolist())


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 32, 256])
@pytest.mark.parametrize("kind", RANGES)
def test_dequantised_weights(kind: str, block: int, zeros: bool, gemm: bool) -> None:
    rng, rows = np.random.default_rng(0), gemm
    shape, axis = ((N, K), 1) if rows else ((K, N), 0)
    numbers = rng.integers(*RANGES[kind], shape)
    each = [n // (block if block and i == axis else 1) for i, n in enumerate(shape)] if block else [N]
    scale = (rng.random(each) / 100).astype(np.float32)
    zero = rng.integers(*RANGES[kind], each) if zeros else np.zeros(each, np.int64)
    inits = [numbers_of("w", kind, numbers), numpy_helper.from_array(scale, "s")]
    inits += [numbers_of("z", kind, zero)] * zeros
    how = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    made = helper.make_node("DequantizeLinear", ["w", "s", "z"][: 2 + zeros], ["d"], **how)
    bias = noise(N)
    if gemm:
        inits.append(numpy_helper.from_array(bias, "b"))
        layer = helper.make_node("Gemm", ["x", "d", "b"], ["y"], transB=1)
    else:
        layer = helper.make_node("MatMul", ["x", "d"], ["y"])
    spec, x = read([made, layer], inits), noise(3, K)
    assert [node.op for node in spec.nodes] == ["block_linear"]
    assert {a.dtype.name for a in spec.params.values()} == {"uint8", "float32"}
    if block:
        scale, zero = (a.repeat(block, axis) for a in (scale, zero))
    elif rows:
        scale, zero = scale[:, None], zero[:, None]
    weight = (numbers - zero).astype(np.float64) * scale
    want = x @ (weight.T if rows else weight) + bias * gemm
    assert rel_l2(bslite.run(spec, x), want) < 1e-6


def test_few_weights_and_scales_across_blocks_become_float32() -> None:
    """A scale for each row of the sum is no block's."""
    rng = np.random.default_rng(0)
    numbers, scale = rng.integers(-128, 128, (K, N)), rng.random(K).astype(np.float32)
    inits = [numbers_of("w", "int8", numbers), numpy_helper.from_array(scale, "s")]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    spec, x = read(nodes, inits), noise(2, K)
    assert [node.op for node in spec.nodes] == ["linear"]
    assert rel_l2(bslite.run(spec, x), x @ (numbers * scale[:, None].astype(np.float64))) < 1e-6


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("zeros", [None, np.uint8, np.float32])
@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_of_bits(bits: int, zeros: Any, half: bool) -> None:
    """In float32 and in float16, zero points packed or not."""
    rng, block = np.random.default_rng(0), 64
    blocks = K // block
    kind = np.float16 if half else np.float32
    codes = rng.integers(0, 2**bits, (N, K))
    scale = (rng.random((N, blocks)) / 100).astype(kind)
    inits = [
        numpy_helper.from_array(packed(codes, bits).reshape(N, blocks, -1), "w"),
        numpy_helper.from_array(scale, "s"),
    ]
    zero = np.full((N, blocks), 2.0 ** (bits - 1))
    if zeros is np.uint8:
        zero = rng.integers(0, 2**bits, (N, blocks))
        inits.append(numpy_helper.from_array(packed(zero, bits), "z"))
    elif zeros:
        zero = rng.uniform(0, 2**bits, (N, blocks)).astype(kind)
        inits.append(numpy_helper.from_array(zero, "z"))
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z"][: 3 + (zeros is not None)], ["y"], domain="com.microsoft",
        K=K, N=N, bits=bits, block_size=block,
    )  # fmt: skip
    of = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, of, ["n", n]) for name, n in (("x", K), ("y", N))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], inits)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = bslite.compile(helper.make_model(graph, opset_imports=sets, ir_version=10))
    x = noise(3, K).astype(kind)
    made = model(x)["y"]
    weight = (codes.reshape(N, blocks, block) - zero[..., None].astype(np.float64)) * scale[..., None]
    assert made.dtype == kind
    assert rel_l2(made.astype(np.float64), x @ weight.reshape(N, K).T) < (1e-3 if half else 1e-6)


def packed(numbers: Any, bits: int) -> Any:
    """Numbers of 4 bits two to a byte, the first one lower."""
    few = numbers.astype(np.uint8)
    return few if bits == 8 else few[:, ::2] | few[:, 1::2] << 4


@pytest.mark.parametrize("scale", [(), (1,), (700,)])
def test_zero_points_for_rows_of_the_sum_are_no_blocks(scale: Any) -> None:
    """Nor are they taken for those of the outputs, of which there are as many."""
    rng, side = np.random.default_rng(0), 700
    numbers, zero = rng.integers(-128, 128, (side, side)), rng.integers(-128, 128, side)
    by = (rng.random(scale) / 100).astype(np.float32)
    inits = [
        numbers_of("w", "int8", numbers),
        numpy_helper.from_array(by, "s"),
        numbers_of("z", "int8", zero),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    spec, x = read(nodes, inits, side, side), noise(2, side)
    assert [node.op for node in spec.nodes] == ["linear"]
    weight = (numbers - zero[:, None]) * by.astype(np.float64).reshape(-1, 1)
    assert rel_l2(bslite.run(spec, x), x @ weight) < 1e-6


def test_an_input_that_is_not_of_k_features_is_an_error() -> None:
    """Though as many blocks would hold it."""
    inits = [
        numpy_helper.from_array(np.zeros((N, 64, 8), np.uint8), "w"),
        numpy_helper.from_array(np.ones((N, 64), np.float32), "s"),
    ]
    how: Any = {"domain": "com.microsoft", "K": K - 1, "N": N, "bits": 4, "block_size": 16}
    with pytest.raises(SpecError, match=f"its K is {K - 1}"):
        read([helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **how)], inits)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_large_table(bits: int) -> None:
    """In words of 32 bits, whose first bit is a sign, for any number of rows."""
    drawn, rows, columns, block = np.random.default_rng(0), 1100, 256, 32
    numbers = drawn.integers(0, 2**bits, (rows, columns))
    numbers[7] = 2**bits - 1
    scale = drawn.uniform(0.01, 0.1, (rows, columns // block)).astype(np.float32)
    zero = drawn.integers(0, 2**bits, scale.shape)
    stored = {
        name: np.uint8(a if bits == 8 else a[:, ::2] | a[:, 1::2] << 4)
        for name, a in (("table", numbers), ("zero", zero))
    }
    inits = [numpy_helper.from_array(a, name) for name, a in {**stored, "scale": scale}.items()]
    how = {"bits": bits, "block_size": block, "quantize_axis": 1, "domain": "com.microsoft"}
    node = helper.make_node("GatherBlockQuantized", ["table", "x", "scale", "zero"], ["y"], **how)
    ends = [
        helper.make_tensor_value_info("x", TensorProto.INT64, ["n", "t"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "t", columns]),
    ]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], inits), opset_imports=sets)
    whole = (numbers - zero.repeat(block, 1)).astype(np.float32) * scale.repeat(block, 1)
    model = bslite.compile(made)
    for x in ([[0, 7, 1099], [500, -1, 3]], [[7]]):
        np.testing.assert_array_equal(model(np.array(x))[0], whole[x])
    assert bslite.verify(model, np.array(x)).passed
    assert model.memory["weights"] < 0.6 * whole.nbytes
