"""Builders of operations on complex numbers, which values hold as pairs of real and imaginary part."""

from typing import Any

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import complex_aten
from bslite.frontends.torch.counting import filled
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.ops.index import expanded
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Operand, Pairs, RealParts, is_complex

Term = Pairs | Operand | complex


def pairs(s: Site, x: Any) -> Operand:
    """``x``, complex or real, as pairs."""
    if isinstance(x, Pairs):
        return x.parts
    if isinstance(x, (bool, int, float, complex)):
        return s.const([float(complex(x).real), float(complex(x).imag)], "number")
    real = _thin(s, converted(s, x, "float32"))
    pads = (*[0] * (2 * len(real.shape) - 1), 1)
    return s.emit("pad", real, inner=(*real.shape[:-1], 2), pads=pads, value=0.0, mode="constant")


def turned(s: Site, x: Operand) -> Operand:
    """Pairs times i."""
    if isinstance(x, Const):
        return s.derived("turned", x.data.flip(-1) * x.data.new_tensor([-1.0, 1.0]))
    flipped = s.emit("slice", x, inner=x.shape, axis=len(x.shape) - 1, start=-1, step=-1)
    return inner(s, "mul", flipped, s.const([-1.0, 1.0], "sign"))


def _thin(s: Site, x: Operand) -> Operand:
    """Real numbers with an axis of one, which broadcasts against pairs."""
    return reshape(s, x, (*x.shape, 1), last=False)


def _side(s: Site, x: Operand, which: int) -> Operand:
    """The real (0) or the imaginary parts (1) of pairs, with an axis of one."""
    if isinstance(x, Const):
        return s.derived("part", x.data[..., which : which + 1])
    shape = (*x.shape[:-1], 1)
    return s.emit("slice", x, inner=shape, axis=len(shape) - 1, start=which, stop=which + 1)


def _part(s: Site, x: Pairs, which: int, last: bool = False) -> Operand:
    """The real or the imaginary parts."""
    return reshape(s, _side(s, x.parts, which), x.shape, last)


def _joined(s: Site, re: Operand, im: Operand) -> Pairs:
    re, im = (_thin(s, expanded(s, x, s.shape[:-1])) for x in (re, im))
    return Pairs(s.emit("concat", re, im, axis=len(s.shape) - 1))


def _product(s: Site, a: Operand, b: Operand, last: bool = True) -> Operand:
    """The product of pairs."""
    if isinstance(a, Const):
        a, b = b, a
    return s.emit("complex_mul", a, b) if last else inner(s, "complex_mul", a, b)


@complex_aten("view_as_complex")
def view_as_complex(s: Site, x: Operand) -> Pairs:
    return Pairs(x)


@complex_aten("view_as_real", "view_as_real_copy")
def view_as_real(s: Site, x: Pairs) -> Operand:
    return x.parts


@complex_aten("real", "imag")
def part(s: Site, x: Pairs) -> Operand:
    if isinstance(x, RealParts):
        return x.parts
    return _part(s, x, int(s.operation == "imag"), last=True)


@complex_aten("complex")
def joined(s: Site, re: Operand, im: Operand) -> Pairs:
    return _joined(s, re, im)


@complex_aten("polar")
def polar(s: Site, size: Operand, angle: Operand) -> Pairs:
    waves = [inner(s, name, angle) for name in ("cos", "sin")]
    if isinstance(size, Const) and bool((size.data == 1).all()) and angle.shape == s.shape[:-1]:
        return _joined(s, *waves)
    return _joined(s, *(inner(s, "mul", size, wave) for wave in waves))


@complex_aten("abs", "absolute")
def absolute(s: Site, x: Pairs) -> Value:
    return s.emit("l2_norm", x.parts, axes=(len(x.shape),), keepdim=False)


@complex_aten("angle")
def angle(s: Site, x: Pairs) -> Value:
    return s.emit("atan2", _part(s, x, 1), _part(s, x, 0))


@complex_aten("conj", "_conj", "conj_physical", "_conj_physical")
def conj(s: Site, x: Pairs) -> Pairs:
    return Pairs(_conjugate(s, x.parts))


@complex_aten(
    "resolve_conj", "resolve_neg", "clone", "contiguous", "detach", "alias", "lift_fresh_copy", "positive"
)
@complex_aten("to", "_to_copy", "type_as")
def same(s: Site, x: Pairs | Operand, *_: Any, **__: Any) -> Pairs:
    """Real numbers become complex ones; torch drops imaginary parts where it is the other way round."""
    if not is_complex(s.node.meta["val"]):
        raise Unsupported("of complex numbers to real ones")
    return x if isinstance(x, Pairs) else Pairs(pairs(s, x))


@complex_aten("add", "sub", "subtract", "rsub")
def add(s: Site, a: Term, b: Term, alpha: complex = 1) -> Pairs:
    if s.operation == "rsub":
        a, b = b, a
    first, second = pairs(s, a), pairs(s, b)
    if alpha != 1:
        second = _scaled(s, second, alpha)
    return Pairs(s.emit("add" if s.operation == "add" else "sub", first, second))


def _scaled(s: Site, x: Operand, factor: complex) -> Operand:
    if complex(factor).imag:
        return _product(s, x, pairs(s, factor), last=False)
    return inner(s, "mul", x, s.const(float(complex(factor).real), "factor"))


