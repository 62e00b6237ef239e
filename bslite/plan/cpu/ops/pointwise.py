"""Elementwise layers: activations on their own, add and mul with broadcasting, batch norms that could not be
folded.
"""

from __future__ import annotations

from typing import Any

from bslite.errors import EngineError
from bslite.ops import Shape
from bslite.passes import Layer
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan.core.loops import into_items, merged_axes, split_for_items
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.epilogue import affine, epilogue
from bslite.plan.cpu.ops.elementwise import lower_integers
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, untyped
from bslite.spec import Node

OUTER = 4  # loops of the kernel around the channels


@CPU.register(*ACTIVATIONS)
def lower_activation(b: CpuBuilder, layer: Layer) -> None:
    """One activation over memory."""
    _pointwise(
        b, layer, b.read(layer.node.inputs[0], exact=True), {"op": 0, **epilogue(layer.node).numbers()}
    )


@CPU.register("batch_norm")
def lower_batch_norm(b: CpuBuilder, layer: Layer) -> None:
    """``x*scale + shift`` per channel, and the activation after it."""
    node = layer.node
    x = b.read(node.inputs[0], inner=1, exact=True)
    cells = {"op": 0, **epilogue(layer.activation).numbers()}
    _pointwise(b, layer, x, cells, inner=1, norm=node)


@CPU.register("add", "mul")
def lower_binary(b: CpuBuilder, layer: Layer) -> None:
    """Two values, broadcast; the one that has the result's shape is walked in its own order."""
    if b.dtypes[layer.name] != "float32":
        lower_integers(b, layer)
        return
    shape = b.shapes[layer.name]
    first, second = (b.values[n] for n in layer.node.inputs)
    if first.shape != shape:
        first, second = second, first
    inner = b.inner(layer.name)
    if first.shape != shape:
        first = _materialised(b, first, shape, inner)
    x = b.arranged(_broadcast(first, shape), inner, exact=True)
    cells = {"op": 1 if layer.node.op == "add" else 2, **epilogue(layer.activation).numbers()}
    _pointwise(b, layer, x, cells, z=_broadcast(second, shape))


def _broadcast(view: View, shape: Shape) -> View:
    """NumPy broadcasting as strides of zero."""
    missing = len(shape) - len(view.shape)
    old = (1,) * missing + view.shape
    strides = (0,) * missing + view.strides
    return View(
        view.buffer, view.offset, shape, tuple(0 if o == 1 else s for o, s in zip(old, strides, strict=True))
    )


def _materialised(b: CpuBuilder, view: View, shape: Shape, inner: int) -> View:
    """A broadcast value copied out in full: where neither operand has the result's shape."""
    fresh = b.fresh(shape, inner, (0, 0, 0, 0))
    b.copy(_broadcast(view, shape), fresh)
    return fresh


def _pointwise(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    cells: dict[str, Any],
    z: View | None = None,
    inner: int | None = None,
    norm: Node | None = None,
) -> None:
    """Append one "pointwise" step. ``norm``: a batch norm, whose numbers run along the axis ``inner``."""
    y = b.write(layer.name, inner=inner)
    if not x.shape:
        x, y = _one(x), _one(y)
        z = _one(z) if z is not None else None
    target = y
    contiguous_axis = inner if inner is not None else b.inner(layer.name)
    if y.shape[contiguous_axis] != 1 and y.strides[contiguous_axis] != 1:
        target = b.fresh(y.shape, contiguous_axis, (0, 0, 0, 0))
    if z is not None and z.strides[contiguous_axis] not in (0, 1) and z.shape[contiguous_axis] != 1:
        z = _materialised(b, z, y.shape, contiguous_axis)
    operands_z = z if z is not None else View(x.buffer, x.offset, x.shape, (0,) * len(x.shape))
    views = [x.strides, target.strides, operands_z.strides]
    keep = contiguous_axis if inner is not None else None
    sizes, runs = merged_axes(y.shape, views, by=1, keep_last=keep)
    if not sizes or runs[1][-1] != 1 or runs[0][-1] != 1:
        sizes, runs = [*sizes, 1], [[*run, 1] for run in runs]
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 14)
    if len(sizes) > OUTER + 1:
        raise EngineError(
            f"layer {layer.name!r}: {len(sizes)} separate axes; elementwise loops take {OUTER + 1}"
        )
    z_inner = int(runs[2][-1] == 1)
    items = item_count(b.machine, 2.0 * size_of(y.shape) / b.machine.lanes)
    sizes, runs = into_items(sizes, runs, items, OUTER + 1)
    scaled = affine(b, norm, x.start)
    args: dict[str, Any] = {**cells, **scaled.numbers(), "channels": sizes[-1], "z_inner": z_inner}
    args |= {f"n{i}": n for i, n in enumerate(sizes[:-1])}
    for letter, run in zip("xyz", runs, strict=True):
        args |= {f"{letter}{i}": 4 * s for i, s in enumerate(run[:-1])}
    operands = {
        "x": x.start, "y": target.start, "z": operands_z.start, **scaled.operands(),
    }  # fmt: skip
    reads = [x] + ([z] if z is not None else [])
    untyped(b, "pointwise", sizes[0] * sizes[1], args, operands, reads, [target])
    if target is not y:
        b.copy(target, y)


def _one(view: View) -> View:
    """A scalar as a vector of one."""
    return View(view.buffer, view.offset, (1,), (1,))
