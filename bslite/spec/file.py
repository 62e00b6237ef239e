"""One safetensors file per model: the parameters as tensors, the graph as JSON in the metadata.

Any safetensors reader opens the file; the graph is the metadata entry ``"bslite"``. Its JSON is strict,
deterministic and has one line per layer and per parameter, so two models can be compared with ``diff``.
Nothing in it is ever executed or unpickled: what is read is checked like input from a stranger.
"""

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.errors import BsliteError, FileError, SpecError
from bslite.spec.graph import Array, G, Graph, Input, Node
from bslite.spec.tensors import Path, TensorFile, little_endian, write_tensors

KEY = "bslite"
VERSION = 2  # 1 has no labels
STORED = ("F32", "I64", "I32", "BOOL", "U8", "I8")  # what safetensors calls the dtypes of `bslite.ops.DTYPES`
CHECKSUM = ',\n  "crc32": "'  # what precedes the checksum, and follows the text it covers
ENTRIES = {"format", "version", "name", "inputs", "outputs", "labels", "layers", "params", "crc32"}


def write(spec: Graph, path: Path) -> None:
    """Write ``spec`` to ``path``; see `bslite.spec.model.save`."""
    if "__metadata__" in spec.params:
        raise SpecError("a parameter cannot be called '__metadata__': safetensors reserves the name")
    write_tensors(path, spec.params, {KEY: graph_json(spec)})


def read(path: Path, kind: type[G]) -> G:
    """A model of class ``kind`` from ``path``; see `bslite.spec.model.load`."""
    with TensorFile(path) as file:
        text = file.metadata.get(KEY)
        if text is None:
            raise FileError(f"{file.path}: not a bslite model (no {KEY!r} entry in its metadata)")
        try:
            graph = _parse_json(text)
            _check_version(graph)
            _check_damage(graph, text)
            params = _read_params(file, _take(graph, "params", dict, "the model"))
            return _to_spec(graph, params, kind)
        except FileError:
            raise
        except BsliteError as e:
            raise FileError(f"{file.path}: {e}") from e
        except Exception as e:
            # A shape rule given hostile attributes may fail in ways nobody wrote down; whatever it is, the
            # file is to blame and the caller's handler for FileError must see it.
            raise FileError(f"{file.path}: invalid model ({type(e).__name__}: {e})") from e


def graph_json(spec: Graph) -> str:
    """The graph as JSON text, the same for the same model; parameters by shape and CRC-32 of their bytes."""
    labelled = spec.labels != spec.outputs
    header = {"format": "bslite", "version": VERSION if labelled else 1, "name": spec.name}
    inputs = [
        {"name": i.name, "shape": list(i.shape), "example": list(i.example), "dtype": i.dtype}
        for i in spec.inputs
    ]
    layers = [
        {
            "name": node.name,
            "op": node.op,
            "inputs": list(node.inputs),
            "params": dict(node.params),
            "attrs": {key: _encode(node, key, value) for key, value in node.attrs.items()},
        }
        for node in spec.nodes
    ]
    params = {key: {"shape": list(a.shape), "crc32": _crc32(a)} for key, a in spec.params.items()}
    lines = [f"{json.dumps(key)}: {_dumps(value)}" for key, value in header.items()]
    lines.append('"inputs": ' + _block("[]", [_dumps(entry) for entry in inputs]))
    lines.append(f'"outputs": {_dumps(list(spec.outputs))}')
    if labelled:
        lines.append(f'"labels": {_dumps(list(spec.labels))}')
    lines.append('"layers": ' + _block("[]", [_dumps(entry) for entry in layers]))
    lines.append(
        '"params": ' + _block("{}", [f"{json.dumps(key)}: {_dumps(value)}" for key, value in params.items()])
    )
    body = "{\n  " + ",\n  ".join(lines)
    return f'{body}{CHECKSUM}{_text_crc32(body)}"\n}}\n'


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _block(brackets: str, lines: list[str]) -> str:
    """A JSON list or object with one line per entry."""
    if not lines:
        return brackets
    return brackets[0] + "\n    " + ",\n    ".join(lines) + "\n  " + brackets[1]


