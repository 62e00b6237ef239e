"""An ONNX model that runs partly in ONNX's reference evaluator: the operators that bslite lacks.

The graph is cut as rarely as the order allows. A node's level is the number of evaluated nodes on the longest
path to it; all nodes of one level that bslite has become one model. Because support may depend on shapes, the
first run decides which nodes are evaluated. A model of which bslite has every operator is one piece.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bslite.cache import Recent
from bslite.errors import InputError, SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.walk import name_of, reads
from bslite.onnx.rep import MAX_KEPT, BsliteRep, as_inputs, base
from bslite.spec import Array


@dataclass
class Piece:
    """Nodes that become one model, with the values they read and make; or one node that is ``refused``."""

    nodes: list[Any]
    inputs: list[str]
    outputs: list[str]
    refused: bool
    #: By dtypes and shapes of the inputs.
    runners: Recent[Any, Any] = field(default_factory=lambda: Recent(MAX_KEPT))


class MixedRep(base.BackendRep):
    """A model ready to run, as `BsliteRep`. ``loud``: a warning lists what is evaluated, once."""

    def __init__(self, source: Source, backend: str, loud: bool) -> None:
        self.source, self.backend, self.loud = source, backend, loud
        self.graph = source.model.graph
        self.stored = {t.name: t for t in self.graph.initializer}
        self.names = [v.name for v in self.graph.input if v.name not in self.stored]
        self.refused: set[int] = set()  # indices of nodes
        self.pieces = self._cut()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """The outputs for ``inputs``, as `BsliteRep.run`."""
        given = as_inputs(self.source, self.names, inputs)
        while True:
            values = dict(given)
            at = None
            try:
                for piece in self.pieces:
                    at = piece
                    values |= self._run(piece, values)
            except NotConverted as e:
                assert at is not None
                self._refuse(at, e)
            else:
                return tuple(self._value(values, o.name) for o in self.graph.output)

    def _value(self, values: Mapping[str, Array], name: str) -> Array:
        if name in values:
            return values[name]
        if name in self.stored:
            return np.asarray(load_onnx().numpy_helper.to_array(self.stored[name]))
        raise SpecError(f"output {name!r} is made by no node of the graph")

    def _refuse(self, piece: Piece, error: NotConverted) -> None:
        """Leave to the evaluator the nodes of ``piece`` that stood in the way."""
        if piece.refused:
            raise error
        order = {id(node): i for i, node in enumerate(self.graph.node)}
        named = {
            order[id(n)]
            for n in piece.nodes
            if any(p == name_of(n) or p.startswith((f"{name_of(n)}.", f"{name_of(n)}/")) for p in error.nodes)
        }
        self.refused |= named or {order[id(n)] for n in piece.nodes}
        self.pieces = self._cut()
        if self.loud:
            warnings.warn(f"{error}\nONNX's reference evaluator runs these", UserWarning, stacklevel=4)

    def _cut(self) -> list[Piece]:
        """The pieces in an order in which they can run."""
        made: dict[str, int] = {}
        level: dict[int, int] = {}
        for i, node in enumerate(self.graph.node):
            sources = [made[r] for r in reads(node) if r in made]
            steps = [level[j] + (j in self.refused and i not in self.refused) for j in sources]
            level[i] = max(steps, default=0)
            made |= {o: i for o in node.output if o}
        wanted = {o.name for o in self.graph.output}
        for i, node in enumerate(self.graph.node):
            if node.op_type == "Constant" and not wanted & set(node.output):
                del level[i]  # made in every piece that reads it
        groups: list[tuple[list[int], bool]] = []
        for depth in range(max(level.values(), default=0) + 1):
            here = [i for i in level if level[i] == depth]
            groups.append(([i for i in here if i not in self.refused], False))
            groups += [([i], True) for i in here if i in self.refused]
        return [self._piece(indices, refused) for indices, refused in groups if indices]

    def _piece(self, indices: Sequence[int], refused: bool) -> Piece:
        nodes, own = [self.graph.node[i] for i in indices], set(indices)
        # A constant is made where it is read: as an input its value would have to be found out anew.
        made = {o for n in nodes for o in n.output if o}
        wanted = [r for n in nodes for r in reads(n)]
        constants = [
            n for i, n in enumerate(self.graph.node)
            if n.op_type == "Constant" and i not in own and set(n.output) & set(wanted)
        ]  # fmt: skip
        made |= {o for n in constants for o in n.output}
        inputs = [r for r in dict.fromkeys(wanted) if r not in made and r not in self.stored]
        elsewhere = {r for i, n in enumerate(self.graph.node) if i not in own for r in reads(n)}
        elsewhere |= {o.name for o in self.graph.output}
        outputs = [o for n in nodes for o in n.output if o and o in elsewhere]
        return Piece([*constants, *nodes], inputs, outputs, refused)

    def _run(self, piece: Piece, values: Mapping[str, Array]) -> dict[str, Array]:
        if not piece.outputs:
            return {}
        given = {name: self._value(values, name) for name in piece.inputs}
        kinds = tuple((x.dtype, x.shape) for x in given.values())
        run = piece.runners.get(kinds, lambda: self._runner(piece, given))
        return dict(zip(piece.outputs, run(given), strict=True))

    def _runner(self, piece: Piece, given: Mapping[str, Array]) -> Any:
        onnx, source = load_onnx(), self.source
        helper = onnx.helper
        typed = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in given.items()
        ]
        read = {r for n in piece.nodes for r in reads(n)}
        graph = helper.make_graph(
            piece.nodes, source.name, typed, [onnx.ValueInfoProto(name=o) for o in piece.outputs],
            [t for name, t in self.stored.items() if name in read],
        )  # fmt: skip
        model = helper.make_model(
            graph, opset_imports=source.model.opset_import, ir_version=source.model.ir_version,
            functions=list(source.model.functions),
        )  # fmt: skip
        if piece.refused:
            import onnx.reference

            evaluator = onnx.reference.ReferenceEvaluator(model)
            return lambda arrays: evaluate(evaluator, piece, arrays)
        return BsliteRep(Source(model, source.folder, source.name, source.opsets), self.backend).run


def evaluate(evaluator: Any, piece: Piece, arrays: Mapping[str, Array]) -> list[Array]:
    """One node by ONNX's reference. InputError that names the node if it does not take its inputs."""
    node = piece.nodes[-1]
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(y) for y in evaluator.run(None, dict(arrays))]
    except Exception as e:
        raise InputError(f"node {name_of(node)!r} ({node.op_type}): {type(e).__name__}: {e}") from e
