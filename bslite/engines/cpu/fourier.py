"""The CPU's recipes for Fourier transforms: numbers on the unit circle, rounded once."""

from collections.abc import Sequence

import numpy as np

from bslite.engines.common.recipes import Array, recipe
from bslite.kernels.contracts.cpu.fourier import RADICES


def _turned(parts: Array, whole: int) -> Array:
    """``exp(-2 pi i parts / whole)`` as pairs; exact for quarters of a turn."""
    parts = parts % whole
    angles = 2 * np.pi / whole * parts
    waves = np.stack([np.cos(angles), -np.sin(angles)], -1)
    waves[4 * parts % whole == 0] = np.rint(waves[4 * parts % whole == 0]) + 0.0
    return waves


@recipe("twiddles")
def _twiddles(params: Sequence[Array], points: int, radices: Sequence[int]) -> Array:
    """For each pass of ``m`` times ``r`` points: ``exp(-2 pi i p j / (m r))`` for 0 < p < m and 0 < j < r; of
    a radix that the kernels take by loops, first cosine and sine of each part of a turn.
    """
    found = [np.zeros(0)]
    for r in radices:
        if r not in RADICES:
            angles = 2 * np.pi / r * np.arange(r)
            found.append(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(-1))
        m = points // r
        found.append(_turned(np.outer(np.arange(1, m), np.arange(1, r)), points).reshape(-1))
        points = m
    return np.concatenate(found).astype(np.float32)


@recipe("half_twiddles")
def _half_twiddles(params: Sequence[Array], length: int, count: int, lanes: int) -> Array:
    """``exp(-2 pi i k / length)`` for k < count: pairs, or planes of whole registers of ``lanes``."""
    waves = _turned(np.arange(count), length)
    if lanes:
        waves = np.pad(waves, ((0, -count % lanes), (0, 0))).T
    return np.ascontiguousarray(waves, np.float32)


@recipe("twiddles_between")
def _twiddles_between(params: Sequence[Array], high: int, low: int, lanes: int, scale: float) -> Array:
    """``scale * exp(-2 pi i j l / (high low))`` of column l, row j, as ``[low / lanes][high][2][lanes]``."""
    waves = scale * _turned(np.outer(np.arange(low), np.arange(high)), high * low)
    waves = np.pad(waves, ((0, -low % lanes), (0, 0), (0, 0))).reshape(-1, lanes, high, 2)
    return np.ascontiguousarray(waves.transpose(0, 2, 3, 1), np.float32)


@recipe("chirp")
def _chirp(params: Sequence[Array], points: int, padded: int) -> Array:
    """``c[n] = exp(-pi i n**2 / points)``, then the transform of its conjugate on both sides of zero over
    ``padded`` points, divided by their number.
    """
    chirp = _turned(np.arange(points, dtype=np.int64) ** 2, 2 * points)
    chirp = chirp[:, 0] + 1j * chirp[:, 1]
    both = np.zeros(padded, complex)
    both[:points] = chirp.conj()
    both[padded - points + 1 :] = chirp[:0:-1].conj()
    pairs = np.concatenate([chirp, np.fft.fft(both) / padded])
    return np.stack([pairs.real, pairs.imag], -1).astype(np.float32)
