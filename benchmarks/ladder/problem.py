"""The one convolution that every step of the ladder computes, and the forms of its operands."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.kernels.cpu.vector.simd import LANES
from bslite.spec import Array

WIDTH = 2  # vector registers of a panel
NR = WIDTH * LANES  # channels of a panel
Call = Callable[[], Array]  # computes the problem; what a step's ``prepare(problem, threads)`` gives


@dataclass(frozen=True)
class Problem:
    """3x3, stride 1, padding 1, on one image ``[side, side, channels]``; a layer of ResNet-50 unless told."""

    side: int = 14
    channels: int = 256  # in
    filters: int = 256  # channels out; a multiple of a panel, `NR`
    seed: int = 0

    def __post_init__(self) -> None:
        assert self.filters % NR == 0, f"the steps have no code for part of a panel of {NR}"

    @property
    def pixels(self) -> int:
        """Rows of the result."""
        return self.side**2

    @property
    def depth(self) -> int:
        """Terms of each sum."""
        return 9 * self.channels

    @property
    def flops(self) -> float:
        """Of one convolution; a multiply-add is two."""
        return 2.0 * self.pixels * self.depth * self.filters

    @functools.cached_property
    def image(self) -> Array:
        """``[side + 2, side + 2, channels]``, zeros around it."""
        padded = aligned(self.side + 2, self.side + 2, self.channels)
        inside = np.random.default_rng(self.seed).standard_normal((self.side, self.side, self.channels))
        padded[1:-1, 1:-1] = inside
        return padded

    @functools.cached_property
    def columns(self) -> Array:
        """``[pixels, 3 * 3 * channels]``: im2col, the image nine times over. Its cost is not counted."""
        windows = np.lib.stride_tricks.sliding_window_view(self.image, (3, 3), axis=(0, 1))
        columns = aligned(self.pixels, self.depth)
        columns[:] = windows.transpose(0, 1, 3, 4, 2).reshape(self.pixels, self.depth)
        return columns

    @functools.cached_property
    def weights(self) -> Array:
        """``[3 * 3 * channels, filters]``."""
        weights = aligned(self.depth, self.filters)
        weights[:] = np.random.default_rng(self.seed + 1).standard_normal(weights.shape) / math.sqrt(
            self.depth
        )
        return weights

    @functools.cached_property
    def panels(self) -> Array:
        """The weights as ``[filters / NR][3 * 3 * channels][NR]``: each panel is read front to back."""
        panels = aligned(self.filters // NR, self.depth, NR)
        panels[:] = self.weights.reshape(self.depth, -1, NR).transpose(1, 0, 2)
        return panels

    @functools.cached_property
    def offsets(self) -> Any:
        """Bytes from a window's first pixel to each of its three lines of ``3 * channels`` floats."""
        return np.arange(3, dtype=np.int64) * self.image.strides[0]

    @functools.cached_property
    def exact(self) -> Array:
        """The answer in float64, by NumPy."""
        return self.columns.astype(np.float64) @ self.weights.astype(np.float64)

    def result(self) -> Array:
        """Memory for an answer."""
        return aligned(self.pixels, self.filters)

    def error(self, answer: Array) -> float:
        """Relative L2 distance of an answer from the exact one."""
        return float(np.linalg.norm(answer - self.exact) / np.linalg.norm(self.exact))

    @property
    def bound(self) -> float:
        """What rounding may do to sums this long at worst: a wrong term is a thousand times as much."""
        return self.depth * 2.0**-24


def aligned(*shape: int) -> Array:
    """Zeros that start on a cache line, with a little room behind them."""
    size = math.prod(shape)
    room = np.zeros(size + 32, np.float32)
    start = (-room.ctypes.data % 64) // 4
    return room[start : start + size].reshape(shape)


def address(array: Array) -> int:
    """Where its memory starts."""
    return int(array.ctypes.data)


def on_arrays(multiply: Callable[[Array, Array, Array], None]) -> Callable[[Problem, int], Call]:
    """The ``prepare`` of a step whose ``multiply`` takes columns, weights and result as they are."""

    def prepare(p: Problem, threads: int) -> Call:
        a, b, c = p.columns, p.weights, p.result()

        def call() -> Array:
            multiply(a, b, c)
            return c

        return call

    return prepare


def by_address(
    compute: Callable[..., None], sizes: tuple[int, ...], operands: tuple[Array, ...], result: Array,
    *others: Array,
) -> Call:  # fmt: skip
    """A call of ``compute`` with the sizes, then the addresses of operands, result and others."""

    def call() -> Array:
        compute(*sizes, *map(address, (*operands, result, *others)))
        return result

    return call
