"""Tensors in the protocol's gRPC messages: a request's as the JSON document of the same request has them, and
results.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.serve.datatypes import DATATYPES, made_dtype, to_bytes
from bslite.serve.model import VERSION, Served
from bslite.serve.problem import Problem
from bslite.serve.request import InferRequest

_DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
#: The field of typed contents that a datatype's values stand in, and that field's own dtype. FP16 has none.
CONTENTS = {
    "BOOL": ("bool_contents", "bool"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), ("uint_contents", "uint32")),
    "UINT64": ("uint64_contents", "uint64"),
    **dict.fromkeys(("INT8", "INT16", "INT32"), ("int_contents", "int32")),
    "INT64": ("int64_contents", "int64"),
    "FP32": ("fp32_contents", "float32"),
    "FP64": ("fp64_contents", "float64"),
    "BYTES": ("bytes_contents", "object"),
}


def document(asked: Any) -> dict[str, Any]:
    """What a ModelInferRequest says, for `bslite.serve.request.checked`. Problem 400 for tensors whose values
    are not where they belong.
    """
    raw: Sequence[bytes] = asked.raw_input_contents
    if raw and len(raw) != len(asked.inputs):
        raise Problem(400, f"raw_input_contents has {len(raw)} tensors; there are {len(asked.inputs)} inputs")
    tensors = []
    for number, tensor in enumerate(asked.inputs):
        given = [field.name for field, _ in tensor.contents.ListFields()]
        if raw and given:
            raise Problem(400, f"input {tensor.name!r} has {given[0]} beside raw_input_contents")
        tensors.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": _parameters(tensor),
                "data": memoryview(raw[number] if raw else _typed(tensor, given)),
            }
        )
    outputs = [{"name": output.name, "parameters": _parameters(output)} for output in asked.outputs]
    return {"id": asked.id, "parameters": _parameters(asked), "inputs": tensors, "outputs": outputs}


def _parameters(message: Any) -> dict[str, Any]:
    chosen = {name: (p, p.WhichOneof("parameter_choice")) for name, p in message.parameters.items()}
    return {name: getattr(p, field) if field else None for name, (p, field) in chosen.items()}


def _typed(tensor: Any, given: list[str]) -> bytes:
    """The bytes of a tensor whose values are in the fields ``given`` of its contents; none for a datatype
    that there is not.
    """
    if tensor.datatype not in _DTYPES:
        return b""
    field, wide = CONTENTS.get(tensor.datatype, ("raw_input_contents", ""))
    if wrong := [name for name in given if name != field]:
        raise Problem(
            400, f"input {tensor.name!r}: {tensor.datatype} is sent in {field}; got {', '.join(wrong)}"
        )
    if not given:
        return b""
    dtype = _DTYPES[tensor.datatype]
    values = np.array(list(getattr(tensor.contents, field)), wide)
    if dtype == "string":
        return to_bytes(values, dtype)
    narrow = values.astype(dtype)
    if values.dtype.kind in "iu" and not np.array_equal(narrow, values):
        raise Problem(400, f"input {tensor.name!r}: a value is outside the range of {tensor.datatype}")
    return to_bytes(narrow, dtype)


def results(model: Served, asked: InferRequest, made: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the ModelInferResponse with a model's results by name."""
    dtypes = {p.name: p.dtype for p in model.outputs}
    wanted = [(name, made[name], made_dtype(dtypes[name], made[name])) for name, _ in asked.wanted]
    return {
        "model_name": model.name,
        "model_version": VERSION,
        "id": asked.id,
        "outputs": [{"name": n, "datatype": DATATYPES[dtype], "shape": y.shape} for n, y, dtype in wanted],
        "raw_output_contents": [to_bytes(y, dtype) for _, y, dtype in wanted],
    }
