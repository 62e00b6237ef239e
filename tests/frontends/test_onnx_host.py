"""Nodes whose values the engine has no type for run in NumPy, next to what the engine computes."""

import math
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from support.noise import noise
from support.onnx_models import FLOAT, helper, inputs_like, model, onnx, value

import bslite
from bslite.onnx.model import OnnxModel

node, kinds = helper.make_node, onnx.TensorProto
DOUBLE = kinds.DOUBLE


def test_a_middle_in_float64_is_computed_in_float64() -> None:
    """The engine computes what is around it; nothing of the middle is rounded to float32."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"], name="product"),
        node("Cast", ["m"], ["wide"], name="wide", to=DOUBLE),
        node("Softmax", ["wide"], ["soft"], name="soft"),
        node("Mul", ["soft", "steps"], ["weighted"], name="weighted"),
        node("ReduceSum", ["weighted", "last"], ["sum"], name="sum", keepdims=1),
        node("Cast", ["sum"], ["back"], name="back", to=FLOAT),
        node("Relu", ["back"], ["y"], name="relu"),
    ]
    stored = {"w": noise(5, 7), "steps": np.linspace(0, 1, 7), "last": np.array([-1])}
    made = model(nodes, [value("x", ["n", 5])], ["sum", "y"], stored)
    compiled, exact = bslite.compile(made), bslite.compile(made, device="reference64")
    for batch in (3, 1, 4):
        x = noise(batch, 5)
        whole, narrow = compiled(x).tuple()
        wide = (x @ stored["w"]).astype(np.float64)
        soft = np.exp(wide - wide.max(-1, keepdims=True))
        want = (soft / soft.sum(-1, keepdims=True) * stored["steps"]).sum(-1, keepdims=True)
        np.testing.assert_allclose(whole, want, rtol=1e-6)
        assert (whole.dtype, narrow.dtype) == (np.float64, np.float32)
        assert np.array_equal(narrow, whole.astype(np.float32))
        wide = x.astype(np.float64) @ stored["w"].astype(np.float64)
        soft = np.exp(wide - wide.max(-1, keepdims=True))
        want = (soft / soft.sum(-1, keepdims=True) * stored["steps"]).sum(-1, keepdims=True)
        np.testing.assert_allclose(exact(x)[1], want, rtol=1e-13)
    said = compiled.pieces
    assert [line.split(":")[0] for line in said] == ["engine", *["NumPy"] * 4, "NumPy", "engine"]
    assert "NumPy: node 'wide' (Cast): to float64" in said
    assert "NumPy: node 'soft' (Softmax): of float64; bslite has" in "\n".join(said)


X, Y = noise(2, 3, 4).astype(np.float64), noise(3, 4).astype(np.float64)
INTS = np.array([[3, 250, 7], [65535, 0, 9]], np.uint16)
INDICES = np.array([[2, 0], [1, -1]])
#: Operator, what it reads, its attributes.
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *((name, [X, Y], {}) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Less", "PRelu")),
    *((name, [X], {}) for name in ("Abs", "Neg", "Exp", "Tanh", "Sigmoid", "Relu", "Softplus", "Sign")),
    *((name, [X], {}) for name in ("LeakyRelu", "Elu", "Selu", "HardSigmoid", "Softsign", "Floor", "Round")),
    *((name, [X], {"axes": [1, -1]}) for name in ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")),
    *((name, [X], {"axis": 1}) for name in ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin")),
    ("Pow", [np.abs(X), np.array(0.5)], {}),
    ("Mod", [INTS, np.array([4, 3, 5], np.uint16)], {}),
    ("BitShift", [INTS, np.array([1, 2, 3], np.uint16)], {"direction": "RIGHT"}),
    ("BitShift", [INTS, np.array([1, 2, 3], np.uint16)], {"direction": "LEFT"}),
    ("Clip", [X, np.array(-0.5), np.array(0.5)], {}),
    ("Where", [X > 0, X, Y], {}),
    ("CumSum", [X, np.array(1)], {"exclusive": 1, "reverse": 1}),
    ("MatMul", [X, Y.T], {}),
    ("Gemm", [Y, Y, Y[:, :3]], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Einsum", [X, Y], {"equation": "nij,ij->ni"}),
    ("LayerNormalization", [X, Y[0], Y[1]], {}),
    ("BatchNormalization", [X, Y[:, 0], Y[:, 1], Y[:, 2], np.abs(Y[:, 3])], {}),
    ("GatherElements", [Y, np.array([[2, 0], [1, -1], [0, 3]])], {"axis": 1}),
    ("ScatterElements", [Y, INDICES, Y[:2, :2]], {"axis": 1, "reduction": "add"}),
    ("ScatterND", [Y, np.array([[0], [2]]), Y[:2]], {}),
    ("OneHot", [INDICES, np.array(3), np.array([0.25, 4.0])], {"axis": 1}),
    ("TopK", [X, np.array([2])], {"axis": -1}),
    ("TopK", [INTS, np.array([2])], {"largest": 0}),
    ("Pad", [X, np.array([0, 1, 0, 0, 2, 1]), np.array(7.0)], {}),
    ("Pad", [X, np.array([0, 1, 1, 0, 1, 1])], {"mode": "reflect"}),
    ("Flatten", [X], {"axis": 2}),
    ("Trilu", [X], {"upper": 0}),
    ("DepthToSpace", [noise(1, 8, 2, 3).astype(np.float64)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [noise(1, 2, 4, 6).astype(np.float64)], {"blocksize": 2}),
    ("Cast", [np.array([1.5, -2.25, 3e20])], {"to": kinds.STRING}),
    ("Cast", [np.array(["1.5", "-2"], object)], {"to": FLOAT}),
]


@pytest.mark.parametrize(("op", "reads", "given"), CASES, ids=[c[0] for c in CASES])
def test_operators_of_types_that_the_engine_lacks(op: str, reads: list[Any], given: dict[str, Any]) -> None:
    """Against ONNX's own evaluator."""
    names = [f"x{i}" for i in range(len(reads))]
    results = {"TopK": 2}.get(op, 1)
    outputs = [f"y{i}" for i in range(results)]
    typed = [
        value(n, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype)) for n, x in zip(names, reads, strict=True)
    ]
    made = model([node(op, names, outputs, **given)], typed, outputs)
    feed = dict(zip(names, reads, strict=True))
    compiled = bslite.compile(made)
    for got, want in zip(compiled(feed).tuple(), ReferenceEvaluator(made).run(None, feed), strict=True):
        assert got.dtype == want.dtype or want.dtype.kind == "U"
        assert got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
        else:
            assert np.array_equal(got, want)
    assert compiled.pieces[0].startswith("NumPy: node")


