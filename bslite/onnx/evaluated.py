"""Nodes that bslite lacks, in ONNX's reference evaluator: only where the caller asked for that."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.frontends.common.lazy import load_onnx
from bslite.onnx.graph import Graph, outside


class Evaluated:
    """One node in ONNX's reference evaluator."""

    def __init__(self, graph: Graph, node: Any) -> None:
        self.what = graph.place(next(i for i, n in enumerate(graph.nodes) if n is node))
        self.source, self.node = graph.source, node

    def inside(self) -> Iterator[Any]:
        """No graphs that bslite runs."""
        return iter(())

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """The outputs for the values that the node reads. InputError if it does not take them."""
        onnx = load_onnx()
        from onnx.reference import ReferenceEvaluator

        helper = onnx.helper
        given = {name: values[name] for name in sorted(outside(self.node))}
        inputs = [onnx.ValueInfoProto(name=n) for n in given]
        outputs = [onnx.ValueInfoProto(name=o) for o in self.node.output if o]
        graph = helper.make_graph([self.node], "node", inputs, outputs)
        model = helper.make_model(
            graph, opset_imports=self.source.model.opset_import, ir_version=self.source.model.ir_version,
            functions=list(self.source.model.functions),
        )  # fmt: skip
        try:
            with np.errstate(all="ignore"):
                made = iter(ReferenceEvaluator(model).run(None, given))
        except Exception as e:
            raise InputError(f"{self.what}: {type(e).__name__}: {e}") from e
        return [next(made) if o else None for o in self.node.output]
