"""Activations that are layers of their own."""

from __future__ import annotations

from typing import Any

from bslite.passes import Layer
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.elementwise import elementwise_step
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, untyped
from bslite.plan.shared.activation import activation
from bslite.spec import Node

EACH = 4  # elements of a thread


@CUDA.register(*ACTIVATIONS)
def lower_activation(b: CudaBuilder, layer: Layer) -> None:
    """One function over memory as it lies; by strides, if it lies with gaps or otherwise than its result."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    if _dense(x) and _dense(y) and _same_place(x, y) and size_of(y.shape) <= MOST_ELEMENTS:
        run(b, layer.node, x, y)
    else:
        elementwise_step(b, [x], y, "copy", layer.node)


def run(b: CudaBuilder, node: Node, x: View, y: View) -> None:
    """Append the function ``node`` of two dense views that lie alike."""
    name, first, second = activation(node)
    count = size_of(y.shape)
    scalars: dict[str, Any] = {"count": count, "a": first, "b": second}
    threads = min(256, b.machine.block_threads)
    blocks = -(-count // (threads * EACH))
    untyped(
        b, "pointwise", {"code": name, "threads": threads}, [blocks], [threads], scalars,
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
