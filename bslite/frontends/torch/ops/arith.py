"""Builders of arithmetic: sums, products, quotients, powers, with constants where torch has scalars."""

import math
from typing import Any

import numpy as np

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import Term, converted, inner, promoted, together
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Number, Operand


def scaled(s: Site, term: Term, factor: Number) -> Any:
    """``term`` times a number: at once if the term is constant, by a layer if not."""
    if factor == 1:
        return term
    if isinstance(term, Value):
        return inner(s, "mul", *together(s, term, factor))
    if isinstance(term, Const):
        return s.derived("value", term.data * factor)
    return term * factor


@aten("add")
def add(s: Site, a: Term, b: Term, *, alpha: Number = 1) -> Value:
    dtype = promoted(a, b)
    if dtype == "bool":
        return s.emit("or", converted(s, a, dtype), converted(s, b, dtype))
    return s.emit("add", converted(s, a, dtype), converted(s, scaled(s, b, alpha), dtype))


@aten("sub", "subtract")
def sub(s: Site, a: Term, b: Term, alpha: Number = 1) -> Value:
    """A constant subtrahend becomes an addition of its negative, which a store can take."""
    if not isinstance(b, Value):
        return add(s, a, b, alpha=-alpha)
    first, second = together(s, a, b)
    return s.emit("sub", first, converted(s, scaled(s, second, alpha), second.dtype))


@aten("rsub")
def rsub(s: Site, a: Term, b: Term, alpha: Number = 1) -> Value:
    return sub(s, b, a, alpha)


@aten("mul", "multiply")
def mul(s: Site, a: Term, b: Term) -> Value:
    first, second = together(s, a, b)
    return s.emit("and" if first.dtype == "bool" else "mul", first, second)


@aten("neg", "negative")
def neg(s: Site, a: Operand) -> Value:
    return s.emit("neg", a) if a.dtype == "float32" else s.emit("sub", *together(s, 0, a))


@aten("abs", "absolute")
def absolute(s: Site, a: Operand) -> Value:
    if a.dtype == "float32":
        return s.emit("abs", a)
    return s.emit("maximum", a, inner(s, "sub", *together(s, 0, a)))


@aten("square")
def square(s: Site, a: Operand) -> Value:
    return mul(s, a, a)


#: Powers that torch too computes by other means.
POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


@aten("pow", "float_power")
def power(s: Site, a: Term, exponent: Term) -> Value:
    if isinstance(a, Value) and isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        if exponent == 2:
            return mul(s, a, a)
        if exponent == 3:
            return s.emit("mul", inner(s, "mul", a, a), a)
        if exponent in POWERS and a.dtype == "float32":
            return s.emit(POWERS[exponent], a)
    return s.emit("pow", *together(s, a, exponent))


@aten("div", "true_divide", "divide")
def div(s: Site, a: Term, b: Term, *, rounding_mode: str | None = None) -> Value:
    """Division by a constant becomes a product with its reciprocal, which rounds once more."""
    if rounding_mode is not None:
        return rounded_quotient(s, a, b, rounding_mode)
    dividend, divisor = converted(s, a, "float32"), converted(s, b, "float32")
    if isinstance(divisor, Const):
        reciprocal = (1 / divisor.data.double()).float()
        size = reciprocal.abs()
        # Beyond float32's normal range the product would not be the quotient, not even roughly.
        if bool(((size > 1.2e-38) & (size < 3.4e38)).all()):
            factor = s.derived("reciprocal", reciprocal) if divisor.shape else reciprocal.item()
            return mul(s, dividend, factor)
    return s.emit("div", dividend, divisor)


def rounded_quotient(s: Site, a: Term, b: Term, rounding_mode: str) -> Value:
    """Towards zero, or towards minus infinity."""
    dividend, divisor = together(s, a, b)
    if dividend.dtype == "float32":
        if rounding_mode == "floor" and not (isinstance(divisor, Const) and _exact(divisor)):
            return _floored(s, dividend, divisor)
        return s.emit(rounding_mode, inner(s, "div", dividend, divisor))
    return s.emit({"trunc": "div", "floor": "floor_div"}[rounding_mode], dividend, divisor)


