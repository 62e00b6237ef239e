"""Functions of one register and the activations made of them: error bounds and special values, compiled."""

import ctypes
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.ulps import SMALLEST, ulps

from bslite.kernels.cpu.math import vecarc, vechyper, veclog, vecmath, vectrig
from bslite.kernels.cpu.math.activation import activation
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.vector import scaling
from bslite.kernels.cpu.vector.memory import load, store
from bslite.kernels.cpu.vector.simd import BYTES, LANES
from bslite.kernels.cpu.vector.target import picks_powers
from bslite.reference import FUNCTIONS as ORACLE

PER_EXPONENT = 1 << 11  # floats tried of every exponent and sign: half evenly spaced, half random


def erf(x: Array) -> Array:
    """The C library's, element by element."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


def expm1_negative(x: Array) -> Array:
    return np.expm1(np.minimum(x, 0))


#: name -> its definition in float64, and how many units in the last place float32 may be off. The bounds hold
#: with and without fused multiply-adds.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 1.5),
    "exp2": (np.exp2, 1.5),
    "expm1_negative": (expm1_negative, 1.5),
    "sigmoid": (ORACLE["sigmoid"], 3.0),
    "tanh": (np.tanh, 2.0),
    "erf": (erf, 2.0),
    "log": (np.log, 1.5),
    "log2": (np.log2, 1.5),
    "log10": (np.log10, 2.0),
    "log1p": (np.log1p, 1.5),
    "expm1": (np.expm1, 1.5),
    "softplus": (lambda x: np.logaddexp(0, x), 2.0),
    "log_sigmoid": (lambda x: -np.logaddexp(0, -x), 2.0),
    "sin": (np.sin, 2.0),
    "cos": (np.cos, 2.0),
    "tan": (np.tan, 3.5),
    "asin": (np.arcsin, 2.0),
    "acos": (np.arccos, 2.0),
    "atan": (np.arctan, 2.0),
    "sinh": (np.sinh, 2.0),
    "cosh": (np.cosh, 2.0),
    "asinh": (np.arcsinh, 3.0),
    "acosh": (np.arccosh, 3.0),
    "atanh": (np.arctanh, 3.0),
    "reciprocal": (np.reciprocal, 1.0),
    "reciprocal_root": (lambda x: 1 / np.sqrt(x), 1.5),
    "square_root": (np.sqrt, 1.0),
}
#: Those that rise all the way.
RISING = ("exp", "exp2", "expm1_negative", "sigmoid", "tanh", "erf", "expm1", "softplus", "log_sigmoid")
MODULES = (vecmath, veclog, vectrig, vecarc, vechyper, scaling)


@functools.cache
def compiled(name: str) -> Callable[[Array], Array]:
    """The vector function over an array whose size is a multiple of the lanes."""
    function = next(getattr(m, name) for m in MODULES if hasattr(m, name))

    def apply(x, y, count):  # type: ignore[no-untyped-def]
        for i in range(count // LANES):
            store(y + i * BYTES, function(load(x + i * BYTES)))

    kernel = Kernel(apply, f"test_vecmath_{name}", 3)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(kernel.address)

    def run(x: Array) -> Array:
        x = np.ascontiguousarray(x, np.float32)
        padded = np.zeros(-(-x.size // LANES) * LANES, np.float32)
        padded[: x.size] = x
        y = np.empty_like(padded)
        call(padded.ctypes.data, y.ctypes.data, padded.size)
        return y[: x.size]

    return run


def run_activation(name: str, x: Array, a: float = 0.0) -> Array:
    """An activation kernel over one line of pixels with one channel count, ``a`` its parameter."""
    y = np.zeros(x.size + LANES, np.float32)
    y[: x.size] = x
    cells = np.zeros(2, np.int64)
    cells.view(np.float32)[0] = a
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(activation(name).address)
    call(y.ctypes.data, y.ctypes.data, 1, 4 * x.size, 4 * x.size, x.size, cells.ctypes.data)
    assert not y[x.size :].any(), "wrote beyond the channels"
    return y[: x.size]


@functools.cache
def floats() -> Array:
    """Finite float32 of every exponent, subnormal ones too, of both signs."""
    exponents = np.arange(255, dtype=np.uint32)[:, None] << np.uint32(23)
    even = np.linspace(0, 2**23 - 1, PER_EXPONENT // 2).astype(np.uint32)
    odd = np.random.default_rng(0).integers(0, 2**23, PER_EXPONENT // 2, dtype=np.uint32)
    bits = (exponents | np.concatenate([even, odd])).reshape(-1)
    values = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    values.setflags(write=False)
    return values


@np.errstate(all="ignore")
def in_float64(function: Callable[..., Array], x: Array, **attrs: Any) -> Array:
    return np.asarray(function(x.astype(np.float64), **attrs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound_at_every_exponent(name: str) -> None:
    exact, bound = FUNCTIONS[name]
    error = ulps(compiled(name)(floats()), in_float64(exact, floats()))
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{error[worst]:.2f} units at {floats()[worst]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound_where_the_formula_changes(name: str) -> None:
    """All floats within a thousand of the code's thresholds, of float32's overflow, and of saturation."""
    near = [0.625, 0.921875, 0.34657359, 25.0, 4.0, 3.9, 9.0, 17.0, 87.33654, 88.72284, 89.0, 103.2789, 104.0]
    bits = np.array(near, np.float32).view(np.int32)[:, None] + np.arange(-1000, 1000, dtype=np.int32)
    x = bits.reshape(-1).view(np.float32)
    x = np.concatenate([x, -x])
    exact, bound = FUNCTIONS[name]
    assert ulps(compiled(name)(x), in_float64(exact, x)).max() <= bound


@pytest.mark.parametrize(
    ("name", "low", "at_zero", "high"),
    [
        ("exp", 0.0, 1.0, np.inf),
        ("expm1_negative", -1.0, 0.0, 0.0),
        ("sigmoid", 0.0, 0.5, 1.0),
        ("tanh", -1.0, 0.0, 1.0),
        ("erf", -1.0, 0.0, 1.0),
        ("expm1", -1.0, 0.0, np.inf),
    ],
)
def test_special_values(name: str, low: float, at_zero: float, high: float) -> None:
    x = np.array([-np.inf, -3e38, -200, -0.0, 0.0, 200, 3e38, np.inf], np.float32)
    assert compiled(name)(x).tolist() == [low, low, low, at_zero, at_zero, high, high, high]
    assert np.isnan(compiled(name)(np.array([np.nan, -np.nan], np.float32))).all()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_and_bounded(name: str) -> None:
    y = compiled(name)(floats())
    half = y.size // 2
    assert np.array_equal(y[:half], -y[half:])
    assert np.array_equal(np.sign(y), np.sign(floats()))  # no subnormal lost
    assert np.abs(y).max() == 1.0


@pytest.mark.parametrize("name", RISING)
def test_monotone_to_rounding_and_saturated_for_good(name: str) -> None:
    x = np.sort(floats())
    y = compiled(name)(x).astype(np.float64)
    highest = np.maximum.accumulate(y)
    with np.errstate(invalid="ignore"):
        back = np.where(np.isinf(highest), np.where(np.isinf(y), 0, np.inf), highest - y)
    assert (back <= 2.0**-22 * np.abs(np.where(np.isinf(y), 0, y))).all()
    if name in ("tanh", "erf", "sigmoid"):
        assert (y[np.argmax(y == 1.0) :] == 1.0).all()


def test_powers_of_negatives_only() -> None:
    x = floats()[floats() <= 0]
    normal, got = x >= -126, compiled("exp2_negative")(x)
    exact = in_float64(np.exp2, x)
    assert ulps(got, exact)[normal].max() <= 1.5
    if not picks_powers():
        assert ulps(got, np.where(x < -126.5, 0.0, exact)).max() <= 1.5
    subnormal = np.linspace(-127, -126, 1001, dtype=np.float32)
    assert (np.diff(compiled("exp2_negative")(subnormal)) >= 0).all()
    assert (got[~normal] <= 2.0**-126).all()
    ends = compiled("exp2_negative")(np.array([-np.inf, -3e38, -127, -126, 0.0, np.nan], np.float32))
    np.testing.assert_array_equal(ends, np.array([0, 0, 0, 2.0**-126, 1, np.nan], np.float32))


def test_tail_of_the_normal_distribution() -> None:
    for end, bound in ((3.0, 1.5e-6), (5.5, 5e-5)):
        x = np.linspace(0, end, 20_000, dtype=np.float32)
        exact = np.array([math.erfc(v / math.sqrt(2)) / 2 for v in x.tolist()])
        assert (np.abs(compiled("normal_tail")(x) - exact) <= bound * exact).all()
    ends = compiled("normal_tail")(np.array([0, 14, 16, 3e38, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(ends, np.array([0.5, 0, 0, 0, 0, np.nan], np.float32))


def test_logarithms_and_sines_at_their_ends() -> None:
    nan, inf = math.nan, math.inf
    x = np.array([-inf, -1.0, -0.0, 0.0, 1.0, inf, nan], np.float32)
    for name, want in (
        ("log", [nan, nan, -inf, -inf, 0.0, inf, nan]),
        ("log2", [nan, nan, -inf, -inf, 0.0, inf, nan]),
        ("log10", [nan, nan, -inf, -inf, 0.0, inf, nan]),
        ("log1p", [nan, -inf, 0.0, 0.0, np.log(np.float32(2)), inf, nan]),
        ("sin", [nan, np.sin(np.float32(-1)), 0.0, 0.0, np.sin(np.float32(1)), nan, nan]),
        ("cos", [nan, np.cos(np.float32(1)), 1.0, 1.0, np.cos(np.float32(1)), nan, nan]),
    ):
        np.testing.assert_allclose(compiled(name)(x), np.array(want, np.float32), rtol=2e-7)


@pytest.mark.parametrize("near", [1, 2, 3, 100, 1001, 65536, 333333])
def test_sine_near_its_zeros(near: int) -> None:
    """Where all of x cancels against multiples of pi, in float64 too: against pi to 60 digits."""
    x = np.float32(near * math.pi)
    pi = [3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33]
    rest = Fraction(float(x)) - near * sum(map(Fraction, pi))
    exact = math.sin(rest) * (1 if near % 2 == 0 else -1)
    got = compiled("sin")(np.full(LANES, x, np.float32))[0]
    assert abs(got - exact) <= 2 * np.spacing(np.float32(abs(exact)))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_near_multiples_of_a_quarter_of_pi(name: str) -> None:
    """Where the polynomials end, up to where the parts of pi/2 are too few."""
    n = np.arange(1, 2**20 * 4 / math.pi, 7)
    x = (n * math.pi / 4).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(2**20))])
    exact, bound = FUNCTIONS[name]
    assert ulps(compiled(name)(x), in_float64(exact, x)).max() <= bound


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_a_large_angle_changes_no_other(name: str) -> None:
    x = np.linspace(-1000, 1000, 64 * LANES).astype(np.float32)
    far = x.copy()
    far[::LANES] = [3e6, -1e30, math.inf, math.nan] * 16
    got, alone = compiled(name)(far), compiled(name)(x)
    there = np.arange(x.size) % LANES == 0
    np.testing.assert_array_equal(got[~there], alone[~there])
    assert ulps(got[there], in_float64(FUNCTIONS[name][0], far[there])).max() <= 1


@pytest.mark.parametrize("name", ["sin", "tan", "atan", "asin", "sinh", "asinh", "atanh"])
def test_zeros_keep_their_sign(name: str) -> None:
    got = compiled(name)(np.array([0.0, -0.0], np.float32))
    assert not got.any()
    assert np.signbit(got).tolist() == [False, True]


# The activations. Where one multiplies x by a factor that cancels (gelu's 1 + erf far below zero), no bound
# relative to the result holds, in torch neither; the error is then a few units in the last place of x.
ACTIVATIONS: dict[str, tuple[Callable[..., Array], dict[str, Any], float]] = {
    "relu": (ORACLE["relu"], {}, 0.0),
    "relu6": (ORACLE["relu6"], {}, 0.0),
    "leaky_relu": (ORACLE["leaky_relu"], {"negative_slope": 0.25}, 0.5),
    "elu": (ORACLE["elu"], {"alpha": 1.0}, 1.5),
    "sigmoid": (ORACLE["sigmoid"], {}, 3.0),
    "tanh": (np.tanh, {}, 2.0),
    "hardsigmoid": (lambda x: ORACLE["hardsigmoid"](x, alpha=1 / 6, beta=0.5), {}, math.inf),
    "hardswish": (ORACLE["hardswish"], {}, math.inf),
    "silu": (lambda x: ORACLE["silu"](x, beta=1.0), {}, math.inf),
    "gelu_none": (ORACLE["gelu"], {"approximate": "none"}, math.inf),
    "gelu_tanh": (ORACLE["gelu"], {"approximate": "tanh"}, math.inf),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_error(name: str) -> None:
    function, attrs, bound = ACTIVATIONS[name]
    x = floats()[:: 8 if "gelu" in name else 1]
    got = run_activation(name, x, *(a for a in attrs.values() if isinstance(a, float)))
    exact = in_float64(function, x, **attrs)
    if math.isfinite(bound):
        assert ulps(got, exact).max() <= bound
        return
    # hardsigmoid rounds x + 3 once: to float32 near 3; the others multiply x by a factor at most about 1
    size = np.ones_like(x) if name == "hardsigmoid" else np.minimum(np.abs(x), np.float32(1e38))
    unit = np.maximum(np.spacing(size).astype(np.float64), SMALLEST)
    assert (np.abs(got - exact) <= 2.5 * unit).all()


@pytest.mark.parametrize("name", ["silu", "swish"])
def test_products_with_a_sigmoid_relative_to_the_result(name: str) -> None:
    x = floats()[(floats() > -87) & (np.abs(floats()) > 2.0**-125)]  # else sigmoid or product is subnormal
    error = ulps(run_activation(name, x, 1.0), in_float64(ORACLE["silu"], x, beta=1.0))
    assert (error <= 3.0 + 0.05 * np.maximum(-x, 0)).all()


def test_any_nan_stays_one() -> None:
    x = np.array([0x7FC00000, 0x7FC00001, 0xFFC001FF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32)
    for name in ACTIVATIONS:
        assert np.isnan(run_activation(name, x.view(np.float32), 1.0)).all(), name


@pytest.mark.parametrize(
    ("name", "a", "minus_inf", "minus_huge", "huge"),
    [
        ("relu", 0.0, 0.0, 0.0, 3e38),
        ("relu6", 0.0, 0.0, 0.0, 6.0),
        ("leaky_relu", 0.5, -np.inf, -1.5e38, 3e38),
        ("elu", 1.5, -1.5, -1.5, 3e38),
        ("sigmoid", 0.0, 0.0, 0.0, 1.0),
        ("tanh", 0.0, -1.0, -1.0, 1.0),
        ("hardsigmoid", 0.0, 0.0, 0.0, 1.0),
        ("hardswish", 0.0, np.nan, 0.0, 3e38),
        ("silu", 0.0, np.nan, 0.0, 3e38),
        ("gelu_none", 0.0, np.nan, 0.0, 3e38),
        ("gelu_tanh", 0.0, np.nan, 0.0, 3e38),
    ],
)
def test_activation_special_values(
    name: str, a: float, minus_inf: float, minus_huge: float, huge: float
) -> None:
    x = np.array([-np.inf, -3e38, 3e38, np.inf, np.nan], np.float32)
    got = run_activation(name, x, a)
    high = np.inf if huge > 6 else huge
    want = np.array([minus_inf, minus_huge, huge, high, np.nan], np.float32)
    np.testing.assert_array_equal(got, want)
