"""Functions of one value: activations, analysis, rounding. NaN gives NaN (except in `sign`, as in torch).

A kernel takes the function that it is compiled for from `function_of`, as ``(x, a, b)``; a and b are float32
parameters (clamp bounds, negative slope, ...). Other functions are not compiled. Where a function begins or
ends with a sum or product, it uses one of libm.py's: otherwise its neighbours in a kernel would decide how it
is rounded.
"""

import numpy as np

from bslite.kernels.contracts import activation as contract
from bslite.kernels.contracts.table import complete
from bslite.kernels.cuda.math import libm, trig
from bslite.kernels.cuda.math.libm import fma, larger, magnitude, minus, plus, quotient, smaller, times
from bslite.kernels.cuda.runtime.device import device_function

f = np.float32
ONE, ZERO, STEPS = f(1.0), f(0.0), f(255.0)
exp, expm1, log1p = libm.exp, libm.expm1, libm.log1p
erf, tanh_of, sqrt_of = libm.erf, libm.tanh, libm.sqrt


@device_function
def identity(x, a, b):
    return x


@device_function
def relu(x, a, b):
    return larger(x, ZERO)


@device_function
def clamp(x, a, b):
    return smaller(larger(x, a), b)


@device_function
def quantize(x, a, b):
    return smaller(larger(libm.rint(quotient(x, a)), b), plus(b, STEPS))


@device_function
def leaky_relu(x, a, b):
    return x if x >= ZERO else times(x, a)


@device_function
def sigmoid(x, a, b):
    return quotient(ONE, ONE + exp(-x))


@device_function
def tanh(x, a, b):
    return tanh_of(x)


@device_function
def silu(x, a, b):
    return quotient(x, ONE + exp(-x))


@device_function
def relu6(x, a, b):
    return smaller(larger(x, ZERO), f(6.0))


@device_function
def elu(x, a, b):
    return x if x > ZERO else times(expm1(x), a)


@device_function
def gelu_none(x, a, b):
    return times(f(0.5) * x, ONE + erf(x * f(0.70710678118654752)))


@device_function
def gelu_tanh(x, a, b):
    inner = fma(f(0.044715) * x * x, x, x) * f(0.79788456080286536)
    return times(f(0.5) * x, ONE + tanh_of(inner))


@device_function
def hardsigmoid(x, a, b):
    return times(smaller(larger(plus(x, f(3.0)), ZERO), f(6.0)), f(1.0 / 6))


@device_function
def hardswish(x, a, b):
    return times(x, hardsigmoid(x, a, b))


@device_function
def hardsigmoid_any(x, a, b):
    return smaller(larger(fma(x, a, b), ZERO), ONE)


@device_function
def swish(x, a, b):
    return quotient(x, ONE + exp(-times(x, a)))


@device_function
def selu(x, a, b):
    return times(x if x > ZERO else times(expm1(x), a), b)


@device_function
def celu(x, a, b):
    return x if x > ZERO else times(expm1(quotient(x, a)), a)


@device_function
def softplus(x, a, b):
    z = times(x, a)
    if z > b:
        return x
    return quotient(larger(z, ZERO) + log1p(exp(-magnitude(z))), a)


@device_function
def softsign(x, a, b):
    return quotient(x, ONE + magnitude(x))


@device_function
def mish(x, a, b):
    # tanh(log(1 + e)) = ((1 + e)**2 - 1) / ((1 + e)**2 + 1), which in this form has no cancellation
    e = exp(smaller(x, f(20.0)))
    n = times(e, e + f(2.0))
    return times(x, quotient(n, n + f(2.0)))


@device_function
def logsigmoid(x, a, b):
    return smaller(x, ZERO) - log1p(exp(-magnitude(x)))


@device_function
def threshold(x, a, b):
    return b if x <= a else x


@device_function
def shrink(x, a, b):
    if x > a:
        return minus(x, b)
    return ZERO if x >= -a else plus(x, b)


@device_function
def neg(x, a, b):
    return -x


@device_function
def absolute(x, a, b):
    return magnitude(x)


@device_function
def sign(x, a, b):
    if x > ZERO:
        return ONE
    return -ONE if x < ZERO else ZERO


@device_function
def rsqrt(x, a, b):
    return quotient(ONE, sqrt_of(x))


@device_function
def reciprocal(x, a, b):
    return quotient(ONE, x)


def _alone(function):
    """Return a function of one argument as one of ``(x, a, b)``."""

    @device_function
    def apply(x, a, b):
        return function(x)

    return apply


FUNCTIONS = complete({
    **{
        function.__name__: function
        for function in (
            identity, relu, clamp, quantize, leaky_relu, sigmoid, tanh, silu, relu6, elu, gelu_none,
            gelu_tanh, hardsigmoid, hardswish, hardsigmoid_any, swish, selu, celu, softplus, softsign, mish,
            logsigmoid, threshold, shrink, neg, sign, rsqrt, reciprocal,
        )
    },
    "abs": absolute,
    **{
        name: _alone(getattr(libm, name))
        for name in (
            "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "asin", "acos", "atan", "sinh",
            "cosh", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc",
        )
    },
    "round": _alone(libm.rint),
    "sin": _alone(trig.sin),
    "cos": _alone(trig.cos),
    "tan": _alone(trig.tan),
}, contract.FUNCTIONS, "GPU")  # fmt: skip
#: Name -> number, in the order above: the number identifies variants of a kernel.
CODES = {name: code for code, name in enumerate(FUNCTIONS)}
_NAMES = tuple(FUNCTIONS)


def function_of(code: int | str):
    """Return the function with this number or name."""
    return FUNCTIONS[code if isinstance(code, str) else _NAMES[code]]
