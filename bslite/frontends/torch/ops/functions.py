"""Builders of elementwise functions: analysis, rounding, activations."""

from typing import Any

from bslite import ops
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Const, Number, Operand

SAME = (
    *("sign", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf"),
    *("floor", "ceil", "round", "trunc", "mish", "relu", "relu6", "silu", "sigmoid", "tanh", "hardswish"),
    "hardsigmoid",
)
#: torch's other names for them
ALIASES = {
    "special_erf": "erf", "special_expm1": "expm1", "special_expit": "sigmoid", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "fix": "trunc", "log_sigmoid": "logsigmoid", "log_sigmoid_forward": "logsigmoid", "sgn": "sign",
    "special_log1p": "log1p", "special_exp2": "exp2",
}  # fmt: skip


@aten(*SAME, *ALIASES)
def function(s: Site, x: Operand) -> Any:
    """Integers are converted to float32 first, as torch does."""
    if x.dtype != "float32" and s.operation in ("sign", "sgn", "relu", "relu6"):
        raise Unsupported(f"of {x.dtype}")
    return s.results(s.emit(ALIASES.get(s.operation, s.operation), converted(s, x, "float32")))


@aten("round.decimals")
def round_decimals(s: Site, x: Operand, *, decimals: int) -> Value:
    if decimals:
        raise Unsupported(f"decimals={decimals}")
    return s.emit("round", x)


@aten("elu")
def elu(s: Site, x: Operand, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if input_scale == 1:
        return s.emit("elu", x, alpha=alpha) if scale == 1 else s.emit("selu", x, alpha=alpha, gamma=scale)
    if scale == 1 and alpha * input_scale == 1:
        return s.emit("celu", x, alpha=alpha)
    raise Unsupported(f"scale={scale}, input_scale={input_scale}")


@aten("leaky_relu", "celu", "selu", "gelu", "softplus", "softsign", "threshold", "isnan", "logcumsumexp")
def same_name(s: Site, x: Operand, *given: Number, **named: Any) -> Value:
    """The op of the same name, whose attributes have torch's order and defaults."""
    names = [attr.name for attr in ops.get(s.operation).attrs[: len(given)]]
    named |= zip(names, given, strict=True)
    return s.emit(s.operation, x, **named)


@aten("rrelu")
def rrelu(
    s: Site, x: Operand, lower: Number = 1 / 8, upper: Number = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Value:  # fmt: skip
    """The slope is drawn in training; else it is the mean of its bounds."""
    if training:
        raise Unsupported("called with training=True")
    return s.emit("leaky_relu", x, negative_slope=(lower + upper) / 2)


@aten("hardshrink", "softshrink")
def shrink(s: Site, x: Operand, lambd: Number = 0.5) -> Value:
    return s.emit("shrink", x, lambd=lambd, bias=lambd if s.operation == "softshrink" else 0.0)


@aten("prelu", "_prelu_kernel")
def prelu(s: Site, x: Operand, slope: Operand) -> Value:
    """One slope, or one per channel (axis 1)."""
    if len(slope.shape) == 1 and slope.shape != (1,) and len(x.shape) > 2:
        shape = (*slope.shape, *(1,) * (len(x.shape) - 2))
        if isinstance(slope, Const):
            slope = s.derived("slope", slope.data.reshape(shape))
        else:
            slope = reshape(s, slope, shape, last=False)
    return s.emit("prelu", x, slope)


@aten("glu")
def glu(s: Site, x: Operand, axis: int = -1) -> Value:
    """The first half of an axis times the sigmoid of the second."""
    axis %= len(x.shape)
    half = x.shape[axis] // 2
    shape = (*x.shape[:axis], half, *x.shape[axis + 1 :])
    first, second = (
        s.emit("slice", x, inner=shape, axis=axis, start=start, stop=start + half) for start in (0, half)
    )
    return s.emit("mul", first, inner(s, "sigmoid", second))
