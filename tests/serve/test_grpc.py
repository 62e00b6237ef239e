"""The protocol over gRPC: answers as tritonclient gets them, and errors for what is wrong."""

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.onnx_models import helper, model, value
from support.serving import asked, compiled, found, perceptron, tensor

pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

import grpc
import tritonclient.grpc as triton
from support.grpc_client import INFER, Client, Code, X, client_of, message, refusal
from tritonclient.grpc import service_pb2 as theirs

import bslite
from bslite.serve.datatypes import DATATYPES
from bslite.serve.rpc.messages import MESSAGES
from bslite.serve.rpc.tensors import CONTENTS


def passing(*dtypes: str) -> Any:
    """A model that passes on an input of each dtype, under the dtype's name."""
    kinds = {d: helper.np_dtype_to_tensor_dtype(np.dtype("O" if d == "string" else d)) for d in dtypes}
    nodes = [helper.make_node("Identity", [k], [f"{k}_out"]) for k in kinds]
    inputs = [value(k, ["n", 3], kind) for k, kind in kinds.items()]
    return model(nodes, inputs, [value(f"{k}_out", ["n", 3], kind) for k, kind in kinds.items()])


def values(dtype: str) -> np.ndarray:
    """Values at the edges of a dtype, [2, 3]."""
    if dtype == "string":
        return np.array([["", "né", "three"], ["\0", "x" * 300, "six"]], object)
    if dtype == "bool":
        return np.array([[True, False, True], [False, False, True]])
    kind = np.dtype(dtype)
    if kind.kind == "f":
        tiny, most = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
        return np.array([[np.nan, np.inf, -0.0], [tiny, -most, 0.1]], kind)
    least, most = max(np.iinfo(kind).min, -(2**31)), min(np.iinfo(kind).max, 2**31 - 1)  # what bslite takes
    return np.array([[least, most, 0], [1, 2, 3]], kind)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    typed = [dtype for dtype in DATATYPES if dtype != "float16"]  # which has no typed contents
    models = {"net": perceptron(), "every": passing(*DATATYPES), "typed": passing(*typed)}
    with client_of(*(compiled(proto, name) for name, proto in models.items()), max_body=1 << 20) as made:
        yield made


def test_the_messages_are_tritons() -> None:
    """Every field that is declared here has its number, type and label there, in another pool."""
    for name, cls in MESSAGES.items():
        other = theirs.DESCRIPTOR.pool.FindMessageTypeByName(f"inference.{name}")
        for field in cls.DESCRIPTOR.fields:
            twin = other.fields_by_name[field.name]
            for of in ("number", "type", "is_repeated", "has_presence"):
                assert getattr(field, of) == getattr(twin, of), (name, field.name, of)
            if field.message_type is not None:
                assert field.message_type.full_name == twin.message_type.full_name
                assert field.message_type.GetOptions().map_entry == twin.message_type.GetOptions().map_entry
    assert MESSAGES["ModelInferRequest"].DESCRIPTOR.file.pool is not theirs.DESCRIPTOR.pool


def test_health_and_metadata(client: Client) -> None:
    assert client.triton.is_server_live()
    assert client.triton.is_server_ready()
    assert client.triton.is_model_ready("net")
    assert client.triton.is_model_ready("net", "1")
    assert client.triton.get_server_metadata().name == "bslite"
    described = client.triton.get_model_metadata("net", as_json=True)
    assert described == {
        "name": "net",
        "versions": ["1"],
        "platform": "bslite",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": ["-1", "8"]}],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": ["-1", "5"]}],
    }


def test_the_bits_of_a_call_and_of_http(client: Client) -> None:
    want = bslite.compile(perceptron())(X)["scores"].tobytes()
    assert client.infer("net", X).tobytes() == want
    wanted = [triton.InferRequestedOutput("scores")]
    assert client.infer("net", X, model_version="1", outputs=wanted, timeout=10_000_000).tobytes() == want
    assert found(client.running.infer("net", asked(tensor("x", X))), "scores").tobytes() == want
    request = message()
    request.id = "é"
    assert client.call(request).id == "é"
    waiting = [client.channel.unary_unary(INFER).future(message().SerializeToString()) for _ in range(20)]
    answers = [theirs.ModelInferResponse.FromString(w.result(20)) for w in waiting]
    assert {a.raw_output_contents[0] for a in answers} == {want}


