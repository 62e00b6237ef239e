"""Functions of one element from analysis and rounding. NaN in, NaN out, except for `sign`."""

import math

import numpy as np

from bslite.reference.registry import same_as_numpy

same_as_numpy(
    {
        "neg": np.negative,
        "abs": np.abs,
        "sqrt": np.sqrt,
        "exp": np.exp,
        "exp2": np.exp2,
        "expm1": np.expm1,
        "log": np.log,
        "log2": np.log2,
        "log10": np.log10,
        "log1p": np.log1p,
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "floor": np.floor,
        "ceil": np.ceil,
        "round": np.rint,
        "trunc": np.trunc,
        # 0 at NaN too, as torch has it
        "sign": lambda x: (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype),
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "reciprocal": lambda x: 1 / x,
        # the C library's, element by element
        "erf": lambda x: np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(x.dtype),
    }
)
