"""The machine's unit for tiles of bfloat16, tried once a process before any plan uses it."""

import ctypes
import functools
import os
import warnings

import numpy as np

from bslite.engines.cpu.constants import split
from bslite.kernels.contracts.cpu.tiles import BLOCK, COLS, LINE, PAIR, PARTS, ROWS, SUMS, TERMS, TILE
from bslite.spec import Array

OFF = "BSLITE_TILES"  # the environment variable that turns the unit off, if it is "0"
#: Relative L2 error of six products: about 1e-7. Without the last parts it is 3e-6.
MOST = 1e-6


def trusted() -> bool:
    """Whether plans may use the unit: there is one, nobody has turned it off, and products of matrices by the
    microkernel are as exact as they should be. The first call says so by a warning if they are not.
    """
    first = not _error.cache_info().currsize
    error = _error()
    if error is None:
        return False
    if not error <= MOST and first:
        warnings.warn(
            f"this machine's unit for tiles of bfloat16 (AMX) multiplies with an error of {error:.1e}: "
            "bslite does not use it. Please report it",
            RuntimeWarning,
            stacklevel=2,
        )
    return error <= MOST


@functools.cache
def _error() -> float | None:
    """That of the trial; None if there is no unit, or it is turned off."""
    from bslite.kernels.cpu.vector.target import has_tiles

    return None if os.environ.get(OFF) == "0" or not has_tiles() else trial()


def trial() -> float:
    """The relative error of ``A[32, 32] @ (B0[32, 32] + B1[32, 32])`` by six products, against float64."""
    from bslite.kernels.cpu.tiles.peak import A_AT, BYTES, PRODUCTS, STEPS, tile_peak
    from bslite.kernels.cpu.tiles.sweep import tile_sweep

    drawn = np.random.default_rng(0)
    a = drawn.standard_normal((2 * ROWS, TERMS), np.float32)
    b = drawn.standard_normal((STEPS, TERMS, 2 * COLS), np.float32)
    memory = np.zeros(BYTES + LINE, np.uint8)
    memory = memory[-memory.ctypes.data % LINE :][:BYTES]
    parts = PARTS[PRODUCTS]
    behind = A_AT + 2 * ROWS * parts * LINE
    memory[A_AT:behind].view(np.uint16).reshape(2 * ROWS, parts, TERMS)[:] = np.stack([*split(a)], 1)
    tiles = memory[behind : behind + STEPS * parts * 2 * TILE].view(np.uint16)
    tiles.reshape(STEPS, parts, 2, PAIR, COLS, 2)[:] = np.stack([_pairs(part) for part in split(b)], 1)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(tile_peak.address)
    call(tile_sweep(PRODUCTS, parts).address, memory.ctypes.data, 1)
    made = memory[SUMS : SUMS + BLOCK].view(np.float32).reshape(2 * ROWS, 2 * COLS)
    exact = a.astype(np.float64) @ b.astype(np.float64).sum(0)
    return float(np.linalg.norm(made - exact) / np.linalg.norm(exact))


def _pairs(b: Array) -> Array:
    """``[steps, terms, columns]`` as ``[steps, tiles, pairs of terms, columns, terms]``."""
    steps = b.shape[0]
    return b.reshape(steps, PAIR, 2, 2, COLS).transpose(0, 3, 1, 4, 2)
