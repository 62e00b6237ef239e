"""ONNX models with operators that bslite does not have: ONNX's reference runs those, the engine the rest."""

import warnings
from typing import Any

import numpy as np
import pytest
from support.noise import images, noise
from support.onnx_models import IMAGES, evaluated, helper, model, value

import bslite
from bslite.onnx import backend

node = helper.make_node


def between() -> Any:
    """Convolution, a determinant per channel, and what is computed from both."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], name="relu"),
        node("Det", ["r"], ["d"], name="determinant"),
        node("Constant", [], ["shape"], value_ints=[0, 4, 1, 1]),
        node("Reshape", ["d", "shape"], ["e"], name="spread"),
        node("Mul", ["r", "e"], ["y"], name="product"),
    ]
    return model(nodes, [value("x", ["N", 3, 5, 5])], ["y", "d"], {"w": noise(4, 3, 3, 3)}, 18)


@pytest.mark.usefixtures("without_det")
def test_what_bslite_lacks_is_evaluated_in_between_and_a_warning_lists_it_once() -> None:
    made = between()
    rep = backend.prepare(made, fallback="warn")
    with pytest.warns(UserWarning, match=r"(?s)1 x Det.*at determinant.*reference evaluator runs these"):
        rep.run([images(2, 5, 5)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (2, 1, 3):
            x = images(batch, 5, 5)
            for a, b in zip(rep.run([x]), evaluated(made, x), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert [(len(p.places), p.refused) for p in rep.running.pieces] == [(2, False), (1, True), (2, False)]


@pytest.mark.usefixtures("without_det")
def test_error_and_silent() -> None:
    with pytest.raises(bslite.UnsupportedError, match=r"Det.*determinant"):
        backend.prepare(between()).run([images(1, 5, 5)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(backend.prepare(between(), fallback="silent").run([images(1, 5, 5)])) == 2
    with pytest.raises(bslite.InputError, match="fallback 'maybe'"):
        backend.prepare(between(), fallback="maybe")


@pytest.mark.usefixtures("without_det")
def test_one_hidden_behind_another_and_branches_beside_them() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="a"),
        node("Det", ["a"], ["b"], name="b"),
        node("Exp", ["b"], ["c"], name="c"),
        node("HannWindow", ["five"], ["h"], name="h"),
        node("Unique", ["c"], ["u"], name="u"),
        node("ReduceSum", ["u"], ["s"], name="s", keepdims=0),
        node("Tanh", ["a"], ["t"], name="t"),
        node("Add", ["t", "s"], ["y"], name="y"),
    ]
    made, x = model(nodes, IMAGES, ["y"], {"five": np.array(5)}, 18), noise(2, 3, 4, 4)
    rep = backend.prepare(made, fallback="silent")
    (got,), (want,) = rep.run([x]), evaluated(made, x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    pieces = [[made.graph.node[i].name for i in p.places] for p in rep.running.pieces if not p.refused]
    assert [n for n in pieces[0] if n != "h"] == ["a", "t"]


def test_all_of_it_in_bslite_is_one_piece_and_wrong_inputs_are_named() -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", [2, 3])], ["y", "x"])
    rep = backend.prepare(made, fallback="warn")
    x = np.float32([[1, -1, 2], [0, 3, -4]])
    got = rep.run({"x": x})
    np.testing.assert_array_equal(got[0], np.maximum(x, 0))
    np.testing.assert_array_equal(got[1], x)
    assert len(rep.running.pieces) == 1
    with pytest.raises(bslite.InputError, match="no array for x"):
        rep.run({"z": x})
    with pytest.raises(bslite.BsliteError):
        backend.prepare(between(), fallback="silent").run([np.zeros((1, 2, 5, 5), np.float32)])
