"""The machine's float32 multiply-add rate, by the engine's own microkernel on data that stays in L1.

It is the ceiling that every contraction is compared with.
"""

import time

import numpy as np

from bslite.engines.cpu.job import job_of, start_threads


def fma_rate(threads: int = 1, seconds: float = 0.3, dots: bool = False) -> float:
    """FLOP/s of ``threads`` cores at once (a multiply-add is two), the best of the runs in ``seconds``.

    ``dots``: of dot products of bfloat16, each of which is two multiply-adds.
    """
    from bslite.kernels.cpu.gemm.sweep import gemm_sweep
    from bslite.kernels.cpu.runtime.peak import DEPTH, WIDTH, peak
    from bslite.kernels.cpu.vector.simd import LANES
    from bslite.kernels.cpu.vector.target import simd

    rows = (simd().registers - WIDTH - 1) // WIDTH
    floats = rows * DEPTH + DEPTH * WIDTH * LANES + rows * WIDTH * LANES + WIDTH * LANES
    floats += -floats % 1024
    data = np.full(threads * floats + 16, 0.5, np.float32)
    repeats = 2000
    values = {
        "data_item": 4 * floats, "rows": rows, "depth": DEPTH, "repeats": repeats,
        "sweep": gemm_sweep(WIDTH, rows, dots=dots).address,
        "lo": int(np.float32(-np.inf).view(np.uint32)), "hi": int(np.float32(np.inf).view(np.uint32)),
    }  # fmt: skip
    # Aligned to a cache line, as the engine's constants are: no load crosses one.
    place = data.ctypes.data + -data.ctypes.data % 64
    job = job_of(peak, threads, values, [place])
    start_threads(threads)
    best, end = np.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        job.run(threads)
        best = min(best, time.perf_counter() - start)
    return (4.0 if dots else 2.0) * rows * WIDTH * LANES * DEPTH * repeats * threads / float(best)
