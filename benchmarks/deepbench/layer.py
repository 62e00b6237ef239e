"""One recurrent layer with seeded weights in every form the rivals take, and its true answer."""

import argparse
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.deepbench.points import Point
from benchmarks.peers.nets import Net
from bslite.spec import Array, GraphBuilder, ModelSpec

ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
#: Of ONNX's gates, the place in torch's order: input, output, forget, cell; update, reset, new.
ONNX_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
OPSET, IR = 17, 8


class Layer:
    """The weights of a point, and inputs ``[T, N, H]`` for as many sequences as are ever wanted at once."""

    def __init__(self, point: Point, batch: int, seed: int = 0) -> None:
        import torch

        self.point = point
        torch.manual_seed(seed)
        kind: Any = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[point.cell]
        self.module = kind(point.hidden, point.hidden).eval()
        rng = np.random.default_rng(seed)
        self.x: Array = rng.standard_normal((point.steps, batch, point.hidden), np.float32)

    @functools.cached_property
    def spec(self) -> ModelSpec:
        """The model in bslite, of free batch and length: its outputs ``[T, N, H]``."""
        graph = GraphBuilder(self.point.name)
        x = graph.input("x", ("T", "N", self.point.hidden), self.x.shape)
        graph.params.update({role: self.weight(role) for role in ROLES})
        attrs: dict[str, Any] = {"reset_after": True} if self.point.cell == "gru" else {}
        states = {"lstm": 2, "gru": 1}[self.point.cell]
        made = graph.add(self.point.cell, "layer", x, params={role: role for role in ROLES}, **attrs)
        return graph.build(graph.add("slice", "y", made, axis=0, start=0, stop=-states))

    def weight(self, role: str) -> Array:
        """One of `ROLES`, its gates in torch's order, which is bslite's."""
        found: Array = getattr(self.module, f"{role}_l0").detach().numpy()
        return found

    @functools.cached_property
    def exact(self) -> Array:
        """The reference's answer in float64, for all sequences."""
        from bslite import reference

        return reference.run(self.spec, [self.x], np.float64)[0]


def each_layer(
    points: Sequence[Point], options: argparse.Namespace, note: Callable[[str], None]
) -> Iterator[Layer]:
    """The points' layers, each made when its turn comes, when the memory of the one before is free."""
    for point in points:
        note(f"{point.name}, {point.steps} step(s): making the layer and the float64 answer")
        yield Layer(point, max(options.batch), options.seed)
        gc.collect()


class Case(Net):
    """The first ``batch`` sequences of a layer; what `ENGINES` are made from."""

    def __init__(self, layer: Layer, batch: int, folder: Path) -> None:
        x = np.ascontiguousarray(layer.x[:, :batch])
        super().__init__(layer.point.name, layer.module, x, folder)
        self.layer = layer

    @functools.cached_property
    def exact(self) -> Array:
        """The answer in float64."""
        return np.ascontiguousarray(self.layer.exact[:, : self.x.shape[1]])

    @property
    def spec(self) -> ModelSpec:
        """The model in bslite; the weights it packs are shared by all batches."""
        return self.layer.spec

    @functools.cached_property
    def onnx(self) -> Path:
        """Path of a model of one LSTM or GRU node, of this length and batch."""
        path = self.folder / f"{self.name.replace(' ', '-')}-{self.x.shape[1]}.onnx"
        return write_onnx(self.layer, self.x.shape, path)


def write_onnx(layer: Layer, shape: tuple[int, ...], path: Path) -> Path:
    """The layer as ONNX's own operator, as torch's exporter writes it: with the direction squeezed away."""
    import onnx
    from onnx import helper, numpy_helper

    point, order = layer.point, ONNX_GATES[layer.point.cell]

    def gates(role: str) -> Array:
        w = layer.weight(role)
        return w.reshape(len(order), -1, *w.shape[1:])[list(order)].reshape(w.shape)

    consts = {
        "W": gates("weight_ih")[None],
        "R": gates("weight_hh")[None],
        "B": np.concatenate([gates("bias_ih"), gates("bias_hh")])[None],
        "axes": np.array([1], np.int64),
    }
    attrs: dict[str, Any] = {"linear_before_reset": 1} if point.cell == "gru" else {}
    nodes = [
        helper.make_node(point.cell.upper(), ["x", "W", "R", "B"], ["Y"], hidden_size=point.hidden, **attrs),
        helper.make_node("Squeeze", ["Y", "axes"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        point.cell,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in consts.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.save(model, str(path))
    return path
