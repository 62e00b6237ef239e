"""Depth-first over a stack of pools, batch norms, activations, depthwise filters and sums, in one launch.

This is the idea of BrainSlug (arXiv 1804.08378): between reading the first layer's input and writing the last
one's output nothing leaves the multiprocessor; here, not even a thread's registers.
"""

import numpy as np

from bslite.kernels.contracts.cuda.stack import Stack, StackVariant
from bslite.kernels.cuda.math.cells import FLOATS
from bslite.kernels.cuda.math.functions import FUNCTIONS
from bslite.kernels.cuda.math.libm import fma, larger, larger_bits, larger_bits_relu, plus, quotient, times
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel
from bslite.kernels.cuda.stack.source import function, stack_source

THREADS = 64
BLOCK = "max:3,3,1,1,1,1,1,1 affine relu"
SAMPLES = [
    StackVariant(stages, columns, turn, THREADS, *more)
    for stages, columns, turn, *more in (
        (BLOCK, 8, 2),
        (f"{BLOCK} {BLOCK}", 14, 2),
        (f"{BLOCK} {BLOCK} {BLOCK}", 8, 2, (64, 64)),
        (f"{BLOCK} {BLOCK} {BLOCK} {BLOCK}", 2, 2),
        ("avg:2,2,2,2,0,0,0,0,4 with:add silu", 4, 1),
        ("affine relu avg:3,3,2,2,1,1,1,1,0", 4, 1),
        ("depthwise:3,3,1,1,1,1,1,1,1 clamp:0.0,6.0", 8, 1),
        ("depthwise:3,3,2,2,1,1,1,1,0 affine by:mul", 4, 1),
    )
]

f = np.float32


@kernel(Stack, threads=THREADS, registers=216, samples=SAMPLES)
def stack(stages: str, columns: int, turn: int, threads: int, steps: tuple[int, int], threes: int):
    """Compute the stack ``stages`` (`contracts.cuda.stack`) of x ``[images, rows, cols, channels]``; its
    windows move in two axes. Each thread has one channel, ``columns`` columns of the result, and slides down
    ``band_rows`` rows.

    A thread reads the columns its windows need, a row at a time, and keeps what the next rows need: for a
    maximum or a sum, each row reduced along itself; for a filter, the rows. So every element of every layer
    is computed once for each strip of columns, plus the columns at its sides that the neighbouring strip
    computes, too, and the rows above a band. There is no shared memory, no barrier, no spill; loads and
    stores do not grow with the depth except for those columns, which come from L1 where neighbouring strips
    are in one block, else from L2. Neighbouring threads have neighbouring channels: whole sectors.

    The budget: at the speed of memory an H200 moves 0.55e12 elements in and out per second, and issues 31e12
    instructions: 56 for each. An element of a block of max 3x3, batch norm and ReLU needs a maximum of three
    along its row and one across, and a multiply-add. Maxima go at half rate, of three integers as of two
    floats (measured): after a ReLU, whose values are in the order of their bits, they are those of integers,
    and the ReLU is part of them (`by_bits`, ``threes``). Steps from column to column that are compiled in
    (``steps``) leave no arithmetic for addresses. Counted in machine code for sm_90, a row of 14 columns away
    from edges: 12 instructions (19 slots) for two blocks, 16 (26) for three; without both, two blocks took 17
    (29). On an H200 three blocks take 82 us where a copy takes 49: a warp waits for its next row, one after
    the other, and registers leave room for two warps to a scheduler (docs/decisions/015).

    Where there are several windows, turns of the loop away from all edges run without tests of rows and
    columns: they are a sixth of the slots. A stack of one window is bound by memory.

    Arrays: y is like x; z and v are tensors from outside; all have strides of their own, in elements. c
    ``[.., channels]`` holds the numbers per channel in the order of the stages: a filter's taps and its bias,
    scale and shift of an affine. ``sizes``: rows and columns of x and after each window. There are ``strips``
    of columns (the last one ends at the edge: two strips compute the overlap alike), ``groups`` of blocks for
    the threads of one band, ``bands`` per image; a block for each group, band and image, group fastest.
    """
    names = {
        "u": np.uint32, "i32": np.int32, "i64": np.int64, "u64": np.uint64, "f": f, "cuda": cuda, "fma": fma,
        "larger": larger, "larger_bits": larger_bits, "larger_bits_relu": larger_bits_relu, "plus": plus,
        "times": times, "quotient": quotient,
        "ZERO": f(0.0), "ONE": f(1.0), "MINUS_ZERO": f(-0.0), "LEAST": f(-np.inf),
    }  # fmt: skip
    text, more = stack_source(
        stages, columns, turn, threads, steps, threes, {"float32": f, "functions": FUNCTIONS, "pairs": FLOATS}
    )
    return function(text, {**names, **more})
