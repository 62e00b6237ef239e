"""Builders of special functions, in others, so that their gradients are torch's where those have none."""

import math

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import Term, converted, inner, together
from bslite.frontends.torch.ops.index import expanded
from bslite.frontends.torch.ops.reduce import vector_norm
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand


@aten("sinc", "special_sinc")
def sinc(s: Site, x: Operand) -> Value:
    """``sin(pi x) / (pi x)``, and 1 where the square of x is 0, with a slope of 0."""
    turned = inner(s, "mul", converted(s, x, "float32"), s.store.scalar(math.pi))
    one = s.store.scalar(1.0)
    origin = inner(s, "equal", inner(s, "mul", turned, turned), s.store.scalar(0.0))
    turned = inner(s, "where", origin, one, turned)
    return s.emit("where", origin, one, inner(s, "div", inner(s, "sin", turned), turned))


@aten("xlogy", "special_xlogy")
def xlogy(s: Site, a: Term, b: Term) -> Value:
    """``x log(y)``, and 0 where x is, which is the slope by x there, too, if the logarithm is none."""
    x, y = (converted(s, term, "float32") for term in together(s, a, b))
    zero, one = s.store.scalar(0.0), s.store.scalar(1.0)
    none = inner(s, "or", inner(s, "less_equal", y, zero), inner(s, "isinf", y))
    none = inner(s, "and", inner(s, "equal", x, zero), none)
    return s.emit("mul", x, inner(s, "log", inner(s, "where", none, one, y)))


@aten("hypot")
def hypot(s: Site, a: Operand, b: Operand) -> Value:
    """The length of (x, y), whose slope is 0 at the origin."""
    whole = [expanded(s, converted(s, v, "float32"), s.shape) for v in (a, b)]
    thin = [reshape(s, v, (*s.shape, 1), last=False) for v in whole]
    last = len(s.shape)
    pair = s.emit("concat", *thin, inner=(*s.shape, 2), axis=last)
    return s.emit("l2_norm", pair, axes=(last,), keepdim=False)


@aten("copysign")
def copysign(s: Site, a: Term, b: Term) -> Value:
    """The size of the first with the sign of the second, of which 0 has one. The second's gradient is 0."""
    size, sign = (converted(s, term, "float32") for term in together(s, a, b))
    size, zero = inner(s, "abs", size), s.store.scalar(0.0)
    below = inner(s, "less", inner(s, "reciprocal", sign), zero)
    below = inner(s, "or", inner(s, "less", sign, zero), below)
    made = inner(s, "where", below, inner(s, "neg", size), size)
    return s.emit("where", inner(s, "less", size, zero), sign, made)  # which is never so


@aten("ldexp")
def ldexp(s: Site, a: Term, b: Term) -> Value:
    """``x 2^y``."""
    x, power = (converted(s, term, "float32") for term in (a, b))
    return s.emit("mul", x, inner(s, "exp2", power))


@aten("dist")
def dist(s: Site, a: Operand, b: Operand, p: float = 2) -> Value:
    """The norm of the difference."""
    return vector_norm(s, inner(s, "sub", a, b), p)
