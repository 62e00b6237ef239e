"""Copies before an elementwise step whose operands take more loops than the kernels have."""

from collections.abc import Sequence

from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View, contiguous, size_of


def in_plain_order(b: AnyBuilder, operands: Sequence[View], y: View) -> tuple[list[View], View]:
    """Operands that lie in too many different orders, each as a full row-major copy, and the view for the
    result before it is copied to y.
    """

    def plain() -> View:
        return View(b.buffer(size_of(y.shape)).name, 0, y.shape, contiguous(y.shape))

    copies = []
    for view in operands:
        copies.append(plain())
        b.copy(view, copies[-1])
    return copies, plain()
