"""Quantised ONNX models: integers exact, whole models as onnxruntime computes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_models import helper, inputs_like, onnx, untyped
from support.onnx_models import model as onnx_model

import bslite
from bslite import from_onnx, load, run, save
from bslite.onnx import backend

reference = pytest.importorskip("onnx.reference")
ort = pytest.importorskip("onnxruntime")
ml_dtypes = pytest.importorskip("ml_dtypes")  # onnx itself needs it

Array = Any


def model(nodes: list[Any], inputs: dict[str, Array], outputs: list[str], constants: dict[str, Array]) -> Any:
    """A model whose inputs are shaped like the arrays, the first size of each left open."""
    given = [i for n, x in inputs.items() for i in inputs_like({n: x}, n.upper())]
    return onnx_model(nodes, given, untyped(*outputs), constants, 21, ir=10, domains={"com.microsoft": 1})


def both(made: Any, inputs: dict[str, Array]) -> list[tuple[Array, Array]]:
    """Each output by bslite and by onnxruntime."""
    ours = backend.prepare(made).run(inputs)
    theirs = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, inputs
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
    return list(zip(ours, theirs, strict=True))


def draw(seed: int, shape: tuple[int, ...], dtype: str = "uint8") -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("length", [64, 700, 2000])
@pytest.mark.parametrize("known", [True, False])
def test_products_of_integers_are_exact(length: int, known: bool) -> None:
    """However long: sums beyond 2**24 are made of parts."""
    a, b = draw(1, (3, length)), draw(2, (length, 5), "int8")
    a[0], b[:, 0] = 255, 127
    zeros = {"za": np.uint8(3), "zb": np.int8(-5)}
    inputs, constants = ({"a": a}, {"b": b}) if known else ({"a": a, "b": b}, {})
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    (y,) = backend.prepare(model([node], inputs, ["y"], {**constants, **zeros})).run(inputs)
    np.testing.assert_array_equal(y, (a.astype(np.int64) - 3) @ (b.astype(np.int64) + 5))


@pytest.mark.parametrize(("channels", "groups"), [(4, 1), (200, 1), (200, 2), (64, 64)])
def test_convolutions_of_integers_are_exact(channels: int, groups: int) -> None:
    x, w = draw(3, (2, channels, 6, 5)), draw(4, (2 * groups, channels // groups, 3, 3), "int8")
    x[0], w[0] = 255, -128
    node = helper.make_node("ConvInteger", ["x", "w", "zx"], ["y"], pads=[1, 1, 1, 1], group=groups)
    made = model([node], {"x": x}, ["y"], {"w": w, "zx": np.uint8(7)})
    (y,) = backend.prepare(made).run([x])
    wide = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups)
    exact = model([wide], {"x": x.astype(np.float64)}, ["y"], {"w": w.astype(np.float64)})
    want = reference.ReferenceEvaluator(exact).run(None, {"x": x.astype(np.float64) - 7})[0]
    np.testing.assert_array_equal(y, want)


def test_one_filter_larger_than_float32_holds() -> None:
    """Of many taps on a channel of its own, and with a bias of more than 24 bits."""
    x, w = draw(5, (1, 2, 40, 40)), draw(6, (2, 1, 33, 33), "int8")
    x[:], w[:] = 255, 127
    bias = np.array([2**30 + 1, -(2**30) - 1], np.int32)
    scales = {"one": np.float32(1), "small": np.float32(2**24), "zx": np.uint8(0), "zw": np.int8(0)}
    node = helper.make_node(
        "QLinearConv", ["x", "one", "zx", "w", "one", "zw", "small", "zx", "b"], ["y"], group=2
    )
    inputs = {"x": x}
    ((a, b),) = both(model([node], inputs, ["y"], {"w": w, "b": bias, **scales}), inputs)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("to", ["uint8", "int8"])
def test_halves_go_to_even_and_large_numbers_to_the_nearest(to: str) -> None:
    x = np.array([[-1e9, -1.5, -0.5, 0.5, 1.5, 2.5, 130.5, 1e9, np.inf, -np.inf]], np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": np.float32(1), "z": np.array(3, to)}
    ((a, b),) = both(model([node], {"x": x}, ["y"], constants), {"x": x})
    np.testing.assert_array_equal(a, b)


def test_bytes_at_the_border_and_on_the_way(tmp_path: Path) -> None:
    """Moved, compared and pooled as they are; kept in a file."""
    x = draw(7, (2, 3, 6, 5))
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MaxPool", ["t"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Concat", ["p", "p"], ["y"], axis=1),
        helper.make_node("Greater", ["x", "k"], ["g"]),
        helper.make_node("Where", ["g", "x", "k"], ["w"]),
        helper.make_node("Add", ["x", "one"], ["sum"]),
    ]
    x = np.minimum(x, 254)
    made = model(nodes, {"x": x}, ["y", "w", "sum"], {"k": np.array([100], np.uint8), "one": np.uint8(1)})
    for a, b in both(made, {"x": x}):
        np.testing.assert_array_equal(a, b)
    spec = from_onnx(made, shapes={"x": x.shape})
    save(spec, tmp_path / "model")
    for a, b in zip(run(load(tmp_path / "model"), x), run(spec, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_numbers_beyond_a_byte_wrap_around() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.UINT8)
    rep = backend.prepare(model([node], {"x": np.zeros((3,), np.float32)}, ["y"], {}))
    assert rep.run([np.float32([0, 255.9, 12])])[0].tolist() == [0, 255, 12]
    for beyond, want in ((300.5, 44), (-1.0, 255), (2.0**31 - 128, 128)):
        assert rep.run([np.float32([0, beyond, 12])])[0].tolist() == [0, want, 12]


QA = {"sa": np.float32(0.03), "za": np.uint8(120), "sb": np.float32(0.02), "zb": np.uint8(3)}
QY = {"sy": np.float32(0.05), "zy": np.uint8(9)}


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("QLinearAdd", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], {}),
        ("QLinearMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], {}),
        ("QLinearSigmoid", ["a", "sa", "za", "sb", "zb"], {}),
        ("QLinearLeakyRelu", ["a", "sa", "za", "sb", "zb"], {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", ["a", "sa", "za", "sb", "zb"], {}),
        ("QLinearAveragePool", ["a", "sa", "za", "sy", "zy"], {"kernel_shape": [2, 3], "strides": [1, 2]}),
        ("QLinearConcat", ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"], {"axis": 1}),
        ("QLinearSoftmax", ["a", "sa", "za", "sb", "zb"], {"opset": 13, "axis": 3}),
        ("QLinearWhere", ["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"], {}),
    ],
)
def test_onnxruntimes_integer_operators(op: str, operands: list[str], attrs: dict[str, Any]) -> None:
    """Within one unit, and mostly equal."""
    a, b = draw(8, (2, 5, 7, 9)), draw(9, (2, 5, 7, 9))
    node = helper.make_node(op, operands, ["y"], domain="com.microsoft", **attrs)
    inputs = {"a": a, "b": b} if "b" in operands else {"a": a}
    constants = {**QA, **QY, **({"c": a[:, :1] > 99} if "c" in operands else {})}
    ((ours, theirs),) = both(model([node], inputs, ["y"], constants), inputs)
    apart = np.abs(ours.astype(int) - theirs.astype(int))
    assert apart.max() <= 1
    assert apart.mean() < 0.1
    assert np.ptp(theirs) > 3


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("FusedMatMul", ["x", "square"], {"alpha": 0.5, "transA": 0, "transB": 1}),
        ("Gelu", ["x"], {}),
        ("BiasGelu", ["x", "vector"], {}),
        ("FastGelu", ["x", "vector"], {}),
        ("QuickGelu", ["x"], {"alpha": 1.5}),
        ("SkipLayerNormalization", ["x", "x", "vector", "vector", "vector"], {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", ["x", "x", "vector"], {"epsilon": 1e-5}),
        ("DynamicQuantizeMatMul", ["x", "small", "number", "", "vector"], {}),
        ("MatMulNBits", ["x", "packed", "scales"], {"K": 16, "N": 16, "bits": 4, "block_size": 16}),
    ],
)
def test_onnxruntimes_float_operators(op: str, operands: list[str], attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(10)
    x = rng.standard_normal((2, 3, 16)).astype(np.float32)
    constants = {
        "square": rng.standard_normal((16, 16)).astype(np.float32),
        "vector": rng.standard_normal(16).astype(np.float32), "small": draw(11, (16, 16), "int8") // 2,
        "number": np.float32(0.01), "packed": draw(12, (16, 1, 8)),
        "scales": rng.uniform(0.1, 1, 16).astype(np.float32),
    }  # fmt: skip
    node = helper.make_node(op, operands, ["y"], domain="com.microsoft", **attrs)
    used = {n: c for n, c in constants.items() if n in operands}
    ((ours, theirs),) = both(model([node], {"x": x}, ["y"], used), {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_integers(masked: bool) -> None:
    x, mask = draw(20, (2, 6, 16)), np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)
    constants = {
        "w": draw(21, (16, 48), "int8") // 2, "b": np.linspace(-1, 1, 48, dtype=np.float32),
        "number": np.float32(0.01), "zx": np.uint8(120), "zw": np.int8(0),
    }  # fmt: skip
    operands = ["x", "w", "b", "number", "number", "mask" if masked else "", "zx", "zw"]
    node = helper.make_node("QAttention", operands, ["y"], domain="com.microsoft", num_heads=4)
    inputs = {"x": x, "mask": mask} if masked else {"x": x}
    ((ours, theirs),) = both(model([node], inputs, ["y"], constants), inputs)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_embeddings_of_integers() -> None:
    words, segments = draw(22, (2, 7)).astype(np.int32) % 20, draw(23, (2, 7)).astype(np.int32) % 2
    shapes = {"w": (20, 16), "p": (9, 16), "t": (2, 16), "gamma": (16,), "beta": (16,)}
    constants = {name: draw(24 + i, shape) for i, (name, shape) in enumerate(shapes.items())}
    constants |= {f"s{i}": np.float32(0.01 * (i + 1)) for i in range(5)}
    constants |= {f"z{i}": np.uint8(100 + i) for i in range(5)}
    operands = ["x", "segments", *shapes, "", *(f"s{i}" for i in range(5)), *(f"z{i}" for i in range(5))]
    node = helper.make_node("QEmbedLayerNormalization", operands, ["y", "index"], domain="com.microsoft")
    inputs = {"x": words, "segments": segments}
    ((ours, theirs),) = both(model([node], inputs, ["y"], constants), inputs)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_states_of_a_recurrent_layer_are_rounded(batch: int) -> None:
    """As onnxruntime does it, which is far from an LSTM in float32: its weights are kept from saturating."""
    rng, hidden = np.random.default_rng(3), 24
    constants: dict[str, Array] = {
        "w": rng.integers(-63, 64, (2, 10, 4 * hidden)).astype(np.int8),
        "r": rng.integers(-63, 64, (2, hidden, 4 * hidden)).astype(np.int8),
        "b": rng.standard_normal((2, 8 * hidden)).astype(np.float32),
        "ws": np.full(2, 0.02, np.float32), "wz": np.zeros(2, np.int8),
        "rs": np.full(2, 0.03, np.float32), "rz": np.zeros(2, np.int8),
    }  # fmt: skip
    operands = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", operands, ["y", "h", "c"], domain="com.microsoft", hidden_size=hidden,
        direction="bidirectional",
    )  # fmt: skip
    x = rng.standard_normal((9, batch, 10)).astype(np.float32)
    made = model([node], {"x": x}, ["y", "h", "c"], constants)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # on several it rounds a part of the batch by itself
    theirs = ort.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})
    for got, want in zip(backend.prepare(made).run({"x": x}), theirs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_table_of_bits(zeros: bool) -> None:
    x = np.array([[1, 2], [3, 30]], np.int64)
    constants = {
        "table": draw(30, (32, 24)), "zeros": draw(31, (32, 2)),
        "scales": np.random.default_rng(32).uniform(0.01, 0.1, (32, 3)).astype(np.float32),
    }  # fmt: skip
    operands = ["table", "x", "scales", *(["zeros"] if zeros else [])]
    used = {name: constants[name] for name in operands if name != "x"}
    node = helper.make_node(
        "GatherBlockQuantized", operands, ["y"], domain="com.microsoft", block_size=16, quantize_axis=1
    )
    ((ours, theirs),) = both(model([node], {"x": x}, ["y"], used), {"x": x})
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ["uint4", "int4"])
@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_a_table_of_numbers_of_4_bits(kind: str, block: int, zeros: bool) -> None:
    """One number to an element, so the last axis is not twice as long; the default zero point is 0."""
    dtype, low = getattr(ml_dtypes, kind), -8 * (kind == "int4")
    scales = np.random.default_rng(33).uniform(0.01, 0.1, (8, -(-32 // block))).astype(np.float32)
    table, points = (np.random.default_rng(34).integers(low, low + 16, s) for s in ((8, 32), scales.shape))
    x = np.array([3, 7])
    stored = {"table": table.astype(dtype), "scales": scales}
    stored |= {"zeros": points.astype(dtype)} if zeros else {}
    reads = ["table", "x", "scales", *(["zeros"] if zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized", reads, ["y"], domain="com.microsoft", block_size=block, quantize_axis=1
    )
    ((ours, theirs),) = both(model([node], {"x": x}, ["y"], stored), {"x": x})
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("kind", "bits", "zeros"),
    [*((k, 4, z) for k in ("packed", "uint4", "int4") for z in (False, True)), ("uint8", 8, True)],
)
def test_rows_of_a_large_table_stay_few_bits(kind: str, bits: int, zeros: bool) -> None:
    """Also where the first bit of a word is that of its last number, and rows are counted from the end."""
    shape, block, low = (1100, 256), 32, -8 * (kind == "int4")
    numbers, points = (
        np.random.default_rng(i).integers(low, low + 2**bits, s) for i, s in enumerate((shape, (1100, 8)))
    )
    numbers[7] = low + 2**bits - 1
    scales = np.random.default_rng(33).uniform(0.01, 0.1, (1100, 8)).astype(np.float32)
    if kind in ("packed", "uint8"):
        stored = [np.uint8(a if bits == 8 else a[:, ::2] | a[:, 1::2] << 4) for a in (numbers, points)]
    else:
        stored = [a.astype(getattr(ml_dtypes, kind)) for a in (numbers, points)]
    table, packed = stored
    constants = {"table": table, "scales": scales, **({"zeros": packed} if zeros else {})}
    reads = ["table", "x", "scales", *(["zeros"] if zeros else [])]
    node = helper.make_node(
        "GatherBlockQuantized",
        reads,
        ["y"],
        domain="com.microsoft",
        block_size=block,
        quantize_axis=1,
        bits=bits,
    )
    x = np.array([[0, 7, 1099], [500, -1, 3]], np.int64)
    made = model([node], {"x": x}, ["y"], constants)
    ((ours, theirs),) = both(made, {"x": x})
    np.testing.assert_array_equal(ours, theirs)
    spec = from_onnx(made)
    assert sum(p.nbytes for p in spec.params.values()) < numbers.size * (bits / 8 + 2 * 4 / block) * 1.01


@pytest.mark.parametrize("kind", ["uint16", "int16"])
def test_numbers_of_16_bits_inside_a_model(kind: str) -> None:
    x = np.random.default_rng(40).standard_normal((3, 5)).astype(np.float32)
    ends = ["s", "z"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *ends], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"]),
        helper.make_node("DequantizeLinear", ["t", *ends], ["y"]),
    ]
    point = np.array(999, kind)
    made = model(nodes, {"x": x}, ["y"], {"s": np.float32(3e-5), "z": point})
    ((ours, theirs),) = both(made, {"x": x})
    np.testing.assert_array_equal(ours, theirs)
    assert np.abs(ours.T - x).max() > 0.1  # some are out of range
    made.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("q", helper.np_dtype_to_tensor_dtype(point.dtype), ["X", 5])
    )
    with pytest.raises(bslite.UnsupportedError, match=f"an output of {kind}"):
        from_onnx(made)


def network() -> Any:
    """A small residual network in float32."""
    rng = np.random.default_rng(13)

    def weight(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    x = np.zeros((1, 3, 12, 12), np.float32)
    constants = {
        "w1": weight(16, 3, 3, 3), "b1": weight(16), "w2": weight(16, 16, 3, 3), "b2": weight(16),
        "w3": weight(16, 16, 1, 1), "b3": weight(16), "w4": weight(16, 10), "b4": weight(10),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"]),
        helper.make_node("Add", ["c3", "r1"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"]),
    ]
    made = model(nodes, {"x": x}, ["y"], constants)
    return onnx.shape_inference.infer_shapes(made)


class Samples:
    """Calibration data."""

    def __init__(self) -> None:
        rng = np.random.default_rng(14)
        self.rest = [{"x": rng.standard_normal((2, 3, 12, 12)).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> Any:
        return self.rest.pop() if self.rest else None


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
def test_models_quantised_by_onnxruntime(form: str, per_channel: bool, tmp_path: Path) -> None:
    """As near to onnxruntime as some units of 8 bits, whatever the batch."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    source, made = tmp_path / "source.onnx", tmp_path / "made.onnx"
    onnx.save(network(), source)
    if form == "dynamic":
        quantization.quantize_dynamic(source, made, per_channel=per_channel, reduce_range=True)
    else:
        how = getattr(quantization.QuantFormat, form)
        quantization.quantize_static(
            source, made, Samples(), quant_format=how, per_channel=per_channel, reduce_range=True
        )
    ours = from_onnx(made)
    session = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        x = np.random.default_rng(15).standard_normal((batch, 3, 12, 12)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        got = np.asarray(run(ours, x))
        assert np.abs(got - want).max() <= 0.02 * np.abs(want).max()
