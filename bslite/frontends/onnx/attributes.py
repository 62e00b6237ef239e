"""Attributes of ONNX nodes as Python values, checked against the operator's schema."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bslite.errors import SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.tensors import to_array

#: Kind of attribute -> the field that holds it.
FIELDS = {
    "FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "sparse_tensor",
    "FLOATS": "floats", "INTS": "ints", "STRINGS": "strings",
}  # fmt: skip


def resolve(node: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The node's attributes by name; those that refer to an attribute of the enclosing function, ``given``,
    are looked up there and left out where it has none.
    """
    protos: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.name in protos:
            raise SpecError(f"it has two attributes {attribute.name!r}")
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                protos[attribute.name] = given[attribute.ref_attr_name]
        else:
            protos[attribute.name] = attribute
    return protos


def value(attribute: Any, folder: Path | None) -> Any:
    """A number, text, array, graph, or a tuple of numbers or texts. SpecError if kind and content differ."""
    kinds = load_onnx().AttributeProto.AttributeType
    kind = kinds.Name(attribute.type) if attribute.type in kinds.values() else str(attribute.type)
    field = FIELDS.get(kind)
    if field is None:
        raise Unsupported(f"its attribute {attribute.name!r} is of kind {kind}")
    if field not in ("floats", "ints", "strings") and not attribute.HasField(field):
        raise SpecError(f"its attribute {attribute.name!r} says it is {kind} and holds none")
    content = getattr(attribute, field)
    if field == "t":
        return to_array(content, folder, f"attribute {attribute.name!r}")
    if field == "s":
        return content.decode("utf-8", "replace")
    if field == "strings":
        texts = {text: text.decode("utf-8", "replace") for text in set(content)}  # a forest repeats few
        return tuple(map(texts.__getitem__, content))
    return tuple(content) if field in ("floats", "ints") else content


def by_schema(schema: Any, protos: Mapping[str, Any], folder: Path | None) -> tuple[dict[str, Any], set[str]]:
    """Every attribute of the schema with its value, its default, or None; and the names that are not default.

    SpecError for an attribute that the operator does not have, of the wrong kind, or missing.
    """
    known = _declared(schema.name, schema.since_version, schema.domain)
    unknown = sorted(set(protos) - set(known))
    if unknown:
        raise SpecError(f"{schema.name} has no attribute {', '.join(map(repr, unknown))}")
    values: dict[str, Any] = {}
    given: set[str] = set()
    for name, declared in known.items():
        if name in protos:
            if protos[name].type != declared.code:
                raise SpecError(
                    f"attribute {name!r} of {schema.name} is of the wrong kind, expected {declared.kind}"
                )
            values[name] = value(protos[name], folder)
            if declared.kind in ("TENSOR", "GRAPH", "SPARSE_TENSOR") or values[name] != declared.default:
                given.add(name)
        elif declared.required:
            raise SpecError(f"{schema.name} needs the attribute {name!r}")
        else:
            values[name] = declared.default
    return values, given


class Declared(NamedTuple):
    """An attribute as a schema has it: its kind by name and by number, and its default."""

    kind: str
    code: int
    required: bool
    default: Any


@functools.lru_cache(1024)
def _declared(op_type: str, version: int, domain: str) -> dict[str, Declared]:
    """The attributes of an operator, from its version on."""
    schema = load_onnx().defs.get_schema(op_type, max_inclusive_version=version, domain=domain)
    found: dict[str, Declared] = {}
    for name, attribute in schema.attributes.items():
        default, code = attribute.default_value, int(attribute.type.value)
        known = value(default, None) if default.type else None
        kind = load_onnx().AttributeProto.AttributeType.Name(code)
        found[name] = Declared(kind, code, bool(attribute.required), known)
    return found
