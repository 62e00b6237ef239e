"""Resizing: weighted sums of a few lines along one axis, or of images along both axes at once."""

import numpy as np

from bslite.kernels.contracts.cuda.resize import Resample, ResampleVariant, ResizeImage, ResizeImageVariant
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

EACH = 4  # elements per thread


@kernel(Resample, registers=64, samples=[ResampleVariant(256, moves) for moves in (0, 1)])
def resample(threads: int, moves: int):
    """Compute ``y[o, i, c] = sum over taps t of weights[i, t] * x[o, lines[i, t], c]``, in order, dense,
    ``total`` elements; x ``[o, size, inner]``, y ``[o, out, inner]``. ``moves``: one tap of weight 1, a copy.

    Neighbouring threads compute neighbours of a line; tables are a few KB, read from L1.
    """

    def resample(x, y, lines, weights, total, size, out, inner, taps):
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                line, c = at // inner, at % inner
                base = line // out * size
                i = line % out * taps
                value = x[np.uint64((base + lines[np.uint64(i)]) * inner + c)]
                if not moves:
                    # a weight of zero still multiplies: an infinite element makes NaN, as in torch
                    value = weights[np.uint64(i)] * value
                    for t in range(1, taps):
                        element = x[np.uint64((base + lines[np.uint64(i + t)]) * inner + c)]
                        value = weights[np.uint64(i + t)] * element + value
                y[np.uint64(at)] = value

    return resample


@kernel(ResizeImage, registers=64, samples=[ResizeImageVariant(256, linear) for linear in (0, 1)])
def resize_image(threads: int, linear: int):
    """Resize images of ``total`` elements, channels innermost, to the nearest pixel, at row ``rows[2i]`` and
    column ``cols[2j]``; ``linear`` interpolates between that and the one at ``[2i + 1]``, by ``row_parts``
    and ``col_parts``.

    Neighbouring threads compute neighbouring channels: whole sectors where there are eight. The output pixels
    near an input pixel read it again, from L1 or L2.
    """

    def resize_image(
        x, y, rows, cols, row_parts, col_parts, total, channels, lines, pixels, x_image, x_line, x_pixel,
        y_image, y_line, y_pixel,
    ):  # fmt: skip
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                pixel, c = at // channels, at % channels
                line, j = pixel // pixels, pixel % pixels
                image, i = line // lines, line % lines
                base = image * x_image + c
                top = base + rows[np.uint64(2 * i)] * x_line
                left = cols[np.uint64(2 * j)] * x_pixel
                value = x[np.uint64(top + left)]
                if linear:
                    bottom = base + rows[np.uint64(2 * i + 1)] * x_line
                    right = cols[np.uint64(2 * j + 1)] * x_pixel
                    of_top, of_bottom = row_parts[np.uint64(2 * i)], row_parts[np.uint64(2 * i + 1)]
                    of_left, of_right = col_parts[np.uint64(2 * j)], col_parts[np.uint64(2 * j + 1)]
                    # a weight of zero still multiplies: an infinite pixel makes NaN, as in torch
                    a = of_bottom * x[np.uint64(bottom + left)] + of_top * value
                    b = of_top * x[np.uint64(top + right)]
                    b = of_bottom * x[np.uint64(bottom + right)] + b
                    value = of_right * b + of_left * a
                y[np.uint64(image * y_image + i * y_line + j * y_pixel + c)] = value

    return resize_image
