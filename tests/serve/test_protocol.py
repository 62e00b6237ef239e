"""The protocol's addresses, called directly: answers, and errors in its form for what is wrong."""

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.noise import noise
from support.onnx_models import BOOL, INT64, helper, model, value
from support.serving import (
    Running,
    Stub,
    asked,
    binary,
    compiled,
    found,
    perceptron,
    serving,
    stubbed,
    tensor,
)

import bslite

X = noise(3, 8)


def typed() -> Any:
    """A model of one input of each of several dtypes: passes them on."""
    kinds = {"f": helper.np_dtype_to_tensor_dtype(np.dtype("f4")), "i": INT64, "b": BOOL}
    nodes = [helper.make_node("Identity", [k], [f"{k}_out"]) for k in kinds]
    inputs = [value(k, ["n", 2], kind) for k, kind in kinds.items()]
    return model(nodes, inputs, [value(f"{k}_out", ["n", 2], kind) for k, kind in kinds.items()])


def texts() -> Any:
    string = helper.np_dtype_to_tensor_dtype(np.dtype(object))
    node = helper.make_node("Identity", ["t"], ["same"])
    return model([node], [value("t", ["n"], string)], [value("same", ["n"], string)])


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    models = [compiled(perceptron(), "net"), compiled(typed(), "typed"), compiled(texts(), "texts")]
    with serving(*models, max_body=1 << 20) as made:
        yield made


@pytest.fixture(scope="module")
def want() -> Any:
    return bslite.compile(perceptron())(X)["scores"]


