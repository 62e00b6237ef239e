"""What a reduction is of: the axes that go, those that stay, and where its result lies."""

from __future__ import annotations

from typing import NamedTuple

from bslite.ops.reduce import Arg, Reduction, reduced_axes
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View, size_of

BEYOND = "the result {value} does not fit 32 bits"  # what the flag of a reduction of integers means


class Reduced(NamedTuple):
    """``axes`` of x are reduced; y is of the ``kept`` ones, in order."""

    x: View
    y: View
    axes: tuple[int, ...]
    kept: tuple[int, ...]
    arg: bool  # whether the result is a position


def reduced_of(b: AnyBuilder, layer: Layer) -> Reduced:
    """The reduction that a layer is; y is where its result goes."""
    node = layer.node
    op = node.declaration
    assert issubclass(op, (Reduction, Arg))
    x = b.values[node.inputs[0]]
    shape, rank = x.shape, len(x.shape)
    arg = issubclass(op, Arg)
    given = op.axes(node.attrs) if issubclass(op, Arg) else node.attrs["axes"]
    axes = tuple(reduced_axes(node.op, given, rank))
    kept = tuple(a for a in range(rank) if a not in axes)
    home = b.write(layer.name)
    if arg and len(axes) > 1:  # a position in row-major order
        x = View((flat := b.flat(x)).buffer, flat.offset, (size_of(shape),), (1,))
        shape, axes, kept = x.shape, (0,), ()
    strides = home.strides
    if node.attrs["keepdim"] and len(home.shape) == rank:
        strides = tuple(home.strides[a] for a in kept)
    y = View(home.buffer, home.offset, tuple(shape[a] for a in kept), strides if kept else ())
    return Reduced(x, y, axes, kept, arg)


def divisor(layer: Layer, count: int) -> float:
    """What the mean of ``count`` elements divides by: their number, less the correction of a variance."""
    return float(max(count - layer.node.attrs.get("correction", 0.0), 0.0))
