"""ONNX's schemas of its operators: what a node must be like, and the functions that define operators."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.values import Operand

#: An attribute of opset 1 that says what may be overwritten: nothing that a result depends on.
UNUSED = {"consumed_inputs"}
#: Operators that onnxruntime had in ONNX's own set before ONNX: from which opset on ONNX has them.
EARLY = {"LayerNormalization": 17}
MOST_KNOWN = 1024  # operators, by version, of which the schema is at hand


def find_schema(op_type: str, opset: int, domain: str = "") -> Any:
    """The operator's schema in ``opset`` of an operator set. Unsupported if there is none."""
    schema = _schema(op_type, opset, domain)
    if schema is None:
        raise Unsupported("no operator of that name")
    if schema.deprecated:
        raise Unsupported(f"deprecated before opset {opset}")
    return schema


@functools.lru_cache(MOST_KNOWN)
def _schema(op_type: str, opset: int, domain: str) -> Any:
    defs = load_onnx().defs
    if not domain:
        opset = max(opset, EARLY.get(op_type, 0))
    try:
        return defs.get_schema(op_type, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


class Arity(NamedTuple):
    """How many inputs and outputs an operator has, and the inputs that must not be left out, by place."""

    least: int
    most: int
    outputs: int
    needed: tuple[tuple[int, str], ...]


@functools.lru_cache(MOST_KNOWN)
def _arity(op_type: str, version: int, domain: str) -> Arity:
    schema = _schema(op_type, version, domain)
    single = load_onnx().defs.OpSchema.FormalParameterOption.Single
    needed = tuple((i, formal.name) for i, formal in enumerate(schema.inputs) if formal.option == single)
    return Arity(schema.min_input, schema.max_input, schema.max_output, needed)


def check_arity(schema: Any, inputs: Sequence[Any], node: Any) -> None:
    """SpecError unless the node has as many inputs and outputs as the operator."""
    arity = _arity(schema.name, schema.since_version, schema.domain)
    if not arity.least <= len(inputs) <= arity.most:
        raise SpecError(f"it has {len(inputs)} inputs, expected {arity.least} to {arity.most}")
    if len(node.output) > arity.outputs:
        raise SpecError(f"it has {len(node.output)} outputs, expected at most {arity.outputs}")
    for i, name in arity.needed:
        if i < len(inputs) and inputs[i] is None:
            raise SpecError(f"its input {i} ({name}) is left out")


def check_signature(builder: Any, inputs: Sequence[Any]) -> None:
    """SpecError unless an operator without a schema has as many inputs as its builder."""
    formal = list(inspect.signature(builder).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in formal):
        return
    named = [p for p in formal if p.kind is p.POSITIONAL_OR_KEYWORD]
    least = sum(p.default is p.empty for p in named)
    if not least <= len(inputs) <= len(named):
        raise SpecError(f"it has {len(inputs)} inputs, expected {least} to {len(named)}")
    for p, operand in zip(named, inputs, strict=False):
        if operand is None and p.annotation == Operand:
            raise SpecError(f"its input {p.name!r} is left out")


def accepted(builder: Any, values: Mapping[str, Any], given: set[str]) -> dict[str, Any]:
    """The attributes that the builder takes. Unsupported if it does not take one that is set.

    One that newer opsets have as an input may be a parameter of either kind.
    """
    names = _parameters(builder)
    if names is None:
        return dict(values)
    extra = sorted(given - names - UNUSED)
    if extra:
        raise Unsupported(f"with {', '.join(f'{n}={values[n]!r:.40}' for n in extra)}")
    return {n: v for n, v in values.items() if n in names}


@functools.lru_cache(MOST_KNOWN)
def _parameters(builder: Any) -> frozenset[str] | None:
    """The names of what a builder takes; None for any."""
    parameters = inspect.signature(builder).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)


def named(protos: Mapping[str, Any]) -> list[Any]:
    """Copies of attributes under the names of the mapping, which differ from their own for references."""
    made = []
    for name, attribute in protos.items():
        made.append(type(attribute)())
        made[-1].CopyFrom(attribute)
        made[-1].name = name
    return made


def function_body(
    schema: Any, node: Any, protos: Mapping[str, Any], inputs: Sequence[Operand | None], opset: int
) -> Any:
    """The function that defines the operator in terms of others, None if there is none.

    ``protos`` are the node's attributes, none of them a reference.
    """
    onnx = load_onnx()
    if schema.has_function:
        body = schema.function_body
        data = None
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if versions:
            data = schema.get_function_with_opset_version(max(versions))
        if not data:
            return body
    elif schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        types = [_type(x) for x in inputs]
        if not versions:
            return None
        plain = onnx.NodeProto()
        plain.CopyFrom(node)
        plain.ClearField("attribute")
        plain.attribute.extend(named(protos))
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), plain.SerializeToString(), types
        )
        if not data:
            return None
    else:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


def _type(operand: Operand | None) -> bytes:
    """The operand's type as a serialised TypeProto."""
    onnx = load_onnx()
    proto = onnx.TypeProto()
    if operand is not None:
        proto.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
        for d in operand.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(d, int):
                dim.dim_value = d
    data: bytes = proto.SerializeToString()
    return data