def test_erf_negative_pads_and_short_indices() -> None:
    """What ONNX's evaluator computes in float32, or does not know."""
    wide = [value("x", [3, 4], DOUBLE)]
    erf = model([node("Erf", ["x"], ["y"])], wide, ["y"])
    want = [[math.erf(v) for v in row] for row in Y.tolist()]
    np.testing.assert_allclose(bslite.compile(erf)(Y)[0], want, rtol=1e-14)
    stored: dict[str, Any] = {"pads": np.array([-1, 1, 2, -2]), "v": np.array(7.0), "i": INDICES}
    padded = bslite.compile(model([node("Pad", ["x", "pads", "v"], ["y"])], wide, ["y"], stored))
    assert np.array_equal(padded(Y)[0], np.pad(Y[1:, :-2], [(0, 2), (1, 0)], constant_values=7))
    picked = bslite.compile(model([node("GatherElements", ["x", "i"], ["y"], axis=1)], wide, ["y"], stored))
    assert np.array_equal(picked(Y)[0], Y[[[0, 0], [1, 1]], INDICES])


def test_an_attribute_that_a_function_does_not_know_is_refused() -> None:
    wide = value("x", [3, 4], DOUBLE)
    made = model([node("Add", ["x", "x"], ["y"], name="old", axis=0, broadcast=1)], [wide], ["y"], opset=6)
    with pytest.raises(bslite.UnsupportedError, match=r"'old'.*with axis=0, broadcast=1"):
        bslite.compile(made)(Y)


def test_nodes_in_any_order() -> None:
    """As converters to float16 append the casts of inputs; also inside a branch."""
    branch = helper.make_graph(
        [node("Add", ["inner", "a"], ["out"]), node("Neg", ["b"], ["inner"])],
        "then",
        [],
        [value("out", None)],
    )
    other = helper.make_graph([node("Identity", ["a"], ["out2"])], "else", [], [value("out2", None)])
    nodes = [
        node("If", ["c"], ["z"], then_branch=branch, else_branch=other),
        node("Relu", ["a"], ["y"], name="late"),
        node("Abs", ["x"], ["b"]),
        node("Neg", ["x"], ["a"]),
    ]
    made = model(nodes, [value("x", ["n"]), value("c", [], kinds.BOOL)], ["y", "z"])
    before = made.SerializeToString()
    compiled, x = bslite.compile(made), noise(5)
    for condition in (True, False):
        y, z = compiled(x, np.array(condition)).tuple()
        np.testing.assert_array_equal(y, np.maximum(-x, 0))
        np.testing.assert_array_equal(z, -np.abs(x) - x if condition else -x)
    assert made.SerializeToString() == before
    nodes[3] = node("Neg", ["y"], ["a"])  # a circle has no order
    with pytest.raises(bslite.SpecError, match="neither an input nor made by an earlier node"):
        bslite.compile(model(nodes, [value("x", ["n"]), value("c", [], kinds.BOOL)], ["y", "z"]))(x, True)


