"""Fold: each element of the image adds up the columns of the windows that cover it."""

import numpy as np

from bslite.kernels.contracts.cuda.moves import Fold
from bslite.kernels.contracts.launch import Threads
from bslite.kernels.cuda.moves.places import split
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

u = np.uint32


@kernel(Fold, registers=40, samples=[Threads(256)])
def fold(threads: int):
    """Compute dense ``y[c, d, h, w]``, ``total`` elements: the sum of ``x[c, planes[d, i] + lines[h, j] +
    pixels[w, k]]``, x dense with ``channel`` elements of each c, in float64, in the order of i, j, k.

    A table's line has ``of_plane``, ``of_line`` or ``of_pixel`` offsets; unused ones (-1) come last.
    Neighbouring threads have neighbouring pixels, whose windows are neighbours where the stride is 1: loads
    are runs. The tables are a few KB, read from L1; at 40 registers an SM holds 1,536 threads, whose loads
    hide each other's latency.
    """

    def fold(x, y, planes, lines, pixels, total, depth, height, width, of_plane, of_line, of_pixel, channel):
        i = u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x)
        if i < u(total):
            line, w = split(i, width)
            plane, h = split(line, height)
            c, d = split(plane, depth)
            start = np.int64(c) * channel
            sum_of = 0.0
            for a in range(of_plane):
                deep = planes[u(u(d * u(of_plane)) + u(a))]
                if deep < 0:
                    break
                for b in range(of_line):
                    down = lines[u(u(h * u(of_line)) + u(b))]
                    if down < 0:
                        break
                    for e in range(of_pixel):
                        across = pixels[u(u(w * u(of_pixel)) + u(e))]
                        if across < 0:
                            break
                        sum_of += np.float64(x[np.uint64(start + deep + down + across)])
            y[i] = np.float32(sum_of)

    return fold
