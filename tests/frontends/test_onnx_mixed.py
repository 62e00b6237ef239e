"""ONNX models with operators that bslite does not have: ONNX's reference runs those, the engine the rest."""

import warnings
from typing import Any

import numpy as np
import pytest
from support.noise import images, noise

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import bslite  # noqa: E402
from bslite.onnx import backend  # noqa: E402


def model(
    *nodes: Any, inputs: dict[str, Any], outputs: tuple[str, ...], stored: dict[str, Any] | None = None
) -> Any:
    """A model of ``nodes``."""
    graph = helper.make_graph(
        list(nodes), "mixed",
        [helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (stored or {}).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def between() -> Any:
    """Convolution, a determinant per channel, and what is computed from both."""
    w = noise(4, 3, 3, 3)
    return model(
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Det", ["r"], ["d"], name="determinant"),
        helper.make_node("Constant", [], ["shape"], value_ints=[0, 4, 1, 1]),
        helper.make_node("Reshape", ["d", "shape"], ["e"], name="spread"),
        helper.make_node("Mul", ["r", "e"], ["y"], name="product"),
        inputs={"x": ["N", 3, 5, 5]}, outputs=("y", "d"), stored={"w": w},
    )  # fmt: skip


def test_what_bslite_lacks_is_evaluated_in_between_and_a_warning_lists_it_once() -> None:
    made = between()
    rep = backend.prepare(made, fallback="warn")
    with pytest.warns(UserWarning, match=r"(?s)1 x Det.*at determinant.*reference evaluator runs these"):
        rep.run([images(2, 5, 5)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (2, 1, 3):
            got, want = (
                rep.run([images(batch, 5, 5)]),
                ReferenceEvaluator(made).run(None, {"x": images(batch, 5, 5)}),
            )
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert [(len(p.nodes), p.refused) for p in rep.pieces] == [(2, False), (1, True), (3, False)]


def test_error_and_silent() -> None:
    with pytest.raises(bslite.UnsupportedError, match=r"Det.*determinant"):
        backend.prepare(between()).run([images(1, 5, 5)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(backend.prepare(between(), fallback="silent").run([images(1, 5, 5)])) == 2
    with pytest.raises(bslite.InputError, match="fallback 'maybe'"):
        backend.prepare(between(), fallback="maybe")


def test_one_hidden_behind_another_and_branches_beside_them() -> None:
    made = model(
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Det", ["a"], ["b"], name="b"),
        helper.make_node("Exp", ["b"], ["c"], name="c"),
        helper.make_node("HannWindow", ["five"], ["h"], name="h"),
        helper.make_node("Unique", ["c"], ["u"], name="u"),
        helper.make_node("ReduceSum", ["u"], ["s"], name="s", keepdims=0),
        helper.make_node("Tanh", ["a"], ["t"], name="t"),
        helper.make_node("Add", ["t", "s"], ["y"], name="y"),
        inputs={"x": [2, 3, 4, 4]}, outputs=("y",), stored={"five": np.array(5)},
    )  # fmt: skip
    x = noise(2, 3, 4, 4)
    rep = backend.prepare(made, fallback="silent")
    (got,), (want,) = rep.run([x]), ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    in_bslite = [[n.name for n in p.nodes] for p in rep.pieces if not p.refused]
    assert [n for n in in_bslite[0] if n != "h"] == ["a", "t"]


def test_all_of_it_in_bslite_is_one_piece_and_wrong_inputs_are_named() -> None:
    made = model(
        helper.make_node("Relu", ["x"], ["y"]), inputs={"x": [2, 3]}, outputs=("y", "x"),
    )  # fmt: skip
    rep = backend.prepare(made, fallback="warn")
    x = np.float32([[1, -1, 2], [0, 3, -4]])
    got = rep.run({"x": x})
    np.testing.assert_array_equal(got[0], np.maximum(x, 0))
    np.testing.assert_array_equal(got[1], x)
    assert len(rep.pieces) == 1
    with pytest.raises(bslite.InputError, match="no array for x"):
        rep.run({"z": x})
    with pytest.raises(bslite.BsliteError):
        backend.prepare(between(), fallback="silent").run([np.zeros((1, 2, 5, 5), np.float32)])
