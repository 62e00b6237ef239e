"""Activations that are layers of their own."""

from __future__ import annotations

from typing import Any

from bslite.passes import Layer
from bslite.plan.cuda.builder import CudaBuilder
from bslite.plan.cuda.launch import launch
from bslite.plan.cuda.lowering import lowers
from bslite.plan.lowering import PARAMETERS
from bslite.plan.views import View, size_of
from bslite.spec import Node

BLOCK = 256 * 4  # elements of a block: threads, and elements of each
NAMES = ("relu", "relu6", "clamp", "leaky_relu", "sigmoid", "tanh")


def activation(node: Node) -> tuple[str, float, float]:
    """Which function of `kernels.cuda.functions` the node is, and its parameters."""
    if node.op == "relu6":
        return "clamp", 0.0, 6.0
    if node.op == "clamp":
        return "clamp", node.attrs["low"], node.attrs["high"]
    a, b, *_ = [*(float(node.attrs[p]) for p in PARAMETERS.get(node.op, ())), 0.0, 0.0]
    return node.op, a, b


@lowers(*NAMES)
def lower_activation(b: CudaBuilder, layer: Layer) -> None:
    """One function over memory as it lies; over a copy, if it lies with gaps or otherwise than its result."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    if not (_dense(x) and _same_place(x, y)):
        b.copy(x, y)
        x = y
    if not _dense(y):
        fresh = b.fresh(y.shape, b.inner(layer.name), (0, 0, 0, 0))
        b.copy(x, fresh)
        run(b, layer.node, fresh, fresh)
        b.copy(fresh, y)
        return
    run(b, layer.node, x, y)


def run(b: CudaBuilder, node: Node, x: View, y: View) -> None:
    """Append the function ``node`` of two dense views that lie alike."""
    name, first, second = activation(node)
    count = size_of(y.shape)
    scalars: dict[str, Any] = {"count": count, "a": first, "b": second}
    launch(
        b, "pointwise", {"code": name}, [-(-count // BLOCK)], [BLOCK // 4], scalars,
        {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}, [x], [y],
    )  # fmt: skip


def _dense(view: View) -> bool:
    """Whether its elements are one run of memory."""
    lo, hi = view.extent
    return (
        hi - lo == size_of(view.shape)
        and lo == view.offset
        and (0 not in view.strides or size_of(view.shape) == 1)
    )


def _same_place(x: View, y: View) -> bool:
    """Whether element i of one run is element i of the other."""
    return all(n == 1 or p == q for n, p, q in zip(x.shape, x.strides, y.strides, strict=True))