@complex_aten("mul", "multiply")
def mul(s: Site, a: Term, b: Term) -> Pairs:
    if not isinstance(a, Pairs):
        a, b = b, a
    if not isinstance(a, Pairs):  # real numbers and a complex one
        number, x = (a, b) if isinstance(a, complex) else (b, a)
        return Pairs(s.emit("mul", _real(s, x), pairs(s, number)))
    if isinstance(b, (Pairs, complex)):
        return Pairs(_product(s, a.parts, pairs(s, b)))
    return Pairs(s.emit("mul", a.parts, _real(s, b)))


def _real(s: Site, x: Any) -> Operand:
    """A real factor, to broadcast against pairs."""
    if isinstance(x, (Value, Const)) and x.shape:
        return _thin(s, converted(s, x, "float32"))
    return converted(s, x, "float32")


@complex_aten("neg", "negative")
def neg(s: Site, a: Pairs) -> Pairs:
    return Pairs(s.emit("neg", a.parts))


@complex_aten("div", "true_divide", "divide")
def div(s: Site, a: Term, b: Term) -> Pairs:
    if isinstance(b, complex) and b != 0:
        return mul(s, a, 1 / b)
    if not isinstance(b, (Pairs, complex)):
        return Pairs(s.emit("div", pairs(s, a), _real(s, b)))
    divisor = pairs(s, b)
    axes, thin = (len(divisor.shape) - 1,), (*divisor.shape[:-1], 1)
    most = s.emit("amax", inner(s, "abs", divisor), inner=thin, axes=axes, keepdim=True)
    divisor = inner(s, "div", divisor, most)  # else its square may leave float32's range
    above = inner(s, "div", _product(s, _conjugate(s, divisor), pairs(s, a), last=False), most)
    return Pairs(s.emit("div", above, _square(s, divisor)))


def _conjugate(s: Site, x: Operand) -> Operand:
    return inner(s, "mul", x, s.const([1.0, -1.0], "sign"))


def _square(s: Site, x: Operand) -> Operand:
    """The squares of the sizes of pairs."""
    return s.emit("sum_square", x, inner=(*x.shape[:-1], 1), axes=(len(x.shape) - 1,), keepdim=True)


@complex_aten("reciprocal")
def reciprocal(s: Site, a: Pairs) -> Pairs:
    return div(s, 1, a)


@complex_aten("square")
def square(s: Site, a: Pairs) -> Pairs:
    return Pairs(_product(s, a.parts, a.parts))


@complex_aten("pow")
def power(s: Site, a: Term, exponent: Term) -> Pairs:
    if not isinstance(a, Pairs) or not isinstance(exponent, (int, float)):
        raise Unsupported("but for powers of complex numbers by a real one")
    if exponent == 2:
        return square(s, a)
    return _power(s, a, float(exponent))


@complex_aten("sqrt")
def square_root(s: Site, a: Pairs) -> Pairs:
    return _power(s, a, 0.5)


def _power(s: Site, a: Pairs, exponent: float) -> Pairs:
    """By size and angle."""
    by = s.const(exponent, "exponent")
    size = s.emit("l2_norm", a.parts, inner=a.shape, axes=(len(a.shape),), keepdim=False)
    angle = inner(s, "atan2", _part(s, a, 1), _part(s, a, 0))
    return polar(s, inner(s, "pow", size, by), inner(s, "mul", angle, by))


@complex_aten("exp")
def exp(s: Site, a: Pairs) -> Pairs:
    size, way = inner(s, "exp", _part(s, a, 0)), _part(s, a, 1)
    return polar(s, size, way)


@complex_aten("tanh")
def tanh(s: Site, a: Pairs) -> Pairs:
    """With t = tanh(x), for x + iy: (t + i sin y cos y (1 - t^2)) / (cos^2 y + t^2 sin^2 y)."""
    t, way = inner(s, "tanh", _part(s, a, 0)), _part(s, a, 1)
    sin, cos = inner(s, "sin", way), inner(s, "cos", way)
    one, squares = s.const(1.0, "one"), inner(s, "mul", t, t)
    leaning = inner(s, "mul", t, sin)
    below = inner(s, "add", inner(s, "mul", cos, cos), inner(s, "mul", leaning, leaning))
    above = inner(s, "mul", inner(s, "mul", sin, cos), inner(s, "sub", one, squares))
    return _joined(s, inner(s, "div", t, below), inner(s, "div", above, below))


@complex_aten("log")
def log(s: Site, a: Pairs) -> Pairs:
    axes = (len(a.shape),)
    size = inner(s, "log", s.emit("l2_norm", a.parts, inner=a.shape, axes=axes, keepdim=False))
    return _joined(s, size, inner(s, "atan2", _part(s, a, 1), _part(s, a, 0)))


@complex_aten("where")
def where(s: Site, condition: Operand, a: Term, b: Term) -> Pairs:
    return Pairs(s.emit("where", _thin(s, converted(s, condition, "bool")), pairs(s, a), pairs(s, b)))


@complex_aten("masked_fill")
def masked_fill(s: Site, x: Pairs, mask: Operand, value: Term) -> Pairs:
    return where(s, mask, value, x)


@complex_aten("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like")
@complex_aten("new_zeros", "new_ones", "new_full", "new_empty")
def fill(s: Site, _: Any, *rest: Any, **__: Any) -> Pairs:
    known = next((n for key, n in (("zero", 0), ("one", 1), ("empty", 0)) if key in s.operation), None)
    value = complex(rest[-1] if known is None else known)
    if value == 0:
        return Pairs(filled(s, s.shape, 0.0, "float32"))
    return Pairs(inner(s, "mul", filled(s, (*s.shape[:-1], 1), 1.0, "float32"), pairs(s, value)))
