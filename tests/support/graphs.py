"""Models written down layer by layer, and models of one layer."""

from typing import Any

import numpy as np

from bslite.frontends.weights.architectures.random_weights import random_state_dict
from bslite.frontends.weights.state_dict import from_state_dict
from bslite.spec import GraphBuilder, ModelSpec


class Graph(GraphBuilder):
    """A builder whose layers are given their parameters as arrays: ``g("linear", "fc", x, weight=array)``."""

    def __init__(self, name: str = "model") -> None:
        super().__init__(name)

    def __call__(self, op: str, name: str, *inputs: str, **given: Any) -> str:
        """Append a layer and return its name; arrays in ``given`` are parameters, the rest attributes."""
        arrays = {role: array for role, array in given.items() if isinstance(array, np.ndarray)}
        keys = {role: f"{name}.{role}#{len(self.params)}" for role in arrays}
        self.params |= {key: arrays[role] for role, key in keys.items()}
        return self.add(op, name, *inputs, params=keys, **{k: v for k, v in given.items() if k not in arrays})


def one_op(op: str, *inputs: Any, **given: Any) -> ModelSpec:
    """A model of one layer, "layer", over inputs x0, x1, ...: shapes, or arrays of that shape and dtype."""
    graph = Graph(op)
    for i, x in enumerate(inputs):
        graph.input(f"x{i}", getattr(x, "shape", x), dtype=getattr(x, "dtype", np.dtype("float32")).name)
    return graph.build(graph(op, "layer", *(i.name for i in graph.inputs), **given))


def network(arch: str, classes: int = 10, size: int | None = None) -> ModelSpec:
    """A named architecture with random weights; ``size``: of its example image."""
    return from_state_dict(arch, random_state_dict(arch, 0, classes), image_size=size)