def test_sizes_of_one_that_are_dropped_whatever_they_are() -> None:
    made = model(
        [node("Squeeze", ["x"], ["s"]), node("Relu", ["s"], ["y"])], [value("x", ["n", 1, 3])], ["y"]
    )
    compiled = bslite.compile(made)
    for batch in (2, 1, 4, 1):
        x = noise(batch, 1, 3)
        np.testing.assert_array_equal(compiled(x)[0], np.maximum(np.squeeze(x), 0), strict=True)


def test_the_largest_none() -> None:
    takes = [value("x", ["n", 5]), value("k", [1], kinds.INT64)]
    compiled = bslite.compile(model([node("TopK", ["x", "k"], ["v", "i"])], takes, ["v", "i"]))
    for count in (2, 0, 3):
        values, places = compiled(x := noise(4, 5), np.array([count])).tuple()
        assert (values.dtype, places.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(values, -np.sort(-x)[:, :count], strict=True)
        np.testing.assert_array_equal(places, np.argsort(-x)[:, :count], strict=True)


EDGES = [-2, -1, 1, 3, 7]  # beside the least and the greatest number of a type
INTEGERS = (np.uint8, np.int8, np.int16, np.int32, np.int64)


def edges(kind: Any) -> Any:
    """Numbers of a type: small ones, and those at its ends."""
    ends = np.iinfo(kind)
    return np.array([ends.min, ends.max, ends.max - 1, *(max(e, int(ends.min)) for e in EDGES)], kind)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Neg", "Abs", "ReduceSum", "ReduceProd", "CumSum"])
def test_integers_wrap_around(kind: Any, op: str) -> None:
    """Two's complement, as NumPy has it; what fits before and after is the engine's as long as all fits."""
    x, y = edges(kind), edges(kind)[::-1].copy()
    functions = {
        "Add": np.add(x, y), "Sub": np.subtract(x, y), "Mul": np.multiply(x, y), "Neg": np.negative(x),
        "Abs": np.abs(x), "ReduceSum": x.sum(keepdims=True, dtype=kind), "CumSum": x.cumsum(dtype=kind),
        "ReduceProd": x[-3:].prod(keepdims=True, dtype=kind),
    }  # fmt: skip
    reads = {"a": x[-3:] if op == "ReduceProd" else x}
    if op in ("Add", "Sub", "Mul"):
        reads["b"] = y
    names = [*reads, "axis"] if op == "CumSum" else [*reads]
    stored = {"axis": np.array(0)} if op == "CumSum" else {}
    made = model([node(op, names, ["y"], name="it")], inputs_like(reads), ["y"], stored)
    compiled = bslite.compile(made)
    small = {name: np.ones_like(array) for name, array in reads.items()}
    compiled(small)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(reads)[0], functions[op], strict=True)
    given = list(reads.values())
    np.testing.assert_array_equal(bslite.run(OnnxModel(made), given), functions[op], strict=True)


def test_a_number_that_wraps_is_read_as_it_is_stored() -> None:
    """The float32 numbers beside bytes are not read where a sum of bytes is none."""
    nodes = [node("Add", ["a", "b"], ["s"]), node("Cast", ["s"], ["y"], to=FLOAT)]
    feed = {"a": np.uint8([200, 100, 255]), "b": np.uint8([100, 100, 1])}
    compiled = bslite.compile(model(nodes, inputs_like(feed), ["y"]))
    assert compiled(feed)[0].tolist() == [44, 200, 0]
    assert compiled.pieces[0] == "NumPy: node 's' (Add): integers beyond 32 bits, or beyond their type"


def test_casts_keep_the_low_bits() -> None:
    x = np.array([300, -1, 2**31 + 5, -(2**40) - 3, 7], np.int64)
    for kind in (np.uint8, np.int8, np.int32, np.int64):
        for source in (np.int32, np.int64):
            given = x.astype(source)
            to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            compiled = bslite.compile(
                model([node("Cast", ["x"], ["y"], to=to)], inputs_like({"x": given}), ["y"])
            )
            np.testing.assert_array_equal(compiled(given)[0], given.astype(kind), strict=True)


