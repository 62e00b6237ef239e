"""Views of operands as the axes of the "elementwise" kernel: broadcast by strides of zero, merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.elementwise import in_plain_order
from bslite.plan.cuda.launch import MOST_ELEMENTS, CudaBuilder, untyped
from bslite.plan.shared.activation import activation
from bslite.spec import Node

AXES = 5  # of the kernel
EACH = 4  # elements of a thread
THREADS = 256
OPERANDS = "xzw"


def elementwise_layer(b: CudaBuilder, layer: Layer, function: str, fails: str | None = None) -> None:
    """One function (`kernels.cuda.math.cells`) of the layer's inputs, and its activation.

    ``fails``: what a flag that it raises means.
    """
    operands = [b.values[name] for name in layer.node.inputs]
    y = b.write(layer.name)
    flag = b.flag(layer.name, fails) if fails else None
    elementwise_step(b, operands, y, function, layer.activation, flag)


def broadcast(view: View, shape: Shape) -> View:
    """NumPy broadcasting as strides of zero."""
    missing = len(shape) - len(view.shape)
    old = (1,) * missing + view.shape
    strides = (0,) * missing + view.strides
    zeroed = tuple(0 if o == 1 else s for o, s in zip(old, strides, strict=True))
    return View(view.buffer, view.offset, shape, zeroed)


def elementwise_step(
    b: CudaBuilder,
    operands: Sequence[View],
    y: View,
    function: str,
    act: Node | None = None,
    flag: tuple[str, int] | None = None,
) -> None:
    """Append ``y = act(function(*operands))``, the operands broadcast to y's shape."""
    views = [broadcast(v, y.shape) for v in operands]
    views += [dataclasses.replace(views[0], strides=(0,) * len(y.shape))] * (3 - len(views))
    everything = [*views, y]
    if max(size_of(y.shape), *(v.extent[1] - v.extent[0] for v in everything)) > MOST_ELEMENTS:
        axis = max(range(len(y.shape)), key=lambda a: y.shape[a])
        for start, stop in ((0, y.shape[axis] // 2), (y.shape[axis] // 2, y.shape[axis])):
            parts = [v.slice(axis, start, stop) for v in views[: len(operands)]]
            elementwise_step(b, parts, y.slice(axis, start, stop), function, act, flag)
        return
    sizes, runs = merged_axes(y.shape, [v.strides for v in everything], by=3)
    if len(sizes) > AXES:
        copies, made = in_plain_order(b, views[: len(operands)], y)
        elementwise_step(b, copies, made, function, act, flag)
        b.copy(made, y)
        return
    if not sizes:
        sizes, runs = [1], [[1]] * 4
    name, first, second = activation(act)
    count, axes = size_of(tuple(sizes)), len(sizes)
    sizes, runs = padded(sizes, runs, AXES)
    scalars: dict[str, int | float] = {"count": count, "a": first, "b": second}
    scalars |= {f"n{i}": sizes[i] for i in range(1, AXES)}
    places = {}
    for letter, view, run in zip((*OPERANDS, "y"), everything, runs, strict=True):
        low = view.extent[0]
        scalars |= {f"{letter}{i}": s for i, s in enumerate(run)}
        scalars[f"{letter}_start"] = view.offset - low
        places[letter] = (view.buffer, low)
    places["flag"] = flag or places["x"]
    threads = min(THREADS, b.machine.block_threads)
    variant = {"function": function, "activation": name, "axes": axes, "threads": threads}
    grid = [-(-count // (threads * EACH))]
    untyped(b, "elementwise", variant, grid, [threads], scalars, places, list(operands), [y])