def test_health_and_metadata(running: Running) -> None:
    get = running.client.get
    assert get("/v2/health/live").json() == {"live": True}
    assert get("/v2/health/ready").json() == {"ready": True}
    assert get("/v2/models/net/ready").json() == {"name": "net", "ready": True}
    assert get("/v2/models/net/versions/1/ready").status_code == 200
    assert get("/v2").json()["name"] == "bslite"
    described = get("/v2/models/net").json()
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]
    assert described["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, 5]}]
    assert [m["name"] for m in running.client.post("/v2/repository/index").json()] == [
        "net",
        "typed",
        "texts",
    ]


def test_what_is_not_there_is_404_and_what_is_not_done_405(running: Running) -> None:
    answers = {
        "/v2/models/other": "there is no model 'other'; there are 'net', 'typed', 'texts'",
        "/v2/models/net/versions/7": "model 'net' has no version '7'; it has '1'",
        "/nothing": "Not Found",
    }
    for url, message in answers.items():
        got = running.client.get(url)
        assert (got.status_code, got.json()) == (404, {"error": message})
    got = running.client.get("/v2/models/net/infer")
    assert (got.status_code, got.json()) == (405, {"error": "Method Not Allowed"})


def test_json_and_bytes_give_the_bits_of_a_call(running: Running, want: Any) -> None:
    nested = tensor("x", X) | {"data": X.tolist()}
    for body in (asked(tensor("x", X)), asked(nested), asked(tensor("x", X), outputs=[])):
        assert found(running.infer("net", body), "scores").tobytes() == want.tobytes()
    whole = {"parameters": {"binary_data_output": True}}
    one = {"outputs": [{"name": "scores", "parameters": {"binary_data": True}}]}
    other = {"outputs": [{"name": "scores", "parameters": {"binary_data": False}}], **whole}
    for more, is_binary in ((whole, True), (one, True), (other, False), ({}, False)):
        body, headers = binary({"x": X}, id="some id", **more)
        got = running.infer("net", body, headers)
        assert ("inference-header-content-length" in got.headers) is is_binary
        assert found(got, "scores").tobytes() == want.tobytes()
    assert running.infer("net", asked(tensor("x", X), id="é")).json()["id"] == "é"


def test_every_dtype_comes_back_as_it_went(running: Running) -> None:
    f = np.array([[1.5, -0.0], [math.nan, math.inf]], np.float32)
    i = np.array([[2**31 - 1, -(2**31)], [0, 1]])
    b = np.array([[True, False], [False, True]])
    body, headers = binary({"f": f, "i": i, "b": b}, parameters={"binary_data_output": True})
    got = running.infer("typed", body, headers)
    for name, sent in {"f": f, "i": i, "b": b}.items():
        assert found(got, f"{name}_out").tobytes() == sent.tobytes()
    f[1] = 0.1, -1e-45
    got = running.infer("typed", asked(tensor("b", b), tensor("f", f), tensor("i", i)))
    for name, sent in {"f": f, "i": i, "b": b}.items():
        assert found(got, f"{name}_out").tobytes() == sent.tobytes()


def test_texts_both_ways(running: Running) -> None:
    words = ["", "né", "three"]
    given_ = {"name": "t", "datatype": "BYTES", "shape": [3]}
    got = running.infer("texts", asked(given_ | {"data": words}))
    assert got.json()["outputs"][0]["data"] == words
    raw = b"".join(len(w.encode()).to_bytes(4, "little") + w.encode() for w in words)
    head = json.dumps(asked(given_ | {"parameters": {"binary_data_size": len(raw)}},
                            parameters={"binary_data_output": True})).encode()  # fmt: skip
    got = running.infer("texts", head + raw, {"Inference-Header-Content-Length": str(len(head))})
    assert got.content.endswith(raw)


def test_nan_in_an_answer_needs_bytes(running: Running) -> None:
    x = np.full((1, 8), np.inf, np.float32)
    body, headers = binary({"x": x})
    got = running.infer("net", body, headers)
    assert got.status_code == 406
    assert "ask for it as binary_data" in got.json()["error"]
    body, headers = binary({"x": x}, parameters={"binary_data_output": True})
    assert running.infer("net", body, headers).status_code == 200


GOOD = tensor("x", X[:1])
WRONG: dict[str, tuple[Any, str]] = {
    "no json": (b"{", "the request is not JSON"),
    "no object": (b"[]", "the request is a JSON object; got []"),
    "utf-16": (json.dumps(asked(GOOD)).encode("utf-16"), "the request is not JSON"),
    "deep": (b"[" * 100_000, "depth limit exceeded"),
    "nan": (json.dumps(asked(GOOD | {"data": [math.nan] * 8})).encode(), "the request is not JSON"),
    "half a character": (json.dumps(asked(GOOD, id="\ud800")).encode(), "the request is not JSON"),
    "infinite": (json.dumps(asked(GOOD)).replace(str(GOOD["data"][0]), "1e999").encode(),
                 "number is infinity"),
    "large": (asked(GOOD | {"data": [1e39] * 8}), "outside the range of FP32"),
    "digits": (b'{"inputs": [' + b"9" * 5000 + b"]}", "the request is not JSON"),
    "no inputs": ({}, "inputs is a list of tensors; got nothing"),
    "inputs": ({"inputs": "x"}, "inputs is a list of tensors; got 'x'"),
    "tensor": ({"inputs": [3]}, "inputs[0] is a JSON object; got 3"),
    "unknown": (asked(GOOD | {"name": "y"}), "there is no input 'y'; the model takes 'x'"),
    "nameless": (asked({}), "there is no input nothing"),
    "twice": (asked(GOOD, GOOD), "input 'x' is given twice"),
    "missing": (asked(), "input 'x' is missing; the model takes 'x'"),
    "dtype": (asked(GOOD | {"datatype": "FP64"}), "input 'x' is FP32; got 'FP64'"),
    "rank": (asked(GOOD | {"shape": [8]}), "input 'x' is x: float32[n, 8]; got shape [8]"),
    "size": (asked(GOOD | {"shape": [2, 4]}), "got shape [2, 4]"),
    "negative": (asked(GOOD | {"shape": [-1, 8]}), "shape is a list of sizes"),
    "booleans": (asked(GOOD | {"shape": [True, 8]}), "shape is a list of sizes"),
    "huge": (asked(GOOD | {"shape": [2**62, 8]}), "is too large"),
    "huge, empty": (asked(GOOD | {"shape": [0, 8, 2**62]}), "is too large"),
    "few": (asked(GOOD | {"data": [1.0] * 7}), "shape [1, 8] has 8 elements; got 7"),
    "ragged": (asked(GOOD | {"data": [[1.0] * 7]}), "lists of 8 along axis 1; got a list of 7"),
    "types": (asked(GOOD | {"data": [True] * 8}), "FP32 takes JSON's float or int; got bool"),
    "no data": (asked({k: v for k, v in GOOD.items() if k != "data"}), "takes either data or"),
    "both": (asked(GOOD | {"parameters": {"binary_data_size": 32}}), "takes either data or"),
    "text": (asked(GOOD | {"data": "1"}), "data is a list; got str"),
    "output": (asked(GOOD, outputs=[{"name": "z"}]), "there is no output 'z'; the model gives 'scores'"),
    "output twice": (asked(GOOD, outputs=[{"name": "scores"}] * 2), "is asked for twice"),
    "flag": (asked(GOOD, parameters={"binary_data_output": 1}), "binary_data_output is true or false; got 1"),
    "id": (asked(GOOD, id=3), "id is a string; got int"),
    "time": (asked(GOOD, parameters={"timeout": "soon"}), "is a number of microseconds"),
    "sequence": (asked(GOOD, parameters={"sequence_id": 3}), "sequence_id is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(running: Running, what: str) -> None:
    body, message = WRONG[what]
    got = running.infer("net", body)
    assert got.status_code == 400, got.text
    assert message in got.json()["error"]
    assert running.infer("net", asked(GOOD)).status_code == 200


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ("1", "the request is not JSON"),
        ("x", "is a number of bytes; got 'x'"),
        ("-1", "is a number of bytes"),
        ("9" * 30, "is a number of bytes"),
        ("100000", "but the body has"),
        (None, "the request is not JSON"),
    ],
)
def test_lying_lengths_of_the_head(running: Running, length: str | None, message: str) -> None:
    body, _ = binary({"x": X})
    got = running.infer("net", body, {} if length is None else {"Inference-Header-Content-Length": length})
    assert got.status_code == 400
    assert message in got.json()["error"]


@pytest.mark.parametrize(
    ("size", "extra", "message"),
    [
        (97, b"", "binary_data_size is 97, but 96 bytes are left"),
        (95, b"", "is 96 bytes; got 95"),
        (-1, b"", "is a number of bytes; got -1"),
        ("96", b"", "is a number of bytes; got '96'"),
        (96, b"more", "4 bytes after the JSON belong to no input"),
    ],
)
def test_lying_sizes_of_tensors(running: Running, size: Any, extra: bytes, message: str) -> None:
    head = asked({"name": "x", "datatype": "FP32", "shape": [3, 8], "parameters": {"binary_data_size": size}})
    raw = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(raw))}
    got = running.infer("net", raw + X.tobytes() + extra, headers)
    assert got.status_code == 400
    assert message in got.json()["error"]


