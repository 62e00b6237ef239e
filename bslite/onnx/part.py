"""A model of some of a graph's nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.tensors import code_of
from bslite.onnx.graph import Graph


def part_of(
    graph: Graph,
    nodes: Sequence[Any],
    stored: Mapping[str, Any],
    kinds: Mapping[str, str],
    outputs: Sequence[str],
) -> Source:
    """``nodes`` with what is ``stored`` of their constants; inputs by name with their ``kinds``."""
    onnx, source = load_onnx(), graph.source
    helper = onnx.helper
    tensors = set[str]() if graph.around else graph.tensors
    declared = {n: v for n, v in graph.inputs().items() if n in tensors}
    typed = [declared.get(n) or helper.make_tensor_value_info(n, code_of(k), None) for n, k in kinds.items()]
    proto = helper.make_graph(nodes, source.name, typed, [onnx.ValueInfoProto(name=o) for o in outputs])
    model = helper.make_model(
        proto, opset_imports=source.model.opset_import, ir_version=source.model.ir_version,
        functions=list(source.model.functions),
    )  # fmt: skip
    return Source(model, source.folder, source.name, source.opsets, stored=stored, prefix=graph.label)
