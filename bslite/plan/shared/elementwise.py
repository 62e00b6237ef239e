"""Elementwise steps: batch norms with their activation; operands in too many orders for the kernels."""

from collections.abc import Sequence

from bslite.kernels.contracts.record import Operand
from bslite.ops import Shape
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View
from bslite.plan.shared.activation import activation, affine
from bslite.spec import Node


def normed(b: AnyBuilder, norm: Node | None, after: Node | None, x: View, y: View) -> None:
    """Append ``y = x*scale + shift`` per channel, of a batch norm if there is one, and the activation after
    it.
    """
    numbers = [per_channel(number, x.shape) for number in affine(b, norm) or ()]
    b.target.elementwise_step(b, "affine" if numbers else "copy", [x, *numbers], y, activation(after), None)


def per_channel(numbers: Operand, shape: Shape) -> View:
    """One of the ``numbers`` for each channel, axis 1, of values of this shape."""
    return View(numbers.buffer, numbers.at, shape, tuple(int(axis == 1) for axis in range(len(shape))))


def in_plain_order(b: AnyBuilder, operands: Sequence[View], y: View) -> tuple[list[View], View]:
    """Operands that lie in too many different orders, each as a full row-major copy, and the view for the
    result before it is copied to y.
    """
    copies = []
    for view in operands:
        copies.append(b.dense(y.shape))
        b.copy(view, copies[-1])
    return copies, b.dense(y.shape)
