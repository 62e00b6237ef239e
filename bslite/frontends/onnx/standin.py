"""Stand-ins for the results of nodes that could not be converted.

With them the nodes that read such a result are converted too, so that one error lists every unsupported
operator. A stand-in is a value with the shape and dtype that ONNX infers for the node or that the file
declares; no model is built from it. An error behind a stand-in may be the stand-in's fault, so it is not
reported. Where shape or dtype are unknown, the result is MISSING: a node that reads it is only checked for
having a known operator.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.store import MAX_ELEMENTS
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.values import Const, Operand, Sizes, Value
from bslite.ops import Shape

MISSING: Any = object()  # stands for the result of a node that could not be converted
ROOT = "\0"  # begins what a stand-in has in the place of a graph input that it depends on
SMALL = 1024  # elements of a constant that shape inference may look at


def is_standin(operand: Any) -> bool:
    """Whether ``operand`` is a stand-in, computed from one, or missing."""
    return operand is MISSING or (isinstance(operand, Value) and from_standin(operand.roots))


def from_standin(roots: Iterable[str]) -> bool:
    """Whether stand-ins are among the graph inputs that something depends on."""
    return any(root.startswith(ROOT) for root in roots)


def standins(
    schema: Any,
    node: Any,
    attributes: Sequence[Any],
    inputs: Sequence[Operand | None],
    opsets: Mapping[str, int],
) -> list[Any]:
    """A stand-in for each output of ``node``, by ONNX's own inference; MISSING where that gives no type."""
    count = len(node.output)
    if schema is None or any(x is MISSING for x in inputs) or any(a.HasField("g") for a in attributes):
        return [MISSING] * count  # inference would walk the unchecked graphs inside the node
    probes = max((len(x.shapes) for x in inputs if x is not None), default=1)
    try:
        inferred = [_infer(schema, node, attributes, inputs, opsets, p) for p in range(probes)]
    except Exception:  # whatever the operator's own inference finds wrong
        return [MISSING] * count
    return [_made([types.get(out) for types in inferred], out) for out in node.output]


def _infer(
    schema: Any, node: Any, attributes: Sequence[Any], inputs: Sequence[Operand | None],
    opsets: Mapping[str, int], probe: int,
) -> dict[str, Any]:  # fmt: skip
    """Output -> its TypeProto in one probe."""
    onnx = load_onnx()
    from onnx.shape_inference import infer_node_outputs

    plain = onnx.NodeProto(op_type=node.op_type, domain=node.domain, output=node.output)
    types, data = {}, {}
    for i, x in enumerate(inputs):
        name = "" if x is None else f"i{i}"
        plain.input.append(name)
        if x is None:
            continue
        shape = x.shapes[min(probe, len(x.shapes) - 1)]
        types[name] = onnx.helper.make_tensor_type_proto(
            onnx.helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype)), shape
        )
        if not isinstance(x, Value) and math.prod(shape) <= SMALL:
            array = x.data if isinstance(x, Const) else x.arrays[min(probe, len(x.arrays) - 1)]
            data[name] = onnx.numpy_helper.from_array(np.asarray(array), name)
    plain.attribute.extend(attributes)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    made: dict[str, Any] = infer_node_outputs(schema, plain, types, data, opset_imports=imports)
    return made


def declared(kind: Any, name: str, free: Mapping[str, Sequence[int]]) -> Any:
    """A stand-in of the type that the file declares, a TypeProto. ``free``: sizes by probe."""
    dims = kind.tensor_type.shape.dim if kind.tensor_type.HasField("shape") else None
    if dims is None:
        return MISSING
    shapes = []
    for probe in range(max((len(v) for v in free.values()), default=1)):
        shape = []
        for d in dims:
            if d.HasField("dim_value"):
                shape.append(d.dim_value)
            elif d.dim_param in free:
                shape.append(free[d.dim_param][probe])
            else:
                return MISSING
        shapes.append(tuple(shape))
    return _value(name, shapes, kind.tensor_type.elem_type)


def _made(kinds: Sequence[Any], name: str) -> Any:
    """A stand-in of the same type in every probe."""
    shapes = []
    for kind in kinds:
        if kind is None or not kind.tensor_type.HasField("shape"):
            return MISSING
        dims = kind.tensor_type.shape.dim
        if not all(d.HasField("dim_value") for d in dims):
            return MISSING
        shapes.append(tuple(d.dim_value for d in dims))
    return _value(name, shapes, kinds[0].tensor_type.elem_type)


def _value(name: str, shapes: Sequence[Shape], code: int) -> Any:
    dtype = dtype_name(code)
    sizes = [d for s in shapes for d in s]
    if not dtype or any(d < 1 for d in sizes) or any(math.prod(s) > MAX_ELEMENTS for s in shapes):
        return MISSING
    if len({len(s) for s in shapes}) != 1:
        return MISSING
    return Value.probed(ROOT + name, tuple(shapes), dtype, frozenset([ROOT + name]))


def free_sizes(inputs: Sequence[Any], values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The file's names of free sizes, with their numbers in every probe, by the graph's inputs."""
    found: dict[str, tuple[int, ...]] = {}
    for v in inputs:
        value = values.get(v.name)
        if isinstance(value, (Value, Sizes)):
            for axis, d in enumerate(v.type.tensor_type.shape.dim):
                if d.dim_param and axis < value.rank:
                    found.setdefault(d.dim_param, tuple(s[axis] for s in value.shapes))
    return found
