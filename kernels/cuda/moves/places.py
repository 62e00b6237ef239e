"""Places of elements: division of unsigned 32-bit numbers, walks by strides, indices counted from the end."""

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.flag import raise_flag

u = np.uint32


@device_function
def split(i, n):
    """Return ``i // n, i % n`` in 32 bits."""
    q = u(i // u(n))
    return q, u(i - u(q * u(n)))


@device_function
def strided(axes, i, start, n0, n1, n2, n3, n4, s0, s1, s2, s3, s4, s5):
    """Return the place of element ``i`` of ``axes`` axes; axis 0 is innermost, ``n0`` elements ``s0`` apart.

    Coordinates are unsigned 32-bit numbers (plain division); their products with strides have 64 bits.
    """
    at = np.int64(start)
    last = s0
    if axes > 1:
        i, k = split(i, n0)
        at += k * s0
        last = s1
    if axes > 2:
        i, k = split(i, n1)
        at += k * s1
        last = s2
    if axes > 3:
        i, k = split(i, n2)
        at += k * s2
        last = s3
    if axes > 4:
        i, k = split(i, n3)
        at += k * s3
        last = s4
    if axes > 5:
        i, k = split(i, n4)
        at += k * s4
        last = s5
    return np.uint64(at + i * last)


@device_function
def wrapped(index, size, flag):
    """Return ``index`` counted from 0; one out of range becomes 0 and raises the flag."""
    at = index + size if index < 0 else index
    if at < 0 or at >= size:
        raise_flag(flag, np.int64(index))
        at = np.int32(0)
    return np.int32(at)
