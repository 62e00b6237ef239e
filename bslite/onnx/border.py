"""Types that an ONNX model has at its border only: cast there, as the model says, and unknown within.

A float16 model is one of float32 whose weights, inputs and results happen to fit float16: it is computed in
float32 and rounded at the end. An input of any other type that bslite lacks may be cast by the model at once,
an output at the last moment: then it is cast outside, in NumPy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bslite import ops
from bslite.errors import InputError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.tensors import FIELDS, dtype_name, to_array
from bslite.frontends.onnx.walk import reads
from bslite.spec import Array

#: Operators that move elements of their first input and look at none.
MOVES = (
    "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
)  # fmt: skip


@dataclass(frozen=True)
class Border:
    """``source`` takes and gives types that bslite has. ``takes``: input -> its type outside, and within;
    ``gives``: output -> its type outside.
    """

    source: Source
    takes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    gives: Mapping[str, str] = field(default_factory=dict)

    def enter(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The inputs as ``source`` takes them. InputError for one of another type than it has outside."""
        if not self.takes:
            return inputs
        made = dict(inputs)
        for name, (outside, within) in self.takes.items():
            if name not in made:
                continue
            if made[name].dtype != outside:
                raise InputError(
                    f"input {name!r} is {made[name].dtype}, expected {outside}; bslite does not cast"
                )
            made[name] = _cast(made[name], within)
        return made

    def leave(self, outputs: dict[str, Array], exact: bool = False) -> dict[str, Array]:
        """The outputs in the types they have outside; if ``exact``, floating-point numbers as they are."""
        made = dict(outputs)
        for name, outside in self.gives.items():
            if not exact or np.dtype(outside).kind != "f":
                made[name] = _cast(made[name], outside)
        return made


def _cast(array: Array, dtype: str) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def border_of(source: Source) -> Border:
    """``source``, changed where a type at its border needs it: the file's own model is left alone."""
    graph = source.model.graph
    onnx = load_onnx()
    stored = {t.name for t in graph.initializer}
    inputs = {v.name: _type(v) for v in graph.input if v.name not in stored}
    outputs = {v.name: _type(v) for v in graph.output}
    half = has_half(graph)
    strange = [t for t in (*inputs.values(), *outputs.values()) if t not in ops.DTYPES]
    if not half and not strange:
        return Border(source)
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    if half:
        as_single(model.graph, source)
    takes = {
        name: (outside, within)
        for name, outside in inputs.items()
        if (within := _taken(model.graph, name, outside, half)) and within != outside
    }
    gives = {name: outside for name, outside in outputs.items() if _given(model.graph, name, outside, half)}
    return Border(replace(source, model=model), takes, gives)


def _type(value: Any) -> str:
    return dtype_name(value.type.tensor_type.elem_type) if value.type.HasField("tensor_type") else ""


def _taken(graph: Any, name: str, outside: str, half: bool) -> str:
    """The type that input ``name`` has within; casts that become superfluous are taken out. "" for none."""
    if outside == "float16" and half:
        return "float32"
    if not _foreign(outside) or any(o.name == name for o in graph.output):
        return ""
    moved, casts = {name}, []
    for node in graph.node:
        if not moved & reads(node):
            continue
        first = bool(node.input) and node.input[0] in moved and not moved & set(node.input[1:])
        if node.op_type == "Cast" and not node.domain and first:
            casts.append(node)
        elif node.op_type in MOVES and not node.domain and first:
            moved.update(node.output)
        else:
            return ""
    targets = {_to(node) for node in casts}
    if len(targets) != 1 or not targets <= set(ops.DTYPES) or moved & {o.name for o in graph.output}:
        return ""
    (within,) = targets
    code = load_onnx().helper.np_dtype_to_tensor_dtype(np.dtype(within))
    for value in (*graph.input, *graph.value_info):
        if value.name in moved:
            value.type.tensor_type.elem_type = code
    for node in casts:
        _pass(node)
    return within


def _given(graph: Any, name: str, outside: str, half: bool) -> bool:
    """Whether output ``name`` is cast to its type outside; the cast that does so within is taken out."""
    if outside == "float16" and half:
        return True
    if not _foreign(outside):
        return False
    for node in graph.node:
        if name in node.output and node.op_type == "Cast" and not any(name in reads(n) for n in graph.node):
            _pass(node)
            return True
    return False


def _foreign(dtype: str) -> bool:
    """Whether NumPy has numbers of this type and bslite has not."""
    return dtype not in ops.DTYPES and dtype in FIELDS


def _to(node: Any) -> str:
    return next((dtype_name(a.i) for a in node.attribute if a.name == "to"), "")


def _pass(node: Any) -> None:
    """Make of a Cast a node that changes nothing."""
    node.op_type = "Identity"
    node.ClearField("attribute")


def graphs(graph: Any) -> Iterator[Any]:
    """``graph`` and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    yield from graphs(inner)


def has_half(graph: Any) -> bool:
    """Whether a tensor or value of the graph is float16."""
    code = load_onnx().TensorProto.FLOAT16
    return any(
        any(t.data_type == code for t in g.initializer)
        or any(v.type.tensor_type.elem_type == code for v in (*g.input, *g.output))
        or any(
            (a.name == "to" and a.i == code) or (a.HasField("t") and a.t.data_type == code)
            for n in g.node
            for a in n.attribute
        )
        for g in graphs(graph)
    )


def as_single(graph: Any, source: Source) -> None:
    """Put float32 in the place of float16, everywhere in ``graph``."""
    onnx = load_onnx()
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

    def wide(tensor: Any, what: str) -> None:
        if tensor.data_type == half:
            array = to_array(tensor, source.folder, what).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))

    for g in graphs(graph):
        for tensor in g.initializer:
            wide(tensor, "initialiser")
        for value in (*g.input, *g.output, *g.value_info):
            if value.type.tensor_type.elem_type == half:
                value.type.tensor_type.elem_type = single
        for node in g.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    wide(attribute.t, f"attribute {attribute.name!r}")
                elif attribute.name in ("to", "dtype", "output_datatype") and attribute.i == half:
                    attribute.i = single
