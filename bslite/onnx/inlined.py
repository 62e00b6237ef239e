"""A model's own functions written out, where a piece of them may have to run by itself.

A function whose nodes all are the engine's stays as it is: the frontend writes it out while it reads.
"""

from typing import Any

from bslite import ops
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.ops import TABLE
from bslite.frontends.onnx.schemas import find_schema
from bslite.frontends.onnx.sorting import subgraphs
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.host import FIRST


def inlined(source: Source) -> Source:
    """The model with its functions written out, if nodes of theirs may have to be cut off."""
    model = source.model
    own = {(f.domain, f.name) for f in model.functions}
    if not any(_cuts(node, own) for f in model.functions for node in f.node):
        return source
    onnx = load_onnx()
    from onnx.inliner import inline_local_functions

    if any(_stale(source, f) for f in model.functions):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for function in copy.functions:
            _raise(source, function)
        model = copy
    return Source(inline_local_functions(model), source.folder, source.name, source.opsets)


def _cuts(node: Any, own: set[tuple[str, str]]) -> bool:
    """Whether a function's node is none that the engine surely computes."""
    if (node.domain, node.op_type) in own:
        return False
    cast = (a.i for a in node.attribute if a.name == "to")
    return (
        any(True for _ in subgraphs(node))
        or node.op_type in FIRST
        or node.op_type not in TABLE
        or any(dtype_name(code) not in ops.DTYPES for code in cast)
    )


def _stale(source: Source, function: Any) -> bool:
    """Whether a function uses another version of ONNX's operators than the model: the inliner refuses it."""
    return any(
        o.domain in ("", "ai.onnx") and o.version != source.opsets.get("", 0) for o in function.opset_import
    )


def _raise(source: Source, function: Any) -> None:
    """Let a function use the model's version, where its operators have the same signatures there."""
    version = source.opsets.get("", 0)
    for entry in function.opset_import:
        if entry.domain in ("", "ai.onnx") and all(
            _same(node.op_type, entry.version, version)
            for node in _nodes(function.node)
            if node.domain in ("", "ai.onnx")
        ):
            entry.version = version


def _nodes(nodes: Any) -> Any:
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _nodes(graph.node)


def _same(op_type: str, one: int, other: int) -> bool:
    """Whether an operator takes the same inputs and attributes, with the same defaults, in both versions."""
    try:
        first, second = (find_schema(op_type, version) for version in (one, other))
    except Unsupported:
        return False
    return first.since_version == second.since_version or _signature(first) == _signature(second)


def _signature(schema: Any) -> Any:
    return (
        [(x.name, x.option) for x in schema.inputs],
        [(x.name, x.option) for x in schema.outputs],
        {k: (a.type, a.required, a.default_value.SerializeToString()) for k, a in schema.attributes.items()},
    )
