"""The C library's functions of float32, and arithmetic with explicit rounding.

On a GPU these are libdevice's (errors in units in the last place: CUDA's programming guide, "Mathematical
Functions": at most 2, but for pow, sinh, acosh and atanh, 3 to 4), in the simulator NumPy's, from float64
rounded once; sin, cos and tan are in trig.py.

`fma`, `plus`, `minus` and `times` are single instructions that no compiler merges with their neighbours:
numba contracts ``x*y + z`` wherever it meets one, and then the bits of a sum would depend on which layers
share a kernel. So a function's first operation on its argument and its last on its result are among these.
`larger` and `smaller` are ``max.NaN`` and ``min.NaN`` of PTX (sm_80 and later): NaN if one is NaN, and -0
below +0, so any order of comparisons gives the same bits. As comparisons and selections they take three
instructions for one; only here does device code use inline assembler.
"""

import numpy as np

from bslite.kernels.cuda.runtime.device import SIMULATED, device_function, intrinsic, libdevice

f = np.float32
#: Names here -> names in libdevice, in NumPy.
NAMES = {
    "exp": ("expf", np.exp),
    "exp2": ("exp2f", np.exp2),
    "expm1": ("expm1f", np.expm1),
    "log": ("logf", np.log),
    "log2": ("log2f", np.log2),
    "log10": ("log10f", np.log10),
    "log1p": ("log1pf", np.log1p),
    "asin": ("asinf", np.arcsin),
    "acos": ("acosf", np.arccos),
    "atan": ("atanf", np.arctan),
    "sinh": ("sinhf", np.sinh),
    "cosh": ("coshf", np.cosh),
    "asinh": ("asinhf", np.arcsinh),
    "acosh": ("acoshf", np.arccosh),
    "atanh": ("atanhf", np.arctanh),
    "tanh": ("tanhf", np.tanh),
    "floor": ("floorf", np.floor),
    "ceil": ("ceilf", np.ceil),
    "rint": ("rintf", np.rint),
    "trunc": ("truncf", np.trunc),
    "sqrt": ("fsqrt_rn", np.sqrt),
    "pow": ("powf", np.power),
    "fmod": ("fmodf", np.fmod),
    "atan2": ("atan2f", np.arctan2),
    "plus": ("fadd_rn", np.add),
    "minus": ("fsub_rn", np.subtract),
    "times": ("fmul_rn", np.multiply),
    "quotient": ("fdiv_rn", np.divide),
}

if SIMULATED:
    import math

    def _rounded(function):
        def apply(*given):
            with np.errstate(all="ignore"):
                return f(function(*map(np.float64, given)))

        return apply

    _made = {name: _rounded(numpys) for name, (_, numpys) in NAMES.items()}
    _made["erf"] = _rounded(math.erf)
    # Arrays, because for scalars NumPy computes a power of 0.5 as a square root, which is NaN for -inf.
    _made["pow"] = _rounded(lambda x, y: np.power(np.array([x, x]), np.array([y, y]))[0])
    fma = _rounded(lambda x, y, z: x * y + z)

    def larger(x, y):
        """Return the larger of two values, NaN if one is; -0 is below +0."""
        if x != x or y != y:
            return f(np.nan)
        if x == y:
            return y if np.signbit(x) else x
        return x if x > y else y

    def larger_bits(x, y):
        """Return the larger of two values; a NaN has no sign. Of two negative ones a GPU returns either."""
        return larger(x, y)

    def larger_bits_relu(x, y):
        """Return the largest of two values and 0; a NaN among them has no sign."""
        return larger(larger(x, y), f(0.0))

    def smaller(x, y):
        """Return the smaller of two values, NaN if one is; -0 is below +0."""
        return -larger(-x, -y)

    def as_int(x):
        """Return the 32 bits of a float32 as an int32."""
        return f(x).view(np.int32)

    def as_float(cell):
        """Return the float32 of these 32 bits."""
        return np.int32(cell).view(np.float32)

else:
    from llvmlite import ir
    from numba import types

    _made = {name: getattr(libdevice, device) for name, (device, _) in NAMES.items()}
    _made["erf"] = libdevice.erff
    fma = libdevice.fmaf_rn
    as_int, as_float = libdevice.float_as_int, libdevice.int_as_float

    def _of_two(instruction, bits=False):
        @intrinsic
        def apply(typingctx, x, y):
            def codegen(context, builder, signature, args):
                cell = ir.IntType(32) if bits else ir.FloatType()
                kind = ir.FunctionType(cell, [cell] * 2)
                letters = "=r,r,r" if bits else "=f,f,f"
                given = [builder.bitcast(a, cell) for a in args]
                made = builder.call(ir.InlineAsm(kind, f"{instruction} $0, $1, $2;", letters), given)
                return builder.bitcast(made, ir.FloatType())

            return types.float32(types.float32, types.float32), codegen

        return apply

    larger, smaller = _of_two("max.NaN.f32"), _of_two("min.NaN.f32")
    larger_bits, larger_bits_relu = _of_two("max.s32", bits=True), _of_two("max.relu.s32", bits=True)


def __getattr__(name):
    """Return a function of `NAMES`."""
    if name in _made:
        return _made[name]
    raise AttributeError(name)


@device_function
def magnitude(x):
    """Return ``|x|``."""
    return as_float(as_int(x) & np.int32(0x7FFFFFFF))
