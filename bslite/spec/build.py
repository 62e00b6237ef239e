"""A small builder the frontends use: append nodes one by one, then make the ModelSpec."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.spec.graph import Array, Input, Node
from bslite.spec.model import ModelSpec


class GraphBuilder:
    """Collects inputs, nodes and parameters in order. ``add`` returns the new value's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.params: dict[str, Array] = {}
        self._names: set[str] = set()

    def input(
        self, name: str, shape: Sequence[int | str], example: Sequence[int] = (), dtype: str = "float32"
    ) -> str:
        """Declare a model input; see `Input` for ``shape`` and ``example``."""
        self.inputs.append(Input(name, tuple(shape), tuple(example), dtype))
        self._names.add(name)
        return name

    def add(
        self, op: str, name: str, *inputs: str, params: Mapping[str, str] | None = None, **attrs: Any
    ) -> str:
        """Append a node called ``name`` (made unique by a suffix if taken) and return its name."""
        unique, count = name, 1
        while unique in self._names:
            count += 1
            unique = f"{name}#{count}"
        self._names.add(unique)
        self.nodes.append(Node(unique, op, inputs, params or {}, attrs))
        return unique

    def build(self, *outputs: str, labels: Sequence[str] = (), **more: Any) -> ModelSpec:
        """The validated model; ``labels``: what its outputs are called, by default as their layers; ``more``:
        other fields of it.
        """
        return ModelSpec(
            self.name, tuple(self.inputs), tuple(self.nodes), outputs, self.params, tuple(labels), **more
        )
