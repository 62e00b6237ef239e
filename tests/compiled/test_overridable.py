"""Inputs of ONNX files that have a default, as onnxruntime takes them."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import helper, model, value

import bslite
import bslite.onnxruntime as ort
from bslite.errors import InputError

STORED = {"k": np.array([2], np.float32), "b": np.array([1, 1], np.float32)}


def scaled(ir: int = 8) -> bytes:
    """``x * k + b``, of which k and b have a default; k is the first input of the file."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    inputs = [value("k", ["m"]), value("x", ["n"]), value("b", [2])]
    made: bytes = model(nodes, inputs, ["y"], STORED, ir=ir).SerializeToString()
    return made


X, K, B = noise(2), np.array([5, -6], np.float32), np.array([0.5, 3], np.float32)
FEEDS: list[dict[str, Any]] = [{"x": X}, {"x": X, "k": K}, {"b": B, "x": X}, {"x": X, "k": K, "b": B}]


def test_a_session_takes_what_has_a_default() -> None:
    theirs = pytest.importorskip("onnxruntime").InferenceSession(scaled())
    ours = ort.InferenceSession(scaled())
    for s in (ours, theirs):
        assert [(a.name, a.type, a.shape) for a in s.get_inputs()] == [("x", "tensor(float)", ["n"])]
        assert [(a.name, a.type, a.shape) for a in s.get_overridable_initializers()] == [
            ("k", "tensor(float)", ["m"]),
            ("b", "tensor(float)", [2]),
        ]
    for feed in FEEDS * 2:
        assert np.array_equal(ours.run(None, feed)[0], theirs.run(["y"], feed)[0])
    assert np.array_equal(ours.run(["y"], {"x": X, "k": [5, -6]})[0], ours.run(None, FEEDS[1])[0])
    binding = ours.io_binding()
    for name, array in FEEDS[3].items():
        binding.bind_cpu_input(name, array)
    ours.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], X * K + B)
    with pytest.raises(InputError, match=r"input 'b': got \[3\], expected \[2\]"):
        ours.run(None, {"x": X, "b": noise(3)})
    with pytest.raises(InputError, match="there is no input q"):
        ours.run(None, {"x": X, "b": B, "q": B})
    old = ort.InferenceSession(scaled(ir=3))  # in which all initialisers are constants
    assert old.get_overridable_initializers() == []
    with pytest.raises(InputError, match="there is no input k"):
        old.run(None, FEEDS[1])


def test_a_compiled_model_takes_them_by_name() -> None:
    with bslite.compile(scaled()) as compiled:
        assert [i.name for i in compiled.inputs] == ["x"]
        for feed in FEEDS:
            want = X * feed.get("k", STORED["k"]) + feed.get("b", STORED["b"])
            rest = {name: a for name, a in feed.items() if name != "x"}
            for made in (compiled(feed), compiled(**feed), compiled(X, **rest), compiled({"x": X}, **rest)):
                assert np.array_equal(made.y, want)
        with pytest.raises(InputError, match="x is missing"):
            compiled(k=K)


def test_a_default_in_a_branch_and_one_of_float16() -> None:
    then = helper.make_graph([helper.make_node("Mul", ["x", "k"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "else", [], [value("e", None)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    made = model([node], [value("x", ["n"]), value("c", [], 9), value("k", [2])], ["y"], {"k": K})
    compiled = bslite.compile(made.SerializeToString())
    yes = np.array(True)
    assert np.array_equal(compiled(x=X, c=yes).y, X * K)
    assert np.array_equal(compiled(x=X, c=yes, k=B).y, X * B)
    half = [value("x", ["n"], 10), value("k", [2], 10)]
    made = model(
        [helper.make_node("Mul", ["x", "k"], ["y"])], half, [value("y", ["n"], 10)], {"k": np.float16(K)}
    )
    s, x = ort.InferenceSession(made.SerializeToString()), np.float16(X)
    for k in (K, B):
        assert np.array_equal(s.run(None, {"x": x, "k": np.float16(k)})[0], x * np.float16(k))
    assert np.array_equal(s.run(None, {"x": x})[0], x * np.float16(K))
