"""Functions of one element from analysis and rounding, of any shape; stores apply them as activations."""

from __future__ import annotations

from bslite.ops.activation import Activation


class Neg(Activation):
    """``-x``."""

    name = "neg"
    torch_name = "neg"
    onnx_name = "Neg"


class Abs(Activation):
    """Absolute value."""

    name = "abs"
    torch_name = "abs"
    onnx_name = "Abs"


class Sign(Activation):
    """1 above zero, -1 below, 0 at zero and at NaN."""

    name = "sign"
    torch_name = "sign"
    onnx_name = "Sign"


class Sqrt(Activation):
    """Square root; NaN below zero."""

    name = "sqrt"
    sample_range = (0.0, 9.0)
    torch_name = "sqrt"
    onnx_name = "Sqrt"


class Rsqrt(Activation):
    """``1 / sqrt(x)``."""

    name = "rsqrt"
    cost = 2
    sample_range = (0.05, 9.0)
    torch_name = "rsqrt"


class Reciprocal(Activation):
    """``1 / x``."""

    name = "reciprocal"
    sample_range = (0.05, 9.0)
    torch_name = "reciprocal"
    onnx_name = "Reciprocal"


class Exp(Activation):
    """``e**x``."""

    name = "exp"
    torch_name = "exp"
    onnx_name = "Exp"


class Expm1(Activation):
    """``e**x - 1``, without the cancellation near 0."""

    name = "expm1"
    torch_name = "expm1"


class Log(Activation):
    """Natural logarithm; -inf at zero, NaN below."""

    name = "log"
    sample_range = (0.01, 9.0)
    torch_name = "log"
    onnx_name = "Log"


class Log2(Activation):
    """Logarithm to base 2."""

    name = "log2"
    sample_range = (0.01, 9.0)
    torch_name = "log2"


class Log10(Activation):
    """Logarithm to base 10."""

    name = "log10"
    sample_range = (0.01, 9.0)
    torch_name = "log10"


class Log1p(Activation):
    """``log(1 + x)``, without the cancellation near 0."""

    name = "log1p"
    sample_range = (-0.9, 9.0)
    torch_name = "log1p"


class Sin(Activation):
    """Sine."""

    name = "sin"
    torch_name = "sin"
    onnx_name = "Sin"


class Cos(Activation):
    """Cosine."""

    name = "cos"
    torch_name = "cos"
    onnx_name = "Cos"


class Tan(Activation):
    """Tangent."""

    name = "tan"
    sample_range = (-1.5, 1.5)
    torch_name = "tan"
    onnx_name = "Tan"


class Asin(Activation):
    """Inverse sine, of [-1, 1]; NaN elsewhere."""

    name = "asin"
    sample_range = (-1.0, 1.0)
    torch_name = "asin"
    onnx_name = "Asin"


class Acos(Activation):
    """Inverse cosine, of [-1, 1]; NaN elsewhere."""

    name = "acos"
    sample_range = (-1.0, 1.0)
    torch_name = "acos"
    onnx_name = "Acos"


class Atan(Activation):
    """Inverse tangent."""

    name = "atan"
    torch_name = "atan"
    onnx_name = "Atan"


class Sinh(Activation):
    """Hyperbolic sine."""

    name = "sinh"
    torch_name = "sinh"
    onnx_name = "Sinh"


class Cosh(Activation):
    """Hyperbolic cosine."""

    name = "cosh"
    torch_name = "cosh"
    onnx_name = "Cosh"


class Asinh(Activation):
    """Inverse hyperbolic sine."""

    name = "asinh"
    torch_name = "asinh"
    onnx_name = "Asinh"


class Acosh(Activation):
    """Inverse hyperbolic cosine, from 1 on; NaN below."""

    name = "acosh"
    sample_range = (1.0, 9.0)
    torch_name = "acosh"
    onnx_name = "Acosh"


class Atanh(Activation):
    """Inverse hyperbolic tangent, of [-1, 1]; NaN beyond."""

    name = "atanh"
    sample_range = (-0.99, 0.99)
    torch_name = "atanh"
    onnx_name = "Atanh"


class Erf(Activation):
    """The error function."""

    name = "erf"
    torch_name = "erf"
    onnx_name = "Erf"


class Floor(Activation):
    """The largest integer not above."""

    name = "floor"
    torch_name = "floor"
    onnx_name = "Floor"


class Ceil(Activation):
    """The smallest integer not below."""

    name = "ceil"
    torch_name = "ceil"
    onnx_name = "Ceil"


class Round(Activation):
    """The nearest integer, of two the even one."""

    name = "round"
    torch_name = "round"
    onnx_name = "Round"


class Trunc(Activation):
    """The integer next to it towards zero."""

    name = "trunc"
    torch_name = "trunc"
