"""Sampling of an image or volume at positions: a position's neighbours are computed once for all channels."""

import numpy as np

from bslite.kernels.contracts.cuda.windows import GridSample, GridSampleVariant
from bslite.kernels.contracts.sampling import Beyond, Interpolation
from bslite.kernels.cuda.math.libm import fma, times
from bslite.kernels.cuda.moves.places import split
from bslite.kernels.cuda.runtime.device import SIMULATED, cuda, device_function, libdevice
from bslite.kernels.cuda.runtime.kernel import kernel

u = np.uint32
f = np.float32
NEAREST, CUBIC = Interpolation.NEAREST.value, Interpolation.CUBIC.value
ZEROS, REFLECTION = Beyond.ZEROS.value, Beyond.REFLECTION.value
floor, rint, fmod = (
    (np.floor, np.rint, np.fmod) if SIMULATED else (libdevice.floor, libdevice.rint, libdevice.fmod)
)


@device_function
def offset_of(at, size, stride):
    """Return the place of the element at an integer position, -1 if it is outside or NaN."""
    return np.int32(np.int32(at) * stride) if at >= 0.0 and at < size else np.int32(-1)


@device_function
def cubic(distance):
    """Return Keys' kernel with a = -3/4."""
    d = abs(distance)
    if d <= 1.0:
        return (1.25 * d - 2.25) * d * d + 1.0
    return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0


def _around(mode: int, padding: int, align: int, axes: int):
    """Return a device function that finds the neighbours of a position along one axis."""

    @device_function
    def padded(at, size):
        """Return the position moved into the image by the padding; a NaN is handled as in torch."""
        if padding == ZEROS:
            return at
        if padding == REFLECTION:
            least = 0.0 if align else -0.5
            span = np.float64(size - 1) if align else np.float64(size)
            away = abs(at - least)
            if span == 0.0:
                at = away * 0.0
            else:
                turns, rest = floor(away / span), fmod(away, span)
                at = (rest if fmod(turns, 2.0) == 0.0 else span - rest) + least
        if at != at:
            return 0.0 if axes == 2 else size - 1.0
        return min(max(at, 0.0), size - 1.0)

    @device_function
    def tap(whole, at, size, stride, near, weights, axis, k):
        near[axis, k] = offset_of(padded(whole, size), size, stride)
        weights[axis, k] = f(cubic(at - whole))

    @device_function
    def around(g, size, stride, near, weights, axis):
        """Write offsets (-1: outside) and weights of the elements around ``g`` into rows ``axis``."""
        wide = np.float64(g)
        at = (wide + 1.0) / 2.0 * (size - 1) if align else ((wide + 1.0) * size - 1.0) / 2.0
        if mode == CUBIC:
            low = floor(at)
            # written out: the compiler unrolls no loop of this length, and the arrays must be registers
            tap(low - 1.0, at, size, stride, near, weights, axis, 0)
            tap(low, at, size, stride, near, weights, axis, 1)
            tap(low + 1.0, at, size, stride, near, weights, axis, 2)
            tap(low + 2.0, at, size, stride, near, weights, axis, 3)
        elif mode == NEAREST:
            near[axis, 0] = offset_of(rint(padded(at, size)), size, stride)
            weights[axis, 0] = f(1.0)
        else:
            at = padded(at, size)
            low = floor(at)
            near[axis, 0] = offset_of(low, size, stride)
            near[axis, 1] = offset_of(low + 1.0, size, stride)
            weights[axis, 0] = f(1.0 - (at - low))
            weights[axis, 1] = f(at - low)

    return around


@kernel(
    GridSample,
    registers=80,
    blocks=3,
    samples=[
        GridSampleVariant(256, 32, axes=2, mode=Interpolation.LINEAR, padding=Beyond.ZEROS, align=0),
        GridSampleVariant(256, 32, axes=2, mode=Interpolation.CUBIC, padding=Beyond.REFLECTION, align=1),
        GridSampleVariant(256, 4, axes=3, mode=Interpolation.LINEAR, padding=Beyond.BORDER, align=0),
    ],
)
def grid_sample(threads: int, across: int, axes: int, mode: int, padding: int, align: int):
    """Compute ``y[n, c, p] = sum of weight * x[n, c, around]``, channels contiguous on both sides, at the
    dense positions ``grid[n, p]``. An image is a volume of one plane (``axes`` of them are the grid's).

    ``across`` threads have a position's channels side by side. Each computes the position's neighbours in
    float64, some 200 instructions, which a warp issues once for its lanes. Then each channel takes a load and
    a multiply-add per tap, in runs of ``across``; all taps of a channel are under way at once. Positions near
    each other share elements, from L1 and L2.
    """
    taps = Interpolation(mode).taps
    deep = taps if axes == 3 else 1
    around = _around(mode, padding, align, axes)
    beyond_counts = axes == 2 and mode != NEAREST

    def grid_sample(
        source, grid, target, depth, height, width, planes, lines, pixels, channels, points, x0, x1, x2, x3,
        y0, y1, y2, y3,
    ):  # fmt: skip
        near = cuda.local.array((3, taps), np.int32)
        weights = cuda.local.array((3, taps), np.float32)
        point = u(cuda.blockIdx.x) * u(threads // across) + u(cuda.threadIdx.x) // u(across)
        if point < u(points):
            rest, pixel = split(point, pixels)
            rest, line = split(rest, lines)
            image, plane = split(rest, planes)
            first = np.int64(point) * axes
            around(grid[np.uint64(first)], width, x3, near, weights, 0)
            around(grid[np.uint64(first + 1)], height, x2, near, weights, 1)
            if axes == 3:
                around(grid[np.uint64(first + 2)], depth, x1, near, weights, 2)
            else:
                near[2, 0] = 0
                weights[2, 0] = f(1.0)
            beyond = f(0.0)
            for j in range(taps):
                for k in range(taps):
                    if beyond_counts and (near[1, j] < 0 or near[0, k] < 0):  # NaN for a NaN position
                        beyond += times(weights[1, j], weights[0, k]) * f(0.0)
            x_at = np.int64(image) * x0
            y_at = np.int64(image) * y0 + np.int64(plane) * y1 + np.int64(line) * y2
            y_at += np.int64(pixel) * y3
            for c in range(np.int32(u(cuda.threadIdx.x) % u(across)), channels, across):
                value = beyond
                for i in range(deep):
                    for j in range(taps):
                        for k in range(taps):
                            if near[2, i] >= 0 and near[1, j] >= 0 and near[0, k] >= 0:
                                if axes == 3:
                                    weight = np.float64(weights[2, i]) * weights[1, j]
                                    weight = f(weight * weights[0, k])
                                else:
                                    weight = times(weights[1, j], weights[0, k])
                                at = x_at + (near[2, i] + near[1, j] + near[0, k] + c)
                                value = fma(weight, source[np.uint64(at)], value)
                target[np.uint64(y_at + c)] = value

    return grid_sample
