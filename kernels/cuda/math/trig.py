"""sin, cos and tan of float32, computed in float64: libdevice's keep an array in local memory.

The argument is reduced to ``r`` in [-pi/4, pi/4] and the number of quarter turns. Below 2**20, pi/2 in three
parts is subtracted (Cody and Waite). Above, ``x = m * 2**e`` with an integer m of 24 bits, and a table holds
``2**e * 2/pi`` modulo 4 (Payne and Hanek's idea, with a row for each exponent in place of their bits): the
part of 28 bits times m is exact, and so is its remainder modulo 4. Taylor's series to r**13 then err by less
than 1e-11.
"""

from fractions import Fraction

import numpy as np

from bslite.kernels.cuda.math.libm import as_int
from bslite.kernels.cuda.runtime.device import device_function

f = np.float32
#: pi to more than 1,000 bits, from its decimals.
_PI = Fraction(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    "2148086513282306647093844609550582231725359408128481117450284102701938521105559644622948954930381964428"
)
_FIRST = 20 - 23  # exponent e of the table's least argument
_BITS = 28


def _cut(value: Fraction, bits: int) -> Fraction:
    """Return ``value`` cut to a multiple of ``2**-bits``."""
    return Fraction(int(value * 2**bits), 2**bits)


def _turns() -> np.ndarray:
    """Return ``2**e * 2/pi`` modulo 4 for each exponent e: 26 bits after the point, and the rest."""
    rows = []
    for e in range(_FIRST, 128 - 23):
        turn = Fraction(2) ** e * 2 / _PI % 4
        high = _cut(turn, _BITS - 2)
        rows.append([float(high), float(turn - high)])
    return np.array(rows)


TURNS = _turns()
_A = float(_cut(_PI / 2, 30))
_B = float(_cut(_PI / 2 - Fraction(_A), 60))
_C = float(_PI / 2 - Fraction(_A) - Fraction(_B))
_EACH = float(2 / _PI)
_HALF_PI = float(_PI / 2)
_ONES = 1.5 * 2.0**52  # rounds to the nearest integer: the last place of the sum is 1


@device_function
def reduced(x):
    """Return ``(r, quarters)``: x less quarters * pi/2, quarters modulo 4. NaN for infinities and NaN."""
    bits = as_int(x) & np.int32(0x7FFFFFFF)
    if bits < np.int32(0x49800000):  # |x| < 2**20
        wide = np.float64(x)
        n = (wide * _EACH + _ONES) - _ONES
        return ((wide - n * _A) - n * _B) - n * _C, np.int64(n) & 3
    if bits >= np.int32(0x7F800000):
        return np.float64(x) - np.float64(x), np.int64(0)
    row = (bits >> 23) - np.int32(150 + _FIRST)
    whole = np.float64((bits & np.int32(0x7FFFFF)) | np.int32(0x800000))
    turn = whole * TURNS[row, 0]
    turn -= 4.0 * np.float64(np.int64(turn * 0.25))
    turn += whole * TURNS[row, 1]
    n = (turn + _ONES) - _ONES
    r, quarters = (turn - n) * _HALF_PI, np.int64(n)
    if x < f(0.0):
        return -r, (-quarters) & 3
    return r, quarters & 3


@device_function
def sine(r):
    """Return the sine of r, |r| <= pi/4."""
    z = r * r
    p = 1.0 / 6227020800
    p = p * z - 1.0 / 39916800
    p = p * z + 1.0 / 362880
    p = p * z - 1.0 / 5040
    p = p * z + 1.0 / 120
    p = p * z - 1.0 / 6
    return r + r * z * p


@device_function
def cosine(r):
    """Return the cosine of r, |r| <= pi/4."""
    z = r * r
    p = 1.0 / 479001600
    p = p * z - 1.0 / 3628800
    p = p * z + 1.0 / 40320
    p = p * z - 1.0 / 720
    p = p * z + 1.0 / 24
    p = p * z - 0.5
    return 1.0 + z * p


@device_function
def sin(x):
    """Return the sine of x."""
    r, quarters = reduced(x)
    value = cosine(r) if quarters & 1 else sine(r)
    if x == f(0.0):
        return x  # -0 stays -0
    return f(-value) if quarters & 2 else f(value)


@device_function
def cos(x):
    """Return the cosine of x."""
    r, quarters = reduced(x)
    value = sine(r) if quarters & 1 else cosine(r)
    return f(-value) if (quarters + 1) & 2 else f(value)


@device_function
def tan(x):
    """Return the tangent of x."""
    r, quarters = reduced(x)
    s, c = sine(r), cosine(r)
    if x == f(0.0):
        return x
    return f(-c / s) if quarters & 1 else f(s / c)