def every(name: str) -> Any:
    """A request with values of the datatypes that a model takes: as bytes to "every", else typed contents."""
    made = theirs.ModelInferRequest(model_name=name)
    for dtype, datatype in DATATYPES.items():
        array = values(dtype)
        sent = triton.InferInput(dtype, list(array.shape), datatype)
        sent.set_data_from_numpy(array)
        if name == "every":
            made.raw_input_contents.append(sent._get_content())
        elif dtype == "float16":
            continue
        made.inputs.add().CopyFrom(sent._get_tensor())
        if name == "typed":
            flat = [x.encode() if dtype == "string" else x.item() for x in array.ravel()]
            getattr(made.inputs[-1].contents, CONTENTS[datatype][0]).extend(flat)
    return made


@pytest.mark.parametrize("name", ["every", "typed"])
def test_every_datatype_comes_back_as_it_went(client: Client, name: str) -> None:
    made = triton.InferResult(client.call(every(name)))
    for output in made.get_response().outputs:
        dtype = output.name.removesuffix("_out")
        got, want = made.as_numpy(output.name), values(dtype)
        if dtype == "string":
            assert [x.decode() for x in got.ravel()] == list(want.ravel())
        else:
            assert (got.dtype, got.shape, got.tobytes()) == (want.dtype, want.shape, want.tobytes())
    assert len(made.get_response().outputs) == len(DATATYPES) - (name == "typed")


def typed(number: int, **fields: list[Any]) -> Any:
    """The request of typed contents, with other ones in its input ``number``."""
    made = every("typed")
    made.inputs[number].contents.CopyFrom(theirs.InferTensorContents(**fields))
    return made


def half() -> Any:
    made = theirs.ModelInferRequest(model_name="every")
    made.inputs.add(name="float16", datatype="FP16", shape=[1, 3], contents={"fp32_contents": [1, 2, 3]})
    return made


def changed(**fields: Any) -> Any:
    """The request for net with other fields."""
    made = message()
    for name, put in fields.items():
        made.ClearField(name)
        made.MergeFrom(theirs.ModelInferRequest(**{name: put}))
    return made


