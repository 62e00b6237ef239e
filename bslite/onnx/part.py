"""A model of some of a graph's nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.tensors import HALF_WORDS, code_of, dtype_name
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
    # what the engine cannot give, the reader refuses as it does of a whole model
    words = {v.name: v for v in graph.proto.output if dtype_name(v.type.tensor_type.elem_type) in HALF_WORDS}
    made = [words.get(o) or onnx.ValueInfoProto(name=o) for o in outputs]
    proto = helper.make_graph(nodes, source.name, typed, made)
    model = helper.make_model(
        proto, opset_imports=source.model.opset_import, ir_version=source.model.ir_version,
        functions=list(source.model.functions),
    )  # fmt: skip
    return Source(model, source.folder, source.name, source.opsets, stored=stored, prefix=graph.label)
