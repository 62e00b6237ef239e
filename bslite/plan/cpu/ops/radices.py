"""How transforms are taken apart: into passes of small transforms, or into a matrix of two lengths."""

import functools
import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.fourier import RADICES
from bslite.ops.fourier import LARGEST_PRIME, prime_factors

#: Cycles that a pass of a radix takes for a point of one register, estimated from its operations: two a
#: cycle, or a store of both parts.
CYCLES = {2: 4.0, 3: 5.5, 4: 4.5, 5: 7.5, 7: 10.0, 8: 6.0}
SHUFFLES = 16.0  # of a point of one register, that is transposed and turned between the passes
WASTE = 1.5  # of lanes, up to which long rows are matrices


class Matrix(NamedTuple):
    """Points taken as ``high`` rows of ``low``."""

    high: int
    low: int


@functools.cache
def radices_of(points: int, registers: int) -> tuple[int, ...]:
    """The radices whose product is ``points``. Eight points and their work take 32 registers."""
    primes = prime_factors(points)
    twos, found = primes.count(2), list[int]()
    if registers >= 32:
        eights = next((n for n in range(twos // 3, -1, -1) if (twos - 3 * n) % 2 == 0), 0)
        found += [8] * eights
        twos -= 3 * eights
    return (*found, *[4] * (twos // 2), *[2] * (twos % 2), *primes[primes.count(2) :])


def cycles_of(points: int, registers: int) -> float:
    """Cycles of the passes of one register's worth of signals, which have radices."""
    return points * sum(CYCLES.get(r, 2.0 * r + 8) for r in radices_of(points, registers))


@functools.cache
def padded_of(points: int, registers: int) -> int:
    """The length of the transforms that convolve ``points`` points with a chirp; 0: they have radices."""
    if max(prime_factors(points), default=1) <= LARGEST_PRIME:
        return 0
    least = 2 * points - 1
    twos = 1 << least.bit_length()
    lengths = {twos >> shift for shift in range(6)}
    near = [n * odd for n in lengths for odd in (1, 3, 5, 7, 9, 15, 21, 25, 27) if least <= n * odd <= twos]
    return min(near, key=lambda n: cycles_of(n, registers))


@functools.cache
def as_matrix(points: int, lanes: int, registers: int) -> Matrix | None:
    """The matrix whose columns, then rows, are transformed in the least time; None where points are so few,
    or have such factors, that many lanes would be idle.
    """
    if points < lanes * lanes or padded_of(points, registers):
        return None
    best: tuple[float, Matrix] | None = None
    small = [n for n in range(2, math.isqrt(points) + 1) if points % n == 0]
    for high in sorted({*small, *(points // n for n in small)}):
        low = points // high
        over_low, over_high = -(-low // lanes), -(-high // lanes)
        if over_low * over_high * lanes * lanes > WASTE * points:
            continue
        cycles = (
            over_low * cycles_of(high, registers)
            + over_high * cycles_of(low, registers)
            + over_low * high * SHUFFLES
        )
        if best is None or cycles < best[0]:
            best = cycles, Matrix(high, low)
    return best[1] if best else None


assert set(CYCLES) == set(RADICES)
