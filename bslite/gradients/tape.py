"""The graph that gradients are added to."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite import ops
from bslite.errors import SpecError
from bslite.ops.values import Value
from bslite.spec import Array, GraphBuilder, ModelSpec, Node


class GraphTape:
    """A model's nodes for inputs of fixed sizes, and those that are put after them.

    The new nodes are named after the layer whose gradient they are part of.
    """

    def __init__(self, spec: ModelSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._graph = GraphBuilder(spec.name)
        self._graph.params.update(spec.params)
        self._values: dict[str, Value] = {}
        self._constants: dict[Any, Value] = {}
        self.layer = ""  # that gradients are made for
        for i in spec.inputs:
            self.input(i.name, shapes[i.name], i.dtype)
        for node in spec.nodes:
            self.node(node)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        """One input more."""
        self._graph.input(name, tuple(shape), dtype=dtype)
        return self._made(name, tuple(shape), dtype)

    def node(self, node: Node) -> Value:
        """A node as it stands."""
        inputs = [self._values[i] for i in node.inputs]
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
        name = self._graph.add(node.op, node.name, *node.inputs, params=node.params, **node.attrs)
        return self._made(name, shape, dtype)

    def _made(self, name: str, shape: tuple[int, ...], dtype: str) -> Value:
        self._values[name] = Value(self, name, shape, dtype)
        return self._values[name]

    def put(
        self, op: str, inputs: Sequence[Value], params: Mapping[str, str] | None = None, **attrs: Any
    ) -> Value:
        """A node of ``op``, named after the layer that it is the gradient of."""
        name = self._unused(f"d/{self.layer}/{op}")
        return self.node(Node(name, op, tuple(x.name for x in inputs), params or {}, attrs))

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
        return self.node(Node(self._unused(f"d/{key}"), "constant", (), {"value": key}))

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
