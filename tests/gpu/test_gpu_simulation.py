"""The simulator's scheduler: barriers, threads that end early, errors, and a launch after an error."""

import numpy as np
import pytest

from bslite.kernels.cuda.runtime.device import SIMULATED, cuda

pytestmark = pytest.mark.skipif(not SIMULATED, reason="there is a GPU")


def reversed_twice(x, y, last):
    """Turns a block's numbers round through shared memory, twice; threads from ``last`` on leave early."""
    shared = cuda.shared.array(64, np.int32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * cuda.blockDim.x + t
    shared[t] = x[i]
    cuda.syncthreads()
    value = shared[cuda.blockDim.x - 1 - t]
    if t >= last:
        y[i] = -1
        return
    cuda.syncthreads()
    shared[t] = value
    cuda.syncthreads()
    y[i] = value if t < last - 1 else shared[0]
    if x[i] < 0:
        raise ValueError("below zero")


@pytest.mark.parametrize("threads", [1, 7, 64])
def test_barriers(threads: int) -> None:
    x = np.arange(3 * threads, dtype=np.int32)
    y = np.zeros_like(x)
    kernel = cuda.jit(reversed_twice)
    kernel[3, threads](x, y, threads)
    turned = x.reshape(3, threads)[:, ::-1].copy()
    turned[:, -1] = turned[:, 0]
    np.testing.assert_array_equal(y, turned.reshape(-1))
    if threads == 7:
        kernel[3, threads](x, y, 5)
        assert (y.reshape(3, 7)[:, 5:] == -1).all()
        np.testing.assert_array_equal(y.reshape(3, 7)[:, :4], x.reshape(3, 7)[:, :2:-1])


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_an_error_in_one_thread_ends_the_launch(bad: int) -> None:
    x = np.arange(1, 8, dtype=np.int32)
    x[bad] = -1
    kernel = cuda.jit(reversed_twice)
    with pytest.raises(ValueError, match=rf"thread \[{bad}, 0, 0\] of block \[0, 0, 0\]: .*below zero"):
        kernel[1, 7](x, np.zeros_like(x), 7)
    test_barriers(7)
