"""Functions of one element from analysis and rounding, of any shape; stores apply them as activations."""

from bslite.ops.activation import Activation
from bslite.ops.core import declare

declare(Activation, "neg", "``-x``.", onnx="Neg")
declare(Activation, "abs", "Absolute value.", onnx="Abs")
declare(Activation, "sign", "1 above zero, -1 below, 0 at zero and at NaN.", onnx="Sign")
declare(Activation, "sqrt", "Square root; NaN below zero.", onnx="Sqrt", sample_range=(0.0, 9.0))
declare(Activation, "rsqrt", "``1 / sqrt(x)``.", cost=2, sample_range=(0.05, 9.0))
declare(Activation, "reciprocal", "``1 / x``.", onnx="Reciprocal", sample_range=(0.05, 9.0))
declare(Activation, "exp", "``e**x``.", onnx="Exp")
declare(Activation, "expm1", "``e**x - 1``, without the cancellation near 0.")
declare(
    Activation, "log", "Natural logarithm; -inf at zero, NaN below.", onnx="Log", sample_range=(0.01, 9.0)
)
declare(Activation, "log2", "Logarithm to base 2.", sample_range=(0.01, 9.0))
declare(Activation, "log10", "Logarithm to base 10.", sample_range=(0.01, 9.0))
declare(Activation, "log1p", "``log(1 + x)``, without the cancellation near 0.", sample_range=(-0.9, 9.0))
declare(Activation, "sin", "Sine.", onnx="Sin")
declare(Activation, "cos", "Cosine.", onnx="Cos")
declare(Activation, "tan", "Tangent.", onnx="Tan", sample_range=(-1.5, 1.5))
declare(Activation, "asin", "Inverse sine, of [-1, 1]; NaN elsewhere.", onnx="Asin", sample_range=(-1.0, 1.0))
declare(
    Activation, "acos", "Inverse cosine, of [-1, 1]; NaN elsewhere.", onnx="Acos", sample_range=(-1.0, 1.0)
)
declare(Activation, "atan", "Inverse tangent.", onnx="Atan")
declare(Activation, "sinh", "Hyperbolic sine.", onnx="Sinh")
declare(Activation, "cosh", "Hyperbolic cosine.", onnx="Cosh")
declare(Activation, "asinh", "Inverse hyperbolic sine.", onnx="Asinh")
declare(
    Activation,
    "acosh",
    "Inverse hyperbolic cosine, from 1 on; NaN below.",
    onnx="Acosh",
    sample_range=(1.0, 9.0),
)
declare(
    Activation,
    "atanh",
    "Inverse hyperbolic tangent, of [-1, 1]; NaN beyond.",
    onnx="Atanh",
    sample_range=(-0.99, 0.99),
)
declare(Activation, "erf", "The error function.", onnx="Erf")
declare(Activation, "floor", "The largest integer not above.", onnx="Floor")
declare(Activation, "ceil", "The smallest integer not below.", onnx="Ceil")
declare(Activation, "round", "The nearest integer, of two the even one.", onnx="Round")
declare(Activation, "trunc", "The integer next to it towards zero.")
