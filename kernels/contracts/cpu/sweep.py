"""Microkernels that steps call along a line of output: which of the compiled ones."""

from __future__ import annotations

from dataclasses import dataclass

from bslite.kernels.contracts.record import Variant


@dataclass(frozen=True)
class GemmSweep(Variant):
    """GEMM tiles of at most ``most`` rows by ``vecs`` vector registers.

    ``fetches``: while a tile computes, it fetches the panel that a later tile reads. Without, the hardware
    fetches, which is enough where weights are one long stream.
    """

    vecs: int
    most: int
    fetches: bool = True


@dataclass(frozen=True)
class DepthwiseSweep(Variant):
    """Depthwise tiles of at most ``most`` rows, for filters ``taps`` wide moved by ``stride``; both 0: any.

    ``deep``: for filters of several planes.
    """

    taps: int
    stride: int
    most: int
    deep: bool = False
