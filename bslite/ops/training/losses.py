"""Losses whose gradients are more than those of their parts."""

from collections.abc import Sequence

from bslite.ops.binary import Broadcast
from bslite.ops.core import Attrs, Case
from bslite.ops.values import Applied, Gradients, Value

LEAST_LOG = -100.0  # torch's, which keeps a loss finite
LEAST_SLOPE = 1e-12  # torch's least x (1 - x) in a gradient


class BinaryCrossEntropy(Broadcast):
    """``-(t log(x) + (1 - t) log(1 - x))`` of each probability x and target t, no logarithm below -100.

    Its gradient by x is ``(x - t) / max(x (1 - x), 1e-12)``, which is finite for any x from 0 to 1, as in
    torch. The planner gets it in parts.
    """

    name = "binary_cross_entropy"
    arity = (2, 2)
    cost = 8
    sample_range = (0.0, 1.0)
    torch_name = "binary_cross_entropy"

    def parts(self, ins: Sequence[Value], attrs: Attrs) -> Value:
        """The op as functions and arithmetic."""
        x, target = ins
        yes, no = (log.op("clamp", low=LEAST_LOG) for log in (x.op("log"), (-x).op("log1p")))
        return (target - 1.0) * no - target * yes

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, target = at.inputs
        spread = (x * (1.0 - x)).op("maximum", LEAST_SLOPE)
        found = grad * ((x - target) / spread), grad * ((-x).op("log1p") - x.op("log"))
        return {i: g.sum_to(v.shape) for i, (g, v) in enumerate(zip(found, at.inputs, strict=True))}

    samples = [
        Case("probabilities", [(3, 40), (3, 40)]),
        Case("an image", [(2, 1, 9, 7), (2, 1, 9, 7)]),
        Case("one target for all", [(37,), ()]),
    ]
