"""Functions of one element from analysis and rounding, of any shape; stores apply them as activations."""

import math

from bslite.ops.activation import Activation
from bslite.ops.core import declare

declare(Activation, "neg", "``-x``.", onnx="Neg", slope=lambda x, y, a: -1.0)
declare(Activation, "abs", "Absolute value.", onnx="Abs", slope=lambda x, y, a: x.op("sign"))
declare(
    Activation,
    "sign",
    "1 above zero, -1 below, 0 at zero and at NaN.",
    onnx="Sign",
    slope=lambda x, y, a: 0.0,
)
declare(
    Activation,
    "sqrt",
    "Square root; NaN below zero.",
    onnx="Sqrt",
    sample_range=(0.0, 9.0),
    slope=lambda x, y, a: 0.5 / y,
)
declare(
    Activation,
    "rsqrt",
    "``1 / sqrt(x)``.",
    cost=2,
    sample_range=(0.05, 9.0),
    slope=lambda x, y, a: -0.5 * y * (y * y),
)
declare(
    Activation,
    "reciprocal",
    "``1 / x``.",
    onnx="Reciprocal",
    sample_range=(0.05, 9.0),
    slope=lambda x, y, a: -(y * y),
)
declare(Activation, "exp", "``e**x``.", onnx="Exp", slope=lambda x, y, a: y)
declare(Activation, "exp2", "``2**x``.", slope=lambda x, y, a: math.log(2) * y)
declare(Activation, "expm1", "``e**x - 1``, without the cancellation near 0.", slope=lambda x, y, a: y + 1.0)
declare(
    Activation,
    "log",
    "Natural logarithm; -inf at zero, NaN below.",
    onnx="Log",
    sample_range=(0.01, 9.0),
    slope=lambda x, y, a: 1.0 / x,
)
declare(
    Activation,
    "log2",
    "Logarithm to base 2.",
    sample_range=(0.01, 9.0),
    slope=lambda x, y, a: (1 / math.log(2)) / x,
)
declare(
    Activation,
    "log10",
    "Logarithm to base 10.",
    sample_range=(0.01, 9.0),
    slope=lambda x, y, a: (1 / math.log(10)) / x,
)
declare(
    Activation,
    "log1p",
    "``log(1 + x)``, without the cancellation near 0.",
    sample_range=(-0.9, 9.0),
    slope=lambda x, y, a: 1.0 / (x + 1.0),
)
declare(Activation, "sin", "Sine.", onnx="Sin", slope=lambda x, y, a: x.op("cos"))
declare(Activation, "cos", "Cosine.", onnx="Cos", slope=lambda x, y, a: -x.op("sin"))
declare(
    Activation, "tan", "Tangent.", onnx="Tan", sample_range=(-1.5, 1.5), slope=lambda x, y, a: 1.0 + y * y
)
declare(
    Activation,
    "asin",
    "Inverse sine, of [-1, 1]; NaN elsewhere.",
    onnx="Asin",
    sample_range=(-1.0, 1.0),
    slope=lambda x, y, a: (1.0 - x * x).op("rsqrt"),
)
declare(
    Activation,
    "acos",
    "Inverse cosine, of [-1, 1]; NaN elsewhere.",
    onnx="Acos",
    sample_range=(-1.0, 1.0),
    slope=lambda x, y, a: -(1.0 - x * x).op("rsqrt"),
)
declare(Activation, "atan", "Inverse tangent.", onnx="Atan", slope=lambda x, y, a: 1.0 / (1.0 + x * x))
declare(Activation, "sinh", "Hyperbolic sine.", onnx="Sinh", slope=lambda x, y, a: x.op("cosh"))
declare(Activation, "cosh", "Hyperbolic cosine.", onnx="Cosh", slope=lambda x, y, a: x.op("sinh"))
declare(
    Activation,
    "asinh",
    "Inverse hyperbolic sine.",
    onnx="Asinh",
    slope=lambda x, y, a: (x * x + 1.0).op("rsqrt"),
)
declare(
    Activation,
    "acosh",
    "Inverse hyperbolic cosine, from 1 on; NaN below.",
    onnx="Acosh",
    sample_range=(1.0, 9.0),
    slope=lambda x, y, a: (x * x - 1.0).op("rsqrt"),
)
declare(
    Activation,
    "atanh",
    "Inverse hyperbolic tangent, of [-1, 1]; NaN beyond.",
    onnx="Atanh",
    sample_range=(-0.99, 0.99),
    slope=lambda x, y, a: 1.0 / (1.0 - x * x),
)
declare(
    Activation,
    "erf",
    "The error function.",
    onnx="Erf",
    slope=lambda x, y, a: (2 / math.sqrt(math.pi)) * (-(x * x)).op("exp"),
)
declare(Activation, "floor", "The largest integer not above.", onnx="Floor", slope=lambda x, y, a: 0.0)
declare(Activation, "ceil", "The smallest integer not below.", onnx="Ceil", slope=lambda x, y, a: 0.0)
declare(
    Activation, "round", "The nearest integer, of two the even one.", onnx="Round", slope=lambda x, y, a: 0.0
)
declare(Activation, "trunc", "The integer next to it towards zero.", slope=lambda x, y, a: 0.0)