NUMBER = {dtype: n for n, dtype in enumerate(d for d in DATATYPES if d != "float16")}
WRONG: dict[str, tuple[Any, str]] = {
    "no message": (b"\xff\xff", "the request is no ModelInferRequest"),
    "text": (b"\x0a\x02\xc3\x28", "the request is no ModelInferRequest"),
    "unknown": (message(name="y"), "there is no input 'y'; the model takes 'x'"),
    "nameless": (message(name=""), "there is no input ''"),
    "twice": (changed(inputs=[message().inputs[0]] * 2, raw_input_contents=[X.tobytes()] * 2), "given twice"),
    "missing": (theirs.ModelInferRequest(model_name="net"), "input 'x' is missing; the model takes 'x'"),
    "dtype": (message(datatype="FP64"), "input 'x' is FP32; got 'FP64'"),
    "no dtype": (message(datatype="COMPLEX"), "input 'x' is FP32; got 'COMPLEX'"),
    "rank": (message(shape=[24]), "input 'x' is x: float32[n, 8]; got shape [24]"),
    "size": (message(shape=[4, 6]), "got shape [4, 6]"),
    "negative": (message(shape=[-3, 8]), "shape is a list of sizes"),
    "huge": (message(shape=[2**62, 8]), "is too large"),
    "short": (message(X[:2], shape=[3, 8]), "shape [3, 8] of FP32 is 96 bytes; got 64"),
    "more raw": (
        changed(raw_input_contents=[b"", b""]),
        "raw_input_contents has 2 tensors; there are 1 inputs",
    ),
    "no raw": (changed(raw_input_contents=[]), "shape [3, 8] of FP32 is 96 bytes; got 0"),
    "both": (message(contents={"fp32_contents": [1]}), "'x' has fp32_contents beside raw_input_contents"),
    "few": (typed(NUMBER["float32"], fp32_contents=[1]), "shape [2, 3] of FP32 is 24 bytes; got 4"),
    "other": (
        typed(NUMBER["float32"], fp64_contents=[1]),
        "FP32 is sent in fp32_contents; got fp64_contents",
    ),
    "range": (typed(NUMBER["uint8"], uint_contents=[256] * 6), "a value is outside the range of UINT8"),
    "utf-8": (typed(NUMBER["string"], bytes_contents=[b"\xff"] * 6), "element 0 is not UTF-8"),
    "half": (half(), "input 'float16': FP16 is sent in raw_input_contents; got fp32_contents"),
    "output": (changed(outputs=[{"name": "z"}]), "there is no output 'z'; the model gives 'scores'"),
    "output twice": (changed(outputs=[{"name": "scores"}] * 2), "is asked for twice"),
    "classes": (
        changed(outputs=[{"name": "scores", "parameters": {"classification": {"int64_param": 2}}}]),
        "classification is not supported",
    ),
    "time": (changed(parameters={"timeout": {"string_param": "soon"}}), "is a number of microseconds"),
    "sequence": (changed(parameters={"sequence_id": {"int64_param": 3}}), "sequence_id is not supported"),
    "memory": (message(parameters={"shared_memory_region": {"string_param": "r"}}), "is not supported"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said(client: Client, what: str) -> None:
    request, told = WRONG[what]
    code, heard, _ = refusal(lambda: client.call(request))
    assert code is Code.INVALID_ARGUMENT
    assert told in heard
    assert len(client.call(message()).outputs) == 1


@given(raw=st.binary(max_size=200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused(client: Client, raw: bytes) -> None:
    assert refusal(lambda: client.call(raw))[0] in (Code.INVALID_ARGUMENT, Code.NOT_FOUND)


def test_what_is_not_there(client: Client) -> None:
    told = "there is no model 'other'; there are 'net', 'every', 'typed'"
    for call in (
        lambda: client.infer("other", X),
        lambda: client.triton.is_model_ready("other"),
        lambda: client.triton.get_model_metadata("other"),
    ):
        assert refusal(call)[:2] == (Code.NOT_FOUND, told)
    code, told, _ = refusal(lambda: client.infer("net", X, model_version="7"))
    assert (code, told) == (Code.NOT_FOUND, "model 'net' has no version '7'; it has '1'")
    code, told, _ = refusal(lambda: client.infer("é" * 100_000, X))
    assert code is Code.NOT_FOUND
    assert told.startswith("there is no model 'éé")
    assert refusal(lambda: client.triton.get_model_config("net"))[0] is Code.UNIMPLEMENTED


def test_messages_that_are_too_large_or_compressed(client: Client) -> None:
    code, told, _ = refusal(lambda: client.call(b"\0" * (1 << 20) + b"\0"))
    assert code is Code.RESOURCE_EXHAUSTED
    assert "larger than max" in told
    packed = grpc.Compression.Gzip
    assert refusal(lambda: client.call(message(), compression=packed))[0] is Code.UNIMPLEMENTED
    code, told, _ = refusal(
        lambda: client.channel.stream_unary(INFER)(iter(()), timeout=20)
    )  # ends without a message
    assert (code, told) == (
        Code.INVALID_ARGUMENT,
        "there is no message, or one that has more than 1048576 bytes",
    )
    assert len(client.call(message()).outputs) == 1


def test_what_is_no_grpc_is_let_go(client: Client) -> None:
    host, _, port = client.address.partition(":")
    for raw in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 500, bytes(1000)):
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            sock.sendall(raw)
            try:
                while sock.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass
    assert len(client.call(message()).outputs) == 1
