"""Which layers a convolution can compute as its prologue, whatever kind of machine runs it."""

from collections.abc import Mapping

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.views import size_of


def gated(layer: Layer, shapes: Mapping[str, Shape]) -> tuple[str, str] | None:
    """The value and the gate of a product with one number per channel, or per image and channel; None if the
    layer is no such product.
    """
    if layer.node.op != "mul":
        return None
    shape = shapes[layer.node.name]
    for value, gate in (layer.node.inputs, layer.node.inputs[::-1]):
        one = shapes[gate]
        if (
            shapes[value] == shape
            and len(one) == len(shape)
            and one[0] in (1, shape[0])
            and one[1] == shape[1]
            and size_of(one[2:]) == 1
        ):
            return value, gate
    return None
