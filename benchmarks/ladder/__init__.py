"""The kernel ladder: one convolution, from three plain loops to the engine's rate, one idea a step.

Each step is a file, headed by the idea it adds, with ``prepare(problem, threads)`` that gives a call
computing the whole convolution as ``[pixels, channels]``. See docs/kernels.md for what each step brought.
"""

from benchmarks.ladder import (
    step01_plain_loops,
    step02_loop_order,
    step03_rows_together,
    step04_scalar_tile,
    step05_vector_tile,
    step06_panels,
    step07_emitted_tile,
    step08_batch_reduce,
    step09_prefetch,
    step10_cores,
)

STEPS = (
    step01_plain_loops,
    step02_loop_order,
    step03_rows_together,
    step04_scalar_tile,
    step05_vector_tile,
    step06_panels,
    step07_emitted_tile,
    step08_batch_reduce,
    step09_prefetch,
    step10_cores,
)
