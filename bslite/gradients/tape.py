"""The graph that gradients are added to."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite import ops
from bslite.errors import SpecError
from bslite.ops.values import Param, Value
from bslite.spec import Array, GraphBuilder, ModelSpec, Node


def measured(role: str) -> bool:
    """Whether a parameter is measured, not learnt: a batch norm takes its statistics for constants."""
    return role.startswith("running_")


def learnt(spec: ModelSpec) -> list[str]:
    """The parameters of float32 that layers learn."""
    roles = {(node.op, role, key) for node in spec.nodes for role, key in node.params.items()}
    keys = {key for op, role, key in roles if not measured(role) and op != "constant"}
    return [k for k in spec.params if k in keys and spec.params[k].dtype.name == "float32"]


class GraphTape:
    """A graph of nodes that are put one after the other. New ones are named after the ``layer`` that they are
    part of, or whose gradient they are part of.
    """

    def __init__(self, name: str, params: Mapping[str, Array]) -> None:
        self._graph = GraphBuilder(name)
        self._graph.params.update(params)
        self._values: dict[str, Value] = {}
        self._constants: dict[Any, Value] = {}
        self.kept: dict[str, Value] = {}  # what layers kept for their gradients
        self.layer = ""

    def follow(
        self, spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]], keeping: Collection[str]
    ) -> None:
        """Put the nodes of a model, for inputs of fixed sizes; those of ``keeping`` keep what their gradient
        needs.
        """
        for i in spec.inputs:
            self.input(i.name, shapes[i.name], i.dtype)
        for node in spec.nodes:
            inputs = [self._values[i] for i in node.inputs]
            self.layer = node.name
            made = node.declaration.keep(inputs, node.attrs) if node.name in keeping else None
            if made is None:
                self.node(node, inputs)
            else:
                self._values[node.name], self.kept[node.name] = made

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def input(
        self, name: str, shape: Sequence[int | str], dtype: str = "float32", example: Sequence[int] = ()
    ) -> Value:
        """One input more; see `Input`. What follows is checked at the sizes of the example."""
        self._graph.input(name, shape, example, dtype)
        return self._made(name, self._graph.inputs[-1].example, dtype)

    def node(self, node: Node, inputs: Sequence[Value]) -> Value:
        """A node as it stands, but for what it reads."""
        params = {role: self._graph.params[key] for role, key in node.params.items()}
        try:
            shape = ops.infer(
                node.declaration,
                [x.shape for x in inputs],
                {r: p.shape for r, p in params.items()},
                node.attrs,
            )
            dtype = node.declaration.dtype(
                [x.dtype for x in inputs], {r: p.dtype.name for r, p in params.items()}, node.attrs
            )
        except SpecError as e:
            raise SpecError(f"layer {node.name!r}: {e}") from None
        names = [x.name for x in inputs]
        name = self._graph.add(node.op, node.name, *names, params=node.params, **node.attrs)
        return self._made(name, shape, dtype)

    def _made(self, name: str, shape: tuple[int, ...], dtype: str) -> Value:
        self._values[name] = Value(self, name, shape, dtype)
        return self._values[name]

    def put(
        self, op: str, inputs: Sequence[Value], params: Mapping[str, Param] | None = None, **attrs: Any
    ) -> Value:
        """A node of ``op``, or nodes, named after the layer that they are the gradient of."""
        keys = {role: key for role, key in (params or {}).items() if isinstance(key, str)}
        if params and len(keys) < len(params):
            values = {role: self.stored(p) if isinstance(p, str) else p for role, p in params.items()}
            declared = ops.get(op)
            return declared.with_values(inputs, values, ops.parse_attrs(declared, attrs))
        return self.node(Node(self._unused(f"{self.layer}/{op}"), op, (), keys, attrs), inputs)

    def _unused(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._values:
            count += 1
            unique = f"{name}#{count}"
        return unique

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Value:
        """A stored value, one node for all that are equal."""
        array = np.asarray(value, dtype)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        what = array.dtype.name, array.shape, array.tobytes()
        if what not in self._constants:
            key = f"number {array}" if array.ndim == 0 else f"numbers {len(self._constants)}"
            while key in self._graph.params:
                key += "'"
            self._constants[what] = self._stored(key, array)
        return self._constants[what]

    def stored(self, key: str) -> Value:
        """The value of a parameter."""
        if key not in self._constants:
            self._constants[key] = self._stored(key, self._graph.params[key])
        return self._constants[key]

    def _stored(self, key: str, array: Array) -> Value:
        self._graph.params[key] = array
        return self.node(Node(self._unused(f"d/{key}"), "constant", (), {"value": key}), [])

    def build(self, outputs: Sequence[str], labels: Sequence[str]) -> ModelSpec:
        """The model of what ``outputs`` need."""
        needed = set(outputs)
        for node in reversed(self._graph.nodes):
            if node.name in needed:
                needed.update(node.inputs)
        self._graph.nodes = [node for node in self._graph.nodes if node.name in needed]
        used = {key for node in self._graph.nodes for key in node.params.values()}
        self._graph.params = {key: array for key, array in self._graph.params.items() if key in used}
        return self._graph.build(*outputs, labels=labels)