def test_hashes_of_64_bits_choose_rows_of_a_table() -> None:
    """What is beyond 32 bits is computed in NumPy, what the engine can beside it; in a loop's body too."""
    nodes = [
        node("Mul", ["x", "by"], ["p"], name="by"),
        node("BitwiseXor", ["p", "with"], ["q"], name="with"),
        node("Mod", ["q", "rows"], ["i"], name="rows"),
        node("Gather", ["table", "i"], ["g"], name="pick"),
        node("Relu", ["g"], ["y"], name="relu"),
    ]
    by, other = np.int64(-7046029254386353131), np.int64(0x123456789ABCDE)
    stored = {"by": by, "with": other, "rows": np.int64(11), "table": noise(11, 4)}
    compiled = bslite.compile(model(nodes, [value("x", ["n"], kinds.INT64)], ["y"], stored, opset=18))
    for count in (3, 5):
        x = np.arange(count) * 123456789
        with np.errstate(all="ignore"):
            rows = np.mod(np.multiply(x, by) ^ other, 11)
        np.testing.assert_array_equal(compiled(x)[0], np.maximum(stored["table"][rows], 0), strict=True)
    assert compiled.pieces[-1] == "engine: 2 nodes"
    body = helper.make_graph(
        [node("Mul", ["h", "by"], ["h2"], name="step"), node("Identity", ["c"], ["c2"])],
        "body",
        [value("t", [], kinds.INT64), value("c", [], kinds.BOOL), value("h", [2], kinds.INT64)],
        [value("c2", [], kinds.BOOL), value("h2", [2], kinds.INT64)],
    )
    loop = [node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)]
    for trips in (3, 300):
        looped = model(loop, [value("x", [2], kinds.INT64)], ["y"], {"by": by, "trips": np.int64(trips)})
        x = want = np.array([3, -5])
        with np.errstate(all="ignore"):
            for _ in range(trips):
                want = want * by
        np.testing.assert_array_equal(bslite.compile(looped)(x)[0], want, strict=True)


def test_an_index_out_of_range_stays_an_error_of_the_engine() -> None:
    made = model(
        [node("Gather", ["x", "i"], ["y"])], [value("i", [2], kinds.INT64)], ["y"], {"x": noise(3, 4)}
    )
    compiled = bslite.compile(made)
    for _ in range(2):
        with pytest.raises(bslite.InputError, match="index 3 is out of range"):
            compiled(np.array([0, 3]))
    assert compiled.pieces == ["engine: 1 nodes"]


def test_small_floats_and_numbers_of_16_bits() -> None:
    """Floats of 8 bits are numbers, what is beyond them is the largest. Outputs keep their type."""
    eight = kinds.FLOAT8E4M3FN
    nodes = [
        node("Cast", ["x"], ["small"], to=eight),
        node("CastLike", ["x", "small"], ["alike"]),
        node("DequantizeLinear", ["small", "scale"], ["y"]),
        node("Cast", ["alike"], ["z"], to=FLOAT),
    ]
    x = np.array([0.1, -1.7, 500, -np.inf, 0.3], np.float32)
    made = bslite.compile(model(nodes, [value("x", [5])], ["y", "z"], {"scale": np.float32(2)}, opset=23))(x)
    want = np.array([0.1015625, -1.75, 448, -448, 0.3125], np.float32)
    np.testing.assert_array_equal(made[0], 2 * want)
    np.testing.assert_array_equal(made[1], want)
    by_block = node("QuantizeLinear", ["x", "s"], ["q"], axis=1, block_size=2, output_dtype=kinds.INT16)
    takes = [value("x", [1, 4]), value("s", [1, 2])]
    words = bslite.compile(model([by_block], takes, [value("q", [1, 4], kinds.INT16)], opset=21))
    got = words(np.float32([[1, -2.6, 1e9, 7]]), np.float32([[0.5, 2]]))[0]
    np.testing.assert_array_equal(got, np.array([[2, -5, 32767, 4]], np.int16), strict=True)


@pytest.mark.parametrize("kind", [kinds.INT4, kinds.UINT4, kinds.FLOAT8E5M2])
def test_rounded_to_few_bits_and_back(kind: int) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=kind),
        node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    x = noise(3, 4) * 10
    made = model(nodes, [value("x", [3, 4])], ["y"], {"s": np.float32(0.75)}, opset=21)
    low, high = {kinds.INT4: (-8, 7), kinds.UINT4: (0, 15)}.get(kind, (-57344, 57344))
    want = np.clip(np.rint(x / np.float32(0.75)), low, high) * np.float32(0.75)
    got = bslite.compile(made)(x)[0]
    if kind == kinds.FLOAT8E5M2:
        np.testing.assert_allclose(got, x, rtol=1 / 8)
    else:
        np.testing.assert_array_equal(got, want, strict=True)


def test_signs_fill_what_is_shifted() -> None:
    shift = node("BitShift", ["a", "b"], ["y"], direction="RIGHT")
    feed = {"a": np.array([-128, 127, -1, -64], np.int8), "b": np.array([9, 9, 8, 3], np.int8)}
    made = bslite.compile(model([shift], inputs_like(feed), ["y"], opset=28, ir=14))(feed)
    np.testing.assert_array_equal(made[0], np.array([-1, 0, -1, -8], np.int8), strict=True)
