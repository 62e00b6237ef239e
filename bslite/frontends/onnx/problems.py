"""Everything that prevents a conversion, with its share of the model's flops."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.frontends.common.problems import report
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.onnx.standin import MISSING, from_standin
from bslite.frontends.onnx.values import NeedsValue
from bslite.ops import Shape

#: Operators made of products, with the place of their weights among the inputs.
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "Gemm")


class Abandoned(Exception):
    """A walk that is not worth going on with."""


@dataclass
class Problems:
    """Everything that prevents a conversion. ``brief``: raise `Abandoned` where a free size is in the way."""

    found: dict[str, list[str]] = field(default_factory=dict)  # what -> nodes
    roots: frozenset[str] = frozenset()  # graph inputs whose values were needed
    #: Place of a node of the model's own graph -> the inputs whose values it needs, None if that is not why.
    causes: dict[int, frozenset[str] | None] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)  # place -> what prevents it, the operator left out
    varies: bool = False  # whether a free size was in the way
    flops: dict[str, int | None] = field(default_factory=dict)  # of these nodes, None where not known
    rest: int = 0  # flops of all other nodes
    brief: bool = False

    def note(self, what: str, node: str, error: Exception | None = None, place: int = -1) -> None:
        """Note a node that cannot be converted, unless only because another one before it cannot.

        ``place``: of the node of the model's own graph that it is, or is within.
        """
        if isinstance(error, NeedsValue):
            if from_standin(error.roots):
                return
            self.roots |= error.roots
        self.causes[place] = error.roots if isinstance(error, NeedsValue) else None
        self.found.setdefault(what, []).append(node)
        self.reasons[place] = what.partition(": ")[2] or what
        self.varies |= isinstance(error, Varies)
        if self.varies and self.brief:
            raise Abandoned

    def report(self, model: str) -> str:
        """The message: each problem with its number of uses and its nodes."""
        made = report(model, self.found)
        known = [n for n in self.flops.values() if n is not None]
        if known and len(known) == len(self.flops):
            share = sum(known) / max(1, sum(known) + self.rest)
            made += f"\n  (about {100 * share:.2g} % of the model's flops)"
        return made


def flops(op_type: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> int | None:
    """Floating-point operations of a node that was not converted, a multiply-add counted as two.

    A node made of products is counted by its shapes in the first probe, any other as one operation per
    element of its result. None where shapes are not known.
    """
    if not outputs or any(x is MISSING for x in (*inputs, *outputs)):
        return None
    made = math.prod(first(outputs[0]))
    if op_type in CONVOLUTIONS and len(inputs) > CONVOLUTIONS[op_type]:
        return 2 * made * math.prod(first(inputs[CONVOLUTIONS[op_type]])[1:])
    if op_type in PRODUCTS:
        return 2 * made * (first(inputs[0]) or (1,))[-1]
    return made


def first(operand: Any) -> Shape:
    """An operand's shape in the first probe; ``()`` if it is left out."""
    shape: Shape = () if operand is None else operand.shapes[0]
    return shape
