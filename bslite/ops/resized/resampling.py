"""The input lines and weights of each output line of a resized axis. Positions are float64."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.ops.values import Value


class Tap(NamedTuple):
    """One input line and its weight."""

    line: int
    weight: float


#: For each output line its taps, equally many.
Taps = Sequence[Sequence[Tap]]


class Axis(NamedTuple):
    """An axis to resize: its sizes, the scale, and the part that is cropped out."""

    have: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    def position(self, i: int, coordinates: str) -> float:
        """The input position of output index ``i``; by the unrounded length where corners count."""
        last, length = self.have - 1, self.have * self.scale
        if coordinates == "asymmetric":
            return i / self.scale
        if coordinates == "align_corners":
            return 0.0 if length == 1 else i * last / (length - 1)
        if coordinates == "pytorch_half_pixel" and length == 1:
            return 0.0
        if coordinates == "tf_crop_and_resize":
            if length == 1:
                return (self.start + self.end) * last / 2
            return self.start * last + i * (self.end - self.start) * last / (length - 1)
        shift = self.have / 2 * (1 - self.out / length) if coordinates == "half_pixel_symmetric" else 0.0
        return shift + (i + 0.5) / self.scale - 0.5


def nearest(position: float, rounding: str) -> int:
    """The whole position that ``rounding`` chooses for ``position``."""
    if rounding == "round_prefer_floor":
        return math.ceil(position - 0.5)
    if rounding == "round_prefer_ceil":
        return math.floor(position + 0.5)
    return math.floor(position) if rounding == "floor" else math.ceil(position)


def weight(distance: float, mode: str, a: float) -> float:
    """The weight of a line at this distance: a triangle, or Keys' cubic."""
    d = abs(distance)
    if mode == "linear":
        return max(1 - d, 0.0)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def taps(axis: Axis, attrs: Mapping[str, Any]) -> list[list[Tap]]:
    """The taps of each output line, equally many for all; a single one has weight 1."""
    mode, last = attrs["mode"], axis.have - 1
    found = []
    for i in range(axis.out):
        at = axis.position(i, attrs["coordinates"])
        if mode == "nearest":
            found.append([Tap(min(max(nearest(at, attrs["rounding"]), 0), last), 1.0)])
            continue
        narrow = min(axis.scale, 1.0) if attrs["antialias"] else 1.0
        if mode == "linear" and narrow == 1:
            at = max(at, 0.0)
        first = math.floor(-(1 if mode == "linear" else 2) / narrow) + 1
        lines = range(math.floor(at) + first, math.floor(at) + 2 - first)
        weights = [weight((line - at) * narrow, mode, attrs["cubic_a"]) for line in lines]
        if attrs["exclude_outside"]:
            weights = [w if 0 <= line <= last else 0.0 for w, line in zip(weights, lines, strict=True)]
        total = sum(weights) if attrs["exclude_outside"] or narrow < 1 else 1.0
        total = total or 1.0  # all of it lies outside
        found.append(
            [Tap(min(max(line, 0), last), w / total) for w, line in zip(weights, lines, strict=True)]
        )
    return found


def outside(axis: Axis, coordinates: str) -> Sequence[int]:
    """Output indices that lie beyond the input: some first and some last ones."""
    return [i for i in range(axis.out) if not 0 <= axis.position(i, coordinates) <= axis.have - 1]


def nearest_taps(have: int, out: int, scale: float | None) -> list[list[Tap]]:
    """torch's rule for nearest upsampling: products in float32; a doubling is exact."""
    ratio = 1 / scale if scale and out not in (have, 2 * have) else have / out
    places = (float(np.float32(i * float(np.float32(ratio)))) for i in range(out))
    return [[Tap(min(math.floor(place), have - 1), 1.0)] for place in places]


def linear_taps(have: int, out: int, scale: float | None, align_corners: bool) -> list[list[Tap]]:
    """torch's rule for linear upsampling, positions in float64. An axis of the same size is unchanged."""
    if out == have:
        return [[Tap(i, 1.0), Tap(i, 0.0)] for i in range(out)]
    found = []
    for i in range(out):
        if align_corners:
            position = i * ((have - 1) / (out - 1)) if out > 1 else 0.0
        else:
            position = max((i + 0.5) * (1 / scale if scale else have / out) - 0.5, 0.0)
        low = min(math.floor(position), have - 1)
        part = min(max(position - low, 0.0), 1.0)
        found.append([Tap(low, 1 - part), Tap(min(low + 1, have - 1), part)])
    return found


def places(x: Sequence[int], y: Sequence[int], attrs: Mapping[str, Any]) -> dict[int, Axis]:
    """The axes that `resize` of shape ``x`` to ``y`` goes along, the one that shrinks most first."""
    found = {}
    for i, axis in enumerate(a % len(x) for a in attrs["axes"]):
        scale = attrs["scales"][i] if attrs["scales"] else y[axis] / x[axis]
        part = (attrs["roi"][i], attrs["roi"][i + len(attrs["axes"])]) if attrs["roi"] else (0.0, 1.0)
        found[axis] = Axis(x[axis], y[axis], scale, *part)
    return dict(sorted(found.items(), key=lambda item: item[1].out / item[1].have))


def transposed(grad: Value, axis: int, table: Taps, have: int) -> Value:
    """What each of ``have`` input lines gets back from the lines that it is part of: a product."""
    rows = np.zeros((len(table), have))
    for i, line in enumerate(table):
        for tap in line:
            rows[i, tap.line] += tap.weight
    weights, last = grad.tape.constant(rows), len(grad.shape) - 1
    if last == 0:
        return grad.reshape(1, len(table)).matmul(weights).reshape(have)
    if axis == last - 1:
        return weights.transposed().matmul(grad)
    order = [*range(axis), last, *range(axis + 1, last), axis] if axis < last else [*range(last + 1)]
    return grad.permute(*order).matmul(weights).permute(*order)
