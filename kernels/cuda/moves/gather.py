"""Gathers of table rows by index."""

import numpy as np

from bslite.kernels.contracts.cuda.places import Gather, GatherPairs
from bslite.kernels.contracts.launch import Threads
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

EACH = 4  # elements per thread


def _gathering(threads: int):
    def gather(x, indices, y, flag, total, size, inner, count):
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                row, c = at // inner, at % inner
                outer = row // count
                index = indices[np.uint64(row % count)]
                wanted = index + size if index < 0 else index
                if wanted < 0 or wanted >= size:
                    raise_flag(flag, np.int64(index))
                    wanted = 0
                y[np.uint64(at)] = x[np.uint64((outer * size + wanted) * inner + c)]

    return gather


@kernel(Gather, registers=64, samples=[Threads(256)])
def gather(threads: int):
    """Gather ``y[o, i, c] = x[o, indices[i], c]``, ``total`` cells, dense; x ``[o, size, inner]``, ``count``
    indices. Negative indices count from the end; one out of range reads row 0 and raises the flag.

    Neighbouring threads copy neighbours of a row; all of a row's threads read its index from L1.
    """
    return _gathering(threads)


@kernel(GatherPairs, registers=64, samples=[Threads(256)])
def gather_pairs(threads: int):
    """Gather two cells at a time, with 8-byte accesses: ``total`` and ``inner`` count pairs."""
    return _gathering(threads)
