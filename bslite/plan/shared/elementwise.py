"""Copies before an elementwise step whose operands take more loops than the kernels have."""

from collections.abc import Sequence

from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.views import View


def in_plain_order(b: AnyBuilder, operands: Sequence[View], y: View) -> tuple[list[View], View]:
    """Operands that lie in too many different orders, each as a full row-major copy, and the view for the
    result before it is copied to y.
    """
    copies = []
    for view in operands:
        copies.append(b.dense(y.shape))
        b.copy(view, copies[-1])
    return copies, b.dense(y.shape)
