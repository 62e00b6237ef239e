"""Group norm of images, channels contiguous, in three kernels: the sums of every channel in every band of
pixels, the scale and shift of every channel, every pixel. Instance norm has one channel per group.
"""

import numpy as np

from bslite.kernels.contracts.cuda.rows import (
    ChannelSums,
    ChannelThreads,
    GroupScales,
    GroupScalesVariant,
    ScalePixels,
)
from bslite.kernels.cuda.rows.normalize import inverse_deviation
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

f = np.float32


@kernel(ChannelSums, registers=64, samples=[ChannelThreads(across=32, down=8)])
def channel_sums(across: int, down: int):
    """Compute ``sums[image, band, c] = (sum of x, of its squares)``, float64, over ``band`` pixels.

    A block of ``[across, down]`` threads has channels side by side, so loads are runs of ``across`` floats;
    each row of threads takes every ``down``-th pixel, four loads under way, and the rows' sums meet in shared
    memory in order. Grid: (blocks of channels, bands, images).
    """

    def channel_sums(x, sums, channels, pixels, columns, x_image, x_line, x_pixel, bands, band):
        held = cuda.shared.array((down, across, 2), np.float64)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        c = cuda.blockIdx.x * across + tx
        first = cuda.blockIdx.y * band
        last = min(pixels, first + band)
        plain, squares = 0.0, 0.0
        if c < channels:
            start = cuda.blockIdx.z * x_image + c
            for p in range(first + ty, last, down):
                value = np.float64(x[np.uint64(start + p // columns * x_line + p % columns * x_pixel)])
                plain += value
                squares += value * value
        held[ty, tx, 0] = plain
        held[ty, tx, 1] = squares
        cuda.syncthreads()
        if ty == 0 and c < channels:
            plain, squares = 0.0, 0.0
            for i in range(down):
                plain += held[i, tx, 0]
                squares += held[i, tx, 1]
            out = ((np.int64(cuda.blockIdx.z) * bands + cuda.blockIdx.y) * channels + c) * 2
            sums[np.uint64(out)] = plain
            sums[np.uint64(out + 1)] = squares

    return channel_sums


@kernel(
    GroupScales,
    registers=64,
    samples=[GroupScalesVariant(threads=256, weighted=there, biased=there) for there in (1, 0)],
)
def group_scales(threads: int, weighted: int, biased: int):
    """Compute ``scales[image, 3, channels]``: centre, scale and shift of each channel, from its group's sums.

    Each group of ``group`` channels has a block (grid: groups, images): its threads share bands and channels,
    their sums meet in order. The sums are few; the time is latency alone.
    """

    def group_scales(sums, weight, bias, scales, channels, group, bands, count, eps):
        held = cuda.shared.array((2, threads), np.float64)
        me = cuda.threadIdx.x
        first = cuda.blockIdx.x * group
        image = np.int64(cuda.blockIdx.y)
        plain, squares = 0.0, 0.0
        for i in range(me, bands * group, threads):
            at = ((image * bands + i // group) * channels + first + i % group) * 2
            plain += sums[np.uint64(at)]
            squares += sums[np.uint64(at + 1)]
        held[0, me] = plain
        held[1, me] = squares
        half = threads // 2
        while half > 0:
            cuda.syncthreads()
            if me < half:
                held[0, me] += held[0, me + half]
                held[1, me] += held[1, me + half]
            half //= 2
        cuda.syncthreads()
        mean = held[0, 0] / count
        inverse = inverse_deviation(held[1, 0] / count - mean * mean, eps)
        centre = f(mean)
        for i in range(me, group, threads):
            c = first + i
            scale = inverse
            if weighted:
                scale *= np.float64(weight[np.uint64(c)])
            shift = (np.float64(centre) - mean) * scale
            if biased:
                shift += np.float64(bias[np.uint64(c)])
            at = image * 3 * channels + c
            scales[np.uint64(at)] = centre
            scales[np.uint64(at + channels)] = f(scale)
            scales[np.uint64(at + 2 * channels)] = f(shift)

    return group_scales


@kernel(ScalePixels, registers=64, samples=[ChannelThreads(across=32, down=8)])
def scale_pixels(across: int, down: int):
    """Compute ``y = (x - centre) * scale + shift`` with three numbers for each image and channel.

    Threads are those of `channel_sums`; each keeps its channel's numbers in registers for a band of pixels.
    """

    def scale_pixels(
        x, y, scales, channels, pixels, columns, x_image, x_line, x_pixel, y_image, y_line, y_pixel, band
    ):
        c = cuda.blockIdx.x * across + cuda.threadIdx.x
        image = np.int64(cuda.blockIdx.z)
        first = cuda.blockIdx.y * band
        last = min(pixels, first + band)
        if c < channels:
            at = image * 3 * channels + c
            centre = scales[np.uint64(at)]
            scale, shift = scales[np.uint64(at + channels)], scales[np.uint64(at + 2 * channels)]
            for p in range(first + cuda.threadIdx.y, last, down):
                line, column = p // columns, p % columns
                value = x[np.uint64(image * x_image + line * x_line + column * x_pixel + c)]
                value = (value - centre) * scale + shift
                y[np.uint64(image * y_image + line * y_line + column * y_pixel + c)] = value

    return scale_pixels
