"""What kernels share that work along contiguous rows, several threads of a block to each of its rows."""

from __future__ import annotations

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function

#: Parameters of every row kernel: rows, elements of each; rows lie along three axes, of which n1 and n2 are
#: the sizes of the inner two, with these strides in x and in y.
ROWS = "rows i4, length i4, n1 i4, n2 i4, x0 i8, x1 i8, x2 i8, y0 i8, y1 i8, y2 i8"
THREADS = 256
#: Of rows in parts: a block has ``chunk`` elements of a row, and rows lie along three axes in x alone.
PART = "length i4, chunk i4, parts i4, n1 i4, n2 i4, x0 i8, x1 i8, x2 i8"


@device_function
def place(row, n1, n2, s0, s1, s2):
    """Where a row begins, given the strides of the axes around it."""
    plane = row // n2
    return (plane // n1) * s0 + (plane % n1) * s1 + (row % n2) * s2


def take(values, x, at, first, width, each, length, fill):
    """``values[e] = x[at + first + e*width]`` for ``each`` e (a constant: as many loads under way), ``fill``
    beyond the row's ``length``.
    """
    for e in range(each):
        i = first + e * width
        values[e] = x[np.uint64(at + i)] if i < length else fill


take = device_function(take)
