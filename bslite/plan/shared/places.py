"""Operands and error flags of ops with computed places."""

from typing import NamedTuple

from bslite.kernels.contracts.record import Operand
from bslite.kernels.contracts.reduction import Reduction
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View


def range_flag(b: AnyBuilder, layer: Layer, where: str) -> Operand:
    """A flag for an index that is out of range."""
    return Operand(*b.flag(layer.name, f"index {{value}} is out of range for {where}"))


def axis_flag(b: AnyBuilder, layer: Layer, axis: int, size: int) -> Operand:
    """A flag for an index that is out of range along an axis."""
    return range_flag(b, layer, f"axis {axis} of size {size}")


def overflow_flag(b: AnyBuilder, layer: Layer) -> Operand:
    """A flag for an integer that does not fit a cell."""
    return Operand(*b.flag(layer.name, "{value} is beyond the 32 bits of an engine's integers", True))


def depth_flag(b: AnyBuilder, layer: Layer) -> Operand:
    """A flag for an index out of range, if that is an error."""
    return range_flag(b, layer, f"depth {layer.node.attrs['depth']}")


def is_float(b: AnyBuilder, name: str) -> bool:
    """Whether a value's cells are floats."""
    return b.dtypes[name] == "float32"


def reduction_of(layer: Layer) -> Reduction:
    """The reduction of updates with the cells that they meet."""
    return Reduction.of(layer.node.attrs["reduction"])


def put_into_copy(b: AnyBuilder, layer: Layer) -> tuple[View, View, View]:
    """A dense copy of the input, which is the layer's value; the indices; the updates."""
    x, indices, updates = (b.values[name] for name in layer.node.inputs)
    indices, updates = b.flat(indices), b.flat(updates)
    y = b.dense(x.shape)
    b.copy(x, y)
    b.alias(layer.name, y)
    return y, indices, updates


def topk_rows(b: AnyBuilder, layer: Layer) -> tuple[View, View]:
    """Input and output as dense rows along the axis; the output is recorded as the layer's value."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    axis = attrs["axis"] % len(x.shape)
    order = [a for a in range(len(x.shape)) if a != axis] + [axis]
    x = b.flat(x.permute(order))
    y = b.dense((*x.shape[:-1], attrs["k"]))
    b.alias(layer.name, y.permute([order.index(a) for a in range(len(order))]))
    return x, y


def one_hot_numbers(layer: Layer) -> tuple[float, float]:
    """The values of `off` and `on` as numbers of the output's dtype."""
    attrs = layer.node.attrs
    number = float if attrs["to"] == "float32" else int
    return number(attrs["off"]), number(attrs["on"])


class LengthChecks(NamedTuple):
    """Lengths of sequences, dense, the target of their copy, and the conditions that they must meet.

    ``most``: the largest length allowed. ``steps``: the longest length required, 0 for any.
    """

    x: View
    y: View
    most: int
    steps: int
    range_flag: Operand
    order_flag: Operand
    whole_flag: Operand


def length_checks(b: AnyBuilder, layer: Layer) -> LengthChecks:
    """A flag for each possible error. The copy is recorded as the layer's value."""
    attrs, x = layer.node.attrs, b.flat(b.values[layer.node.inputs[0]])
    steps, y = b.shapes[layer.node.inputs[1]][0], b.dense(x.shape)
    most = steps if attrs["longest"] is None else min(attrs["longest"], steps)
    b.alias(layer.name, y)
    texts = (
        f"sequence length {{value}} is not between 1 and {most}",
        "sequence length {value} follows a shorter one; with enforce_sorted=True they must be in "
        "decreasing order",
        f"the longest sequence has {{value}} of {steps} steps: cut x to it, or give "
        f"pad_packed_sequence total_length={steps}",
    )
    flags = (Operand(*b.flag(layer.name, text)) for text in texts)
    return LengthChecks(x, y, most, steps if attrs["whole"] else 0, *flags)