def _text_crc32(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _crc32(array: Array) -> str:
    """Checksum of the stored bytes: finds a flipped bit; it is no protection against intent."""
    return f"{zlib.crc32(little_endian(array).reshape(-1).view(np.uint8).data):08x}"


def _encode(node: Node, key: str, value: Any) -> Any:
    """An attribute as strict JSON: tuples as lists, infinities as ``{"float": "inf"}``."""
    if isinstance(value, (tuple, list)):
        return [_encode(node, key, v) for v in value]
    if isinstance(value, float) and math.isinf(value):
        return {"float": "inf" if value > 0 else "-inf"}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise SpecError(
        f"layer {node.name!r}: attribute {key}={value!r} cannot be stored ({type(value).__name__})"
    )


def _decode(value: Any) -> Any:
    """The inverse of `_encode`; sequences come back as tuples, the form ops store."""
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if isinstance(value, dict):
        if value in ({"float": "inf"}, {"float": "-inf"}):
            return float(value["float"])
        raise SpecError(f"attribute value {value!r} is not understood")
    return value


def _parse_json(text: str) -> dict[str, Any]:
    """Strict JSON: no repeated keys, no NaN, no integer beyond 64 bits."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {repeated!r} is repeated")
        return dict(pairs)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def integer(digits: str) -> int:
        if len(digits) > 20 or abs(int(digits)) >= 2**63:
            raise ValueError(f"the integer {digits[:20]}... is too large")
        return int(digits)

    try:
        graph = json.loads(text, object_pairs_hook=unique, parse_constant=constant, parse_int=integer)
    except (ValueError, RecursionError) as e:
        raise SpecError(f"the graph is not valid JSON ({e})") from e
    if not isinstance(graph, dict):
        raise SpecError(f"the graph is a JSON {type(graph).__name__}, expected an object")
    return graph


def _check_version(graph: Mapping[str, Any]) -> None:
    version = _take(graph, "version", int, "the model")
    if _take(graph, "format", str, "the model") != "bslite" or version < 1:
        raise SpecError(f"unknown format {graph['format']!r} version {version}")
    if version > VERSION:
        raise SpecError(
            f"written in format version {version}, this bslite reads up to {VERSION}; upgrade bslite"
        )


def _check_damage(graph: Mapping[str, Any], text: str) -> None:
    unknown = sorted(set(graph) - ENTRIES)
    if unknown:
        raise SpecError(f"the graph has unknown entries: {', '.join(unknown[:5])}")
    covered, mark, _ = text.rpartition(CHECKSUM)
    if "crc32" in graph and not (mark and graph["crc32"] == _text_crc32(covered)):
        raise SpecError(
            'the graph is damaged: it does not match its checksum (if edited, remove its "crc32")'
        )


def _take(entry: Any, key: str, kind: type, where: str) -> Any:
    """``entry[key]``, checked to be there and of the right JSON type."""
    if not isinstance(entry, Mapping):
        raise SpecError(f"{where} is a JSON {type(entry).__name__}, expected an object")
    if key not in entry:
        raise SpecError(f"{where} has no {key!r}")
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise SpecError(f"{where}: {key!r} is {value!r:.80}, expected a JSON {kind.__name__}")
    return value


def _strings(entry: Any, key: str, where: str) -> tuple[str, ...]:
    values = _take(entry, key, list, where)
    if not all(isinstance(v, str) for v in values):
        raise SpecError(f"{where}: {key!r} is {values!r:.80}, expected a list of names")
    return tuple(values)


def _read_params(file: TensorFile, table: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays the graph lists, each checked against its listed shape and checksum."""
    unlisted = sorted(set(file.dtypes) - set(table))
    if unlisted:
        raise SpecError(f"the file holds tensors the graph does not list: {', '.join(unlisted[:5])}")
    params: dict[str, Array] = {}
    for key, entry in table.items():
        where = f"parameter {key!r}"
        if key not in file.dtypes:
            raise SpecError(f"{where} is listed but not in the file")
        shape = tuple(_take(entry, "shape", list, where))
        if file.shape(key) != shape:
            raise SpecError(f"{where} has shape {list(file.shape(key))}, the graph lists {list(shape)}")
        params[key] = file.array(key, STORED)
        # A tool that edits weights may drop the checksum, but a wrong one means damage.
        if "crc32" in entry and _take(entry, "crc32", str, where) != _crc32(params[key]):
            raise SpecError(f"{where} is damaged: its bytes do not match their checksum")
    return params


def _to_spec(graph: Mapping[str, Any], params: dict[str, Array], kind: type[G]) -> G:
    name = _take(graph, "name", str, "the model")
    inputs = [_to_input(e, f"input {i}") for i, e in enumerate(_take(graph, "inputs", list, "the model"))]
    nodes = [_to_node(e, f"layer {i}") for i, e in enumerate(_take(graph, "layers", list, "the model"))]
    outputs = _strings(graph, "outputs", "the model")
    labels = _strings(graph, "labels", "the model") if "labels" in graph else ()
    return kind(name, tuple(inputs), tuple(nodes), outputs, params, labels)


def _to_input(entry: Any, where: str) -> Input:
    name = _take(entry, "name", str, where)
    where = f"input {name!r}"
    example = _take(entry, "example", list, where)
    if not all(type(d) is int for d in example):
        raise SpecError(f"{where}: example {example!r:.80} is not a list of sizes")
    shape = tuple(_take(entry, "shape", list, where))
    return Input(name, shape, tuple(example), _take(entry, "dtype", str, where))


def _to_node(entry: Any, where: str) -> Node:
    name = _take(entry, "name", str, where)
    where = f"layer {name!r}"
    params = _take(entry, "params", dict, where)
    if not all(isinstance(key, str) for key in params.values()):
        raise SpecError(f"{where}: 'params' is {params!r:.80}, expected names of parameters")
    try:
        attrs = {key: _decode(value) for key, value in _take(entry, "attrs", dict, where).items()}
    except (SpecError, RecursionError) as e:
        raise SpecError(f"{where}: {e}") from None
    return Node(name, _take(entry, "op", str, where), _strings(entry, "inputs", where), params, attrs)
