"""Answers: outputs as JSON, with the bytes of those asked for as bytes after it."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from bslite.serve.datatypes import DATATYPES, made_dtype, to_bytes, to_json
from bslite.serve.problem import Problem
from bslite.serve.request import HEADER_LENGTH, InferRequest
from bslite.spec.ports import Port


def answer(
    name: str, version: str, asked: InferRequest, ports: Sequence[Port], made: Mapping[str, Any]
) -> Response:
    """The answer to ``asked`` from a model's results by name. Problem 406 where JSON cannot hold them."""
    dtypes = {p.name: p.dtype for p in ports}
    tensors, tail = list[dict[str, Any]](), list[bytes]()
    for output, binary in asked.wanted:
        array = made[output]
        dtype = made_dtype(dtypes[output], array)
        tensor: dict[str, Any] = {"name": output, "datatype": DATATYPES[dtype], "shape": list(array.shape)}
        if binary:
            tail.append(to_bytes(array, dtype))
            tensor["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            tensor["data"] = to_json(array, dtype, f"output {output!r}")
        tensors.append(tensor)
    document = {"model_name": name, "model_version": version, "outputs": tensors}
    if asked.id is not None:
        document["id"] = asked.id
    head = dumped(document)
    if not tail:
        return Response(head, media_type="application/json")
    headers = {HEADER_LENGTH: str(len(head))}
    return Response(b"".join([head, *tail]), headers=headers, media_type="application/octet-stream")


def as_json(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document."""
    return Response(dumped(document), status, headers, "application/json")


def refusal(problem: Problem) -> Response:
    """An error in the protocol's form."""
    return as_json({"error": problem.message}, problem.status, problem.headers)


def dumped(document: Any) -> bytes:
    """A document as JSON; NumPy's arrays are lists in it."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
