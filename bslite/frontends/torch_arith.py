"""Builders of arithmetic: everything becomes ``add`` and ``mul``, with constants where torch has scalars."""

from __future__ import annotations

from typing import Any

from bslite.frontends.torch_context import Const, Number, Operand, Site, Unsupported, Value, aten

Term = Operand | Number


def operand(s: Site, term: Any) -> Operand:
    """A scalar as a constant; values and constants as they are."""
    if isinstance(term, (Value, Const)):
        return term
    if isinstance(term, (int, float)):
        return s.store.scalar(term)
    raise Unsupported("a scalar is computed from the input's size")


def scaled(s: Site, term: Term, factor: Number) -> Term:
    """``term`` times a number: at once if the term is constant, by a layer if not."""
    if factor == 1:
        return term
    if isinstance(term, Value):
        return s.emit("mul", term, s.store.scalar(factor), inner=term.shape)
    if isinstance(term, Const):
        return s.derived("value", term.tensor * factor)
    return operand(s, term).tensor.item() * factor  # type: ignore[union-attr]


@aten("add")
def add(s: Site, a: Term, b: Term, *, alpha: Number = 1) -> Value:
    return s.emit("add", operand(s, a), operand(s, scaled(s, b, alpha)))


@aten("sub", "subtract")
def sub(s: Site, a: Term, b: Term, alpha: Number = 1) -> Value:
    return add(s, a, b, alpha=-alpha)


@aten("rsub")
def rsub(s: Site, a: Term, b: Term, alpha: Number = 1) -> Value:
    return add(s, b, a, alpha=-alpha)


@aten("mul", "multiply")
def mul(s: Site, a: Term, b: Term) -> Value:
    return s.emit("mul", operand(s, a), operand(s, b))


@aten("neg")
def neg(s: Site, a: Term) -> Value:
    return mul(s, a, -1)


@aten("square")
def square(s: Site, a: Term) -> Value:
    return mul(s, a, a)


@aten("pow.Tensor_Scalar")
def power(s: Site, a: Term, exponent: Number) -> Value:
    if exponent != 2:
        raise Unsupported(f"to the power of {exponent}")
    return mul(s, a, a)


@aten("div", "true_divide", "divide")
def div(s: Site, a: Term, b: Term, *, rounding_mode: str | None = None) -> Value:
    """By a constant: times its reciprocal, which rounds once more than the division it replaces."""
    if rounding_mode is not None:
        raise Unsupported(f"rounding_mode={rounding_mode!r}")
    divisor = operand(s, b)
    if isinstance(divisor, Value):
        raise Unsupported("the divisor is computed from the input")
    reciprocal = (1 / divisor.tensor.double()).float()
    size = reciprocal.abs()
    # Beyond float32's normal range the product would not be the quotient, not even roughly.
    if not bool(((size > 1.2e-38) & (size < 3.4e38)).all()):
        raise Unsupported("the divisor's reciprocal is beyond float32's range")
    if not divisor.shape:
        return mul(s, a, reciprocal.item())
    return mul(s, a, s.derived("reciprocal", reciprocal))
