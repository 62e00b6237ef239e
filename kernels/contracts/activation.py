"""Functions of one value that kernels apply before they store it: activations and the unary operations.

`FUNCTIONS` is the one list of them. The kernels of each target implement all of them; the planner names one
of them with its parameters (`Activation`).
"""

from typing import NamedTuple

#: Name -> formula in ``x``, with the parameters ``a`` and ``b``. An op with a parameter that chooses code has
#: one name for each choice.
FUNCTIONS = {
    "identity": "x",
    "relu": "max(x, 0)",
    "clamp": "min(max(x, a), b)",
    "quantize": "min(max(round(x / a), b), b + 255)",
    "leaky_relu": "x if x >= 0 else a * x",
    "sigmoid": "1 / (1 + exp(-x))",
    "tanh": "tanh(x)",
    "silu": "x * sigmoid(x)",
    "relu6": "min(max(x, 0), 6)",
    "elu": "x if x > 0 else a * expm1(x)",
    "gelu_none": "x / 2 * (1 + erf(x / sqrt(2)))",
    "gelu_tanh": "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))",
    "hardsigmoid": "relu6(x + 3) / 6",
    "hardswish": "x * hardsigmoid(x)",
    "hardsigmoid_any": "min(max(a * x + b, 0), 1)",
    "swish": "x * sigmoid(a * x)",
    "selu": "b * (x if x > 0 else a * expm1(x))",
    "celu": "x if x > 0 else a * expm1(x / a)",
    "softplus": "x if a * x > b else log1p(exp(a * x)) / a",
    "softsign": "x / (1 + abs(x))",
    "mish": "x * tanh(log1p(exp(x)))",
    "logsigmoid": "log(sigmoid(x))",
    "threshold": "x if x > a else b",
    "shrink": "x - b if x > a else x + b if x < -a else 0",
    **{
        name: f"{name}(x)"
        for name in (
            "neg", "sign", "rsqrt", "reciprocal", "abs", "sqrt", "exp", "exp2", "expm1", "log", "log2",
            "log10", "log1p", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
            "erf", "floor", "ceil", "trunc", "round", "sin", "cos", "tan",
        )
    },
}  # fmt: skip


class Activation(NamedTuple):
    """The name of one of `FUNCTIONS` and its two parameters, which are 0 where the function takes none."""

    function: str
    a: float = 0.0
    b: float = 0.0


IDENTITY = Activation("identity")
RELU = Activation("relu")
