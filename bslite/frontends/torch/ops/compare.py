"""Builders of comparisons, logic and choices."""

import math
from typing import Any

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import Term, converted, inner, together
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
}  # fmt: skip


@aten(*COMPARISONS)
def compare(s: Site, a: Term, b: Term) -> Value:
    first, second = together(s, a, b)
    name = COMPARISONS[s.operation]
    if first.dtype == "bool" and name not in ("equal", "not_equal"):
        first, second = (converted(s, x, "int32") for x in (first, second))
    return s.emit(name, first, second)


LOGIC = {
    "logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_not": "not",
    "__and__": "and", "__or__": "or", "__xor__": "xor",
}  # fmt: skip


@aten(*LOGIC)
def logic(s: Site, *terms: Term) -> Value:
    if s.operation.startswith("logical"):
        operands = [converted(s, term, "bool") for term in terms]
    else:
        operands = together(s, *terms)
    return s.emit(LOGIC[s.operation], *operands)


@aten("where")
def where(s: Site, condition: Operand, a: Term, b: Term) -> Value:
    return s.emit("where", converted(s, condition, "bool"), *together(s, a, b))


@aten("masked_fill")
def masked_fill(s: Site, x: Operand, mask: Operand, value: Term) -> Value:
    return s.emit("where", converted(s, mask, "bool"), converted(s, value, x.dtype), x)


@aten("isinf", "isposinf", "isneginf")
def isinf(s: Site, x: Operand) -> Value:
    return s.emit("isinf", x, negative=s.operation != "isposinf", positive=s.operation != "isneginf")


@aten("isfinite")
def isfinite(s: Site, x: Operand) -> Value:
    either = inner(s, "or", inner(s, "isnan", x), inner(s, "isinf", x))
    return s.emit("not", either)


@aten("nan_to_num")
def nan_to_num(s: Site, x: Operand, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    largest = 3.4028234663852886e38
    for test, attrs, value in (
        ("isnan", {}, 0.0 if nan is None else nan),
        ("isinf", {"negative": False}, largest if posinf is None else posinf),
    ):
        x = inner(s, "where", inner(s, test, x, **attrs), s.store.scalar(value), x)
    below = inner(s, "isinf", x, positive=False)
    return s.emit("where", below, s.store.scalar(-largest if neginf is None else neginf), x)


@aten("fmax", "fmin")
def without_nan(s: Site, a: Term, b: Term) -> Value:
    """The larger or smaller one; the other where one is NaN."""
    first, second = together(s, a, b)
    op = {"fmax": "maximum", "fmin": "minimum"}[s.operation]
    if first.dtype != "float32":
        return s.emit(op, first, second)
    left = inner(s, "where", inner(s, "isnan", first), second, first)
    right = inner(s, "where", inner(s, "isnan", second), first, second)
    return s.emit(op, left, right, first=True)


@aten("isin")
def isin(s: Site, x: Term, values: Term, *, assume_unique: bool = False, invert: bool = False) -> Operand:
    """Whether an element of ``x`` is one of ``values``: compared with each."""
    first, others = together(s, x, values)
    count = math.prod(others.shape)
    each = reshape(s, first, (*first.shape, 1), last=False)
    equal = inner(s, "equal", each, reshape(s, others, (count,), last=False))
    if not invert:
        return s.emit("amax", equal, axes=(len(first.shape),), keepdim=False)
    return s.emit("not", s.emit("amax", equal, inner=first.shape, axes=(len(first.shape),), keepdim=False))