def test_a_tensor_of_bytes_without_the_header(running: Running) -> None:
    head = asked({"name": "x", "datatype": "FP32", "shape": [3, 8], "parameters": {"binary_data_size": 96}})
    got = running.infer("net", head)
    assert got.status_code == 400
    assert "takes the header" in got.json()["error"]


def test_bytes_that_are_no_bool_and_no_text(running: Running) -> None:
    raw = b"\x02\x01"
    tensors = [
        {"name": "b", "datatype": "BOOL", "shape": [1, 2], "parameters": {"binary_data_size": 2}},
        tensor("f", np.zeros((1, 2), np.float32)),
        tensor("i", np.zeros((1, 2), np.int64)),
    ]
    head = json.dumps(asked(*tensors)).encode()
    got = running.infer("typed", head + raw, {"Inference-Header-Content-Length": str(len(head))})
    assert "BOOL is bytes of 0 and 1; got 2" in got.json()["error"]
    for raw, message in (
        (b"\x05\0\0\0ab", "a text of 5 bytes, but 2 are left"),
        (b"\x01\0\0", "3 bytes left"),
        (b"\x01\0\0\0\xff", "is not UTF-8"),
        (b"", "its shape has 1 elements; got 0"),
    ):
        given_ = {
            "name": "t",
            "datatype": "BYTES",
            "shape": [1],
            "parameters": {"binary_data_size": len(raw)},
        }
        head = json.dumps(asked(given_)).encode()
        got = running.infer("texts", head + raw, {"Inference-Header-Content-Length": str(len(head))})
        assert got.status_code == 400
        assert message in got.json()["error"]


def test_sizes_of_one_name_are_one(running: Running) -> None:
    parts = [
        tensor("f", noise(2, 2)),
        tensor("i", np.zeros((3, 2), np.int64)),
        tensor("b", np.ones((2, 2), bool)),
    ]
    got = running.infer("typed", asked(*parts))
    assert got.status_code == 400
    assert got.json()["error"] == "size 'n' is 2 in input 'f', 3 in input 'i'"


def test_bodies_that_are_too_large_or_compressed(running: Running) -> None:
    got = running.infer("net", b" " * ((1 << 20) + 1))
    assert got.status_code == 413
    assert "at most 1048576 are taken" in got.json()["error"]
    got = running.infer("net", b"{}", {"Content-Length": "9" * 30})
    assert got.status_code == 413
    assert got.headers["connection"] == "close"
    chunks = (b" " * (1 << 18) for _ in range(5))
    got = running.client.post("/v2/models/net/infer", content=chunks)
    assert got.status_code == 413
    got = running.infer("net", b"{}", {"Content-Encoding": "gzip"})
    assert got.status_code == 415


def test_all_requests_together_hold_so_much(running: Running) -> None:
    with serving(stubbed(Stub()), max_held=1000) as small:
        got = small.infer("stub", b" " * 1001)
        assert (got.status_code, got.headers["retry-after"]) == (429, "1")
        assert small.infer("stub", asked(tensor("x", noise(1, 2)))).status_code == 200


WORDS = st.sampled_from(
    ["inputs", "outputs", "name", "x", "scores", "shape", "datatype", "FP32", "data", "id", "parameters",
     "binary_data_size", "binary_data_output", "binary_data", "timeout", "\ud800", ""]
)  # fmt: skip
LEAVES = WORDS | st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=4)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
PLACES = st.sampled_from(
    [("name",), ("shape",), ("datatype",), ("data",), ("parameters",), ("shape", 0), ("data", 0)]
)


@given(place=PLACES, put=JSON, more=st.dictionaries(WORDS, JSON, max_size=3))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_answered_or_refused(
    running: Running, place: Any, put: Any, more: dict[str, Any]
) -> None:
    changed = GOOD | {"data": list(GOOD["data"]), "shape": list(GOOD["shape"])}
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = put
    got = running.infer("net", json.dumps({**asked(changed), **more}).encode())
    assert got.status_code in (200, 400, 504)  # a timeout of a microsecond may be among them
    assert got.status_code == 200 or isinstance(got.json()["error"], str)


@given(raw=st.binary(max_size=200), length=st.integers(0, 250).map(str) | st.none())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused(running: Running, raw: bytes, length: str | None) -> None:
    got = running.infer("net", raw, {} if length is None else {"Inference-Header-Content-Length": length})
    assert got.status_code == 400
    assert isinstance(got.json()["error"], str)
