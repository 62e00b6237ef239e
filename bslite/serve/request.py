"""A request for inference: what it says becomes checked arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from bslite.serve.datatypes import DATATYPES, from_bytes, from_json
from bslite.serve.problem import Problem
from bslite.spec.ports import Port

HEADER_LENGTH = "Inference-Header-Content-Length"
MOST_AXES, MOST_ELEMENTS = 32, 1 << 40  # numpy has limits of its own, above these
MOST_SHOWN = 100  # characters of a client's own words in a message to it
#: Parameters that change what an answer means: refused, because they are not done. Others unknown are passed
#: over, as the protocol wants it.
REFUSED = ("sequence_id", "sequence_start", "sequence_end", "shared_memory_region", "classification")


@dataclass
class InferRequest:
    """``arrays``: one per input of the model, in order. ``wanted``: names of outputs; whether as bytes."""

    id: str | None
    arrays: list[Any]
    wanted: list[tuple[str, bool]]
    timeout: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


def parse(
    body: bytes | bytearray, header_length: str | None, inputs: Sequence[Port], outputs: Sequence[Port]
) -> InferRequest:
    """A request to a model with these ports, from the body of an HTTP request. Problem 400 that names what is
    wrong with it.
    """
    head, rest = _cut(body, header_length)
    asked = _document(head)
    left = _put_bytes(asked, rest)
    made = checked(asked, inputs, outputs)
    if left:
        raise Problem(400, f"{left} bytes after the JSON belong to no input")
    return made


def checked(asked: dict[str, Any], inputs: Sequence[Port], outputs: Sequence[Port]) -> InferRequest:
    """A request from the protocol's JSON document, in which an input's ``data`` may be its bytes, as a
    memoryview. Problem 400 that names what is wrong with it.
    """
    parameters = _mapping(asked.get("parameters", {}), "parameters")
    _refuse(parameters, "parameters")
    if "id" in asked and not isinstance(asked["id"], str):
        raise Problem(400, f"id is a string; got {type(asked['id']).__name__}")
    timeout = parameters.get("timeout")
    if timeout is not None and (type(timeout) is not int or timeout < 0):
        raise Problem(400, f"parameters.timeout is a number of microseconds; got {_shown(timeout)}")
    return InferRequest(
        asked.get("id"),
        _arrays(asked, inputs),
        _wanted(asked, outputs, _flag(parameters, "binary_data_output", False)),
        timeout / 1e6 if timeout else None,
        parameters,
    )


def _cut(body: bytes | bytearray, header_length: str | None) -> tuple[memoryview, memoryview | None]:
    """JSON and tensor bytes; None for the latter if the request says nothing of any."""
    view = memoryview(body)
    if header_length is None:
        return view, None
    if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 18:
        raise Problem(400, f"{HEADER_LENGTH} is a number of bytes; got {_shown(header_length)}")
    if (size := int(header_length)) > len(body):
        raise Problem(400, f"{HEADER_LENGTH} is {size}, but the body has {len(body)} bytes")
    return view[:size], view[size:]


def _document(head: memoryview) -> dict[str, Any]:
    try:
        made = orjson.loads(head)
    except orjson.JSONDecodeError as e:  # NaN, infinities and nesting beyond a thousand levels included
        raise Problem(400, f"the request is not JSON: {e}") from None
    return _mapping(made, "the request")


def _put_bytes(asked: dict[str, Any], rest: memoryview | None) -> int:
    """The bytes after the JSON become the ``data`` of the inputs that they are said to belong to; how many
    belong to none.
    """
    given = asked.get("inputs")
    at = 0
    for tensor in given if isinstance(given, list) else ():
        parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            continue
        what = f"input {_shown(tensor.get('name'))}"
        if "data" in tensor:
            raise Problem(400, f"{what} takes either data or parameters.binary_data_size")
        if type(size) is not int or size < 0:
            raise Problem(400, f"{what}: binary_data_size is a number of bytes; got {_shown(size)}")
        if rest is None:
            raise Problem(400, f"{what} is sent as binary data, which takes the header {HEADER_LENGTH}")
        if size > len(rest) - at:
            raise Problem(400, f"{what}: binary_data_size is {size}, but {len(rest) - at} bytes are left")
        tensor["data"] = rest[at : at + size]
        at += size
    return 0 if rest is None else len(rest) - at


def _arrays(asked: dict[str, Any], ports: Sequence[Port]) -> list[Any]:
    given = asked.get("inputs")
    if not isinstance(given, list):
        raise Problem(400, f"inputs is a list of tensors; got {_shown(given)}")
    known = {p.name: p for p in ports}
    arrays: dict[str, Any] = {}
    for number, tensor in enumerate(given):
        tensor = _mapping(tensor, f"inputs[{number}]")
        name = tensor.get("name")
        if not isinstance(name, str) or name not in known:
            raise Problem(400, f"there is no input {_shown(name)}; the model takes {_names(known)}")
        if name in arrays:
            raise Problem(400, f"input {name!r} is given twice")
        port, what = known[name], f"input {name!r}"
        shape = _shape(tensor, port, what)
        parameters = _mapping(tensor.get("parameters", {}), f"{what}: parameters")
        _refuse(parameters, what)
        if "data" not in tensor:
            raise Problem(400, f"{what} takes either data or parameters.binary_data_size")
        turned = from_bytes if isinstance(tensor["data"], memoryview) else from_json
        arrays[name] = turned(tensor["data"], port.dtype, shape, what)
    if missing := [n for n in known if n not in arrays]:
        raise Problem(
            400, f"input {', '.join(map(repr, missing))} is missing; the model takes {_names(known)}"
        )
    _agree(ports, arrays)
    return [arrays[p.name] for p in ports]


def _shape(tensor: dict[str, Any], port: Port, what: str) -> tuple[int, ...]:
    if (datatype := tensor.get("datatype")) != (wanted := DATATYPES[port.dtype]):
        raise Problem(400, f"{what} is {wanted}; got {_shown(datatype)}")
    shape = tensor.get("shape")
    if not isinstance(shape, list) or any(type(d) is not int or d < 0 for d in shape):
        raise Problem(400, f"{what}: shape is a list of sizes; got {_shown(shape)}")
    if len(shape) > MOST_AXES or math.prod(d or 1 for d in shape) > MOST_ELEMENTS:
        raise Problem(400, f"{what}: shape {_shown(shape)} is too large")
    if port.shape is not None and (
        len(shape) != len(port.shape)
        or any(isinstance(d, int) and d != n for d, n in zip(port.shape, shape, strict=True))
    ):
        raise Problem(400, f"{what} is {port}; got shape {_shown(shape)}")
    return tuple(shape)


def _agree(ports: Sequence[Port], arrays: dict[str, Any]) -> None:
    """Sizes of one name are one."""
    sizes: dict[str, tuple[int, str]] = {}
    for port in ports:
        for label, size in zip(port.shape or (), arrays[port.name].shape, strict=False):
            if not isinstance(label, str):
                continue
            first = sizes.setdefault(label, (size, port.name))
            if first[0] != size:
                raise Problem(
                    400, f"size {label!r} is {first[0]} in input {first[1]!r}, {size} in input {port.name!r}"
                )


def _wanted(asked: dict[str, Any], ports: Sequence[Port], binary: bool) -> list[tuple[str, bool]]:
    names = [p.name for p in ports]
    given = asked.get("outputs")
    if given is None or given == []:
        return [(n, binary) for n in names]
    if not isinstance(given, list):
        raise Problem(400, f"outputs is a list; got {_shown(given)}")
    made: dict[str, bool] = {}
    for number, tensor in enumerate(given):
        name = _mapping(tensor, f"outputs[{number}]").get("name")
        if not isinstance(name, str) or name not in names:
            raise Problem(400, f"there is no output {_shown(name)}; the model gives {_names(names)}")
        if name in made:
            raise Problem(400, f"output {name!r} is asked for twice")
        parameters = _mapping(tensor.get("parameters", {}), f"output {name!r}: parameters")
        _refuse(parameters, f"output {name!r}")
        made[name] = _flag(parameters, "binary_data", binary)
    return list(made.items())


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    if not isinstance(value := parameters.get(name, default), bool):
        raise Problem(400, f"{name} is true or false; got {_shown(value)}")
    return value


def _refuse(parameters: dict[str, Any], what: str) -> None:
    if found := [n for n in REFUSED if n in parameters]:
        raise Problem(400, f"{what}: {', '.join(found)} is not supported here")


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Problem(400, f"{what} is a JSON object; got {_shown(value)}")
    return value


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list) and all(type(x) is int for x in value[:MOST_SHOWN]):
        text = str(value[:MOST_SHOWN])
    else:
        text = repr(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."
