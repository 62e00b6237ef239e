"""Builders of losses that are not written out in others, whose gradients torch has in a form of their own."""

from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.ops.reduce import reduced
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

MEAN, SUM = 1, 2  # torch's numbers of what becomes of the losses of all elements


@aten("binary_cross_entropy")
def binary_cross_entropy(
    s: Site, x: Operand, target: Operand, weight: Operand | None = None, reduction: int = MEAN
) -> Value:
    made = inner(s, "binary_cross_entropy", x, converted(s, target, "float32"))
    if weight is not None:
        made = inner(s, "mul", made, weight)
    if reduction in (MEAN, SUM):
        return reduced(s, "mean" if reduction == MEAN else "sum", made, None, False)
    return made
