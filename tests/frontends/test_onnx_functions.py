"""Functions that a model brings along, texts that it stores, and names that nothing makes."""

from typing import Any

import numpy as np
import pytest
from support.noise import noise
from support.onnx_models import onnx

import bslite

ort = pytest.importorskip("onnxruntime")

FUNCTIONS = """<ir_version: 9, opset_import: ["": 22, "own": 1]>
g (float[N, M] x) => (int64[R, K] y, float[N, M] z) {
  y, z = own.picked(x)
}
<domain: "own", opset_import: ["": %d, "own": 1]>
picked (x) => (y, z) {
  zero = Constant <value_float = 0.0> ()
  more = Greater(x, zero)
  y = NonZero(more)
  any = own.some(more)
  z = If (any) <
    then_branch = t () => (p) { p = Relu(x) },
    else_branch = e () => (q) { q = Neg(x) }>
}
<domain: "own", opset_import: ["": %d]>
some (c) => (y) {
  whole = Cast <to = 6> (c)
  most = ReduceMax <keepdims = 0> (whole)
  y = Cast <to = 9> (most)
}"""


@pytest.mark.parametrize("opset", [22, 21])
def test_functions_with_graphs_inside_also_of_another_version(opset: int) -> None:
    """A function's nodes are pieces of the model's own, though ONNX's inliner wants versions to be equal."""
    made = onnx.parser.parse_model(FUNCTIONS % (opset, opset)).SerializeToString()
    session, compiled = ort.InferenceSession(made), bslite.compile(made)
    for x in (noise(3, 4), -np.abs(noise(2, 5)), noise(1, 7)):
        for got, want in zip(compiled(x).tuple(), session.run(None, {"x": x}), strict=True):
            assert np.array_equal(got, want)


TEXTS = {
    "(int64[N] i) => (string[N] y)": "y = Gather(t, i)",
    "(string[N] i) => (bool[N] y)": "y = Equal(u, i)",
    "(string[N] i) => (string[M] y)": "y = Concat <axis = 0> (i, t)",
}


@pytest.mark.parametrize("ports", TEXTS)
def test_texts_that_a_model_stores(ports: str) -> None:
    stored = '<string[3] t = {"a", "b", "ü"}, string[1] u = {"ü"}>'
    text = f'<ir_version: 9, opset_import: ["": 19]> g {ports} {stored} {{ {TEXTS[ports]} }}'
    made = onnx.parser.parse_model(text).SerializeToString()
    given: Any = np.array([2, 0, 2, 1]) if "int64" in ports else np.array(["x", "ü", "a"], object)
    (want,) = ort.InferenceSession(made).run(None, {"i": given})
    assert bslite.compile(made)(given)[0].tolist() == want.tolist()


@pytest.mark.parametrize(
    "body", ["(float[N] y, float[N] z) { y = Relu(x) }", "(float[N] y) { y = Add(x, z) }"]
)
def test_a_name_that_nothing_makes_is_an_error_before_the_first_run(body: str) -> None:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19]> g (float[N] x) => {body}')
    with pytest.raises(bslite.SpecError, match="'z': neither an input nor made by an earlier node"):
        bslite.compile(made)
