"""Powers, angles and remainders of two registers: error bounds and special values, compiled."""

import ctypes
import math

import numpy as np
import pytest
from support.check import Array
from support.ulps import ulps

from bslite.kernels.cpu.math import vecarc, vecmod, vecpow
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.vector.memory import load, store
from bslite.kernels.cpu.vector.simd import BYTES, LANES

PAIRS = {
    "power": vecpow.power, "atan2": vecarc.atan2, "fmod": vecmod.fmod, "remainder": vecmod.remainder,
}  # fmt: skip


def run_pairs(name: str, x: Array, y: Array) -> Array:
    """A vector function of two values."""
    function = PAIRS[name]

    def apply(x, y, z, count):  # type: ignore[no-untyped-def]
        for i in range(count // LANES):
            store(z + i * BYTES, function(load(x + i * BYTES), load(y + i * BYTES)))

    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(Kernel(apply, f"test_vecmath_{name}", 4).address)
    size = -(-x.size // LANES) * LANES
    given = [np.ones(size, np.float32) for _ in range(3)]
    given[0][: x.size], given[1][: y.size] = x, y
    call(*(g.ctypes.data for g in given), size)
    return given[2][: x.size]


def test_power_at_every_pair_of_special_values() -> None:
    """C99, Annex F.10.4.4: as the C library's pow, which Python calls."""
    some = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.5, 1e-40, 1e30, 16777216.0, 33554432.0, math.inf]
    values = np.array([*some, *(-v for v in some), math.nan], np.float32)
    x, y = (v.reshape(-1) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
        got = run_pairs("power", x, y)
        assert ulps(got, want).max() <= 1.0
        nearest = want.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest))
    zeros = nearest == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(nearest[zeros]))


def test_power_error() -> None:
    rng = np.random.default_rng(0)
    x = np.exp2(rng.uniform(-149, 128, 1 << 17)).astype(np.float32)
    y = (rng.uniform(-149, 128, x.size) / np.log2(np.maximum(x, 1e-44))).astype(np.float32)
    with np.errstate(all="ignore"):
        assert (
            ulps(run_pairs("power", x, y), np.power(x.astype(np.float64), y.astype(np.float64))).max() <= 0.6
        )


def test_angles_at_every_pair_of_special_values() -> None:
    """C99, Annex F.10.1.4: as the C library's atan2, which NumPy calls."""
    some = [0.0, 1e-45, 1e-38, 0.5, 1.0, 3.0, 1e30, 3e38, math.inf]
    values = np.array([*some, *(-v for v in some), math.nan], np.float32)
    y, x = (v.reshape(-1) for v in np.meshgrid(values, values))
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    got = run_pairs("atan2", y, x)
    assert ulps(got, want).max() <= 3.0
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])


def test_angle_error() -> None:
    rng = np.random.default_rng(0)
    y, x = (np.exp2(rng.uniform(-30, 30, 1 << 17)) * rng.choice([-1, 1], 1 << 17) for _ in range(2))
    y, x = y.astype(np.float32), x.astype(np.float32)
    assert ulps(run_pairs("atan2", y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64))).max() <= 3.0


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_are_exact(name: str) -> None:
    """Quotients of all sizes, and special values; whole multiples give a zero of the right sign."""
    rng = np.random.default_rng(0)
    some = [0.0, 1e-45, 0.3, 1.0, 1.5, 7.0, 1e30, math.inf]
    values = np.array([*some, *(-v for v in some), math.nan], np.float32)
    x, z = (v.reshape(-1) for v in np.meshgrid(values, values))
    z = np.concatenate([z, rng.standard_normal(1 << 15).astype(np.float32), np.full(256, 0.5, np.float32)])
    sizes = np.exp2(rng.uniform(-10, 30, 1 << 15)) * rng.standard_normal(1 << 15)
    x = np.concatenate([x, sizes.astype(np.float32), np.arange(-64, 64, 0.5, np.float32)])
    with np.errstate(all="ignore"):
        want = np.fmod(x, z)  # exact
        if name == "remainder":
            want = np.where((want != 0) & ((want < 0) != (z < 0)), want + z, want)
    got = run_pairs(name, x, z)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(want)[got == 0])
