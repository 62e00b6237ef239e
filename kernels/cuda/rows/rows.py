"""Functions shared by kernels that work along contiguous rows with several threads of a block per row."""

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function


@device_function
def place(row, n1, n2, s0, s1, s2):
    """Return the place where a row begins, given the strides of the axes around it."""
    plane = row // n2
    return (plane // n1) * s0 + (plane % n1) * s1 + (row % n2) * s2


def take(values, x, at, first, width, each, length, fill):
    """Load ``values[e] = x[at + first + e*width]`` for ``each`` e (a constant: as many loads under way);
    ``fill`` stands beyond the row's ``length``.
    """
    for e in range(each):
        i = first + e * width
        values[e] = x[np.uint64(at + i)] if i < length else fill


take = device_function(take)