def _exact(divisor: Const) -> bool:
    """Whether a finite quotient by it is never rounded, so that its floor is that of the true one."""
    mantissas = divisor.data.double().frexp().mantissa
    return bool((mantissas.abs() == 0.5).all())


def _floored(s: Site, a: Operand, b: Operand) -> Value:
    """As Python and torch: from the remainder, so that 2.8 // 0.1 is 27, though 2.8 / 0.1 rounds to 28.

    What is left of ``a`` divides evenly, up to rounding.
    """
    rest, zero = inner(s, "fmod", a, b), s.const(np.float32(0), "zero")
    unlike = inner(s, "xor", inner(s, "less", rest, zero), inner(s, "less", b, zero))
    below = inner(s, "and", inner(s, "not_equal", rest, zero), unlike)
    even = inner(s, "div", inner(s, "sub", a, rest), b)
    down = inner(s, "sub", even, converted(s, below, "float32"))
    plain = inner(s, "trunc", inner(s, "div", a, b))  # infinite, or no number; its slope is 0
    rounded = inner(s, "round", down)
    signed = inner(s, "mul", plain, zero)  # a zero with the sign of the quotient
    rounded = inner(s, "where", inner(s, "equal", rounded, zero), signed, rounded)
    return s.emit("where", inner(s, "equal", b, zero), plain, rounded)


@aten("floor_divide")
def floor_divide(s: Site, a: Term, b: Term) -> Value:
    return rounded_quotient(s, a, b, "floor")


@aten("fmod", "remainder", "maximum", "minimum", "atan2", "arctan2", "logaddexp")
def same_name(s: Site, a: Term, b: Term) -> Value:
    return s.emit(s.operation.replace("arctan", "atan"), *together(s, a, b))


@aten("addcmul", "addcdiv")
def add_combined(s: Site, x: Operand, a: Operand, b: Operand, *, value: Number = 1) -> Value:
    made = inner(s, s.operation.removeprefix("addc"), a, b)
    return s.emit("add", x, converted(s, scaled(s, made, value), "float32"))


@aten("lerp")
def lerp(s: Site, a: Operand, b: Operand, weight: Term) -> Value:
    way = inner(s, "sub", b, a)
    return s.emit("add", a, inner(s, "mul", way, converted(s, weight, "float32")))


@aten("clamp", "clamp_min", "hardtanh", "clip")
def clamp(s: Site, x: Operand, low: Any = None, high: Any = None) -> Value:
    flat = s.operation == "hardtanh"
    if flat:
        low, high = (-1 if low is None else low), (1 if high is None else high)
    numbers = all(bound is None or isinstance(bound, (int, float)) for bound in (low, high))
    if numbers and x.dtype == "float32":
        low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
        if flat and low == 0 and high == 6:
            return s.emit("relu6", x)
        if math.isnan(low) or math.isnan(high):
            raise Unsupported("a bound is NaN")
        return s.emit("clamp", x, low=float(low), high=float(high), flat=flat)
    bounds = [(op, bound) for op, bound in (("maximum", low), ("minimum", high)) if bound is not None]
    first, *others = bounds
    if others and isinstance(low, Value) and x.dtype == low.dtype == "float32":
        # Where the bounds meet, neither has a gradient; where they cross, the upper one.
        high = converted(s, high, "float32")
        low = inner(s, "where", inner(s, "less", low, high), low, inner(s, "stop_gradient", low))
        first, others = ("maximum", low), [("minimum", high)]
    for op, bound in others:
        x = inner(s, first[0], *together(s, x, first[1]), first=True)
        first = (op, bound)
    return s.emit(first[0], *together(s, x, first[1]), first=True)


@aten("clamp_max")
def clamp_max(s: Site, x: Operand, high: Any) -> Value:
    return clamp(s, x, None, high)
