"""The operands of a reduction: the axes that are reduced, those that are kept, and its result."""

from typing import NamedTuple

from bslite.ops.reduce import Arg, Reducing
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View, size_of

BEYOND = "the result {value} does not fit 32 bits"  # the message of the flag of an integer reduction


class Reduced(NamedTuple):
    """``axes`` of x are reduced; y has the ``kept`` ones, in order."""

    x: View
    y: View
    axes: tuple[int, ...]
    kept: tuple[int, ...]
    arg: bool  # whether the result is a position


def reduced_of(b: AnyBuilder, layer: Layer) -> Reduced:
    """The reduction of a layer; y is the view of its result."""
    node = layer.node
    op = node.declaration
    assert isinstance(op, Reducing)
    x = b.values[node.inputs[0]]
    shape, rank = x.shape, len(x.shape)
    arg = isinstance(op, Arg)
    axes = op.axes(node.attrs, rank)
    kept = tuple(a for a in range(rank) if a not in axes)
    home = b.write(layer.name)
    if not shape or (arg and len(axes) > 1):  # loops have an axis; the position is in row-major order
        x = View((flat := b.flat(x)).buffer, flat.offset, (size_of(shape),), (1,))
        shape, axes, kept = x.shape, (0,), ()
    strides = home.strides
    if node.attrs["keepdim"] and len(home.shape) == rank:
        strides = tuple(home.strides[a] for a in kept)
    y = View(home.buffer, home.offset, tuple(shape[a] for a in kept), strides if kept else ())
    return Reduced(x, y, axes, kept, arg)


def divisor(layer: Layer, count: int) -> float:
    """The divisor of a mean of ``count`` elements: their number less the correction of a variance."""
    return float(max(count - layer.node.attrs.get("correction", 0.0), 0.0))
