"""Jobs of the stream kernel (`bslite.kernels.cpu.runtime.stream`): reads, copies, multiply-adds, barriers."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.job import Job, job_of, start_threads
from bslite.engines.cpu.threads import numba_threads
from bslite.errors import EngineError

Floats = npt.NDArray[np.float32]


def fma_turn(threads: int, repeats: int) -> tuple[Callable[[], None], float]:
    """A call that computes only multiply-adds on ``threads`` threads, and the number of operations in it."""
    from bslite.kernels.cpu.runtime.stream import FMA, FMAS
    from bslite.kernels.cpu.vector.simd import LANES

    memory, sink = np.ones(2048, np.float32), np.zeros(16 * threads, np.float32)
    job = stream_job(FMA, threads, 0, repeats, memory, sink)
    return _turn(job, threads, memory, sink), 2.0 * FMAS * LANES * threads * repeats


def _turn(job: Job, threads: int, *kept: Floats) -> Callable[[], None]:
    """A call that runs the job; it keeps the arrays alive until the last one."""

    def turn() -> None:
        assert all(array.size for array in kept)
        job.run(threads)

    return turn


def read_turn(
    threads: int, size: int, passes: int, alternate: bool = False
) -> tuple[Callable[[], None], float]:
    """A call that reads ``size`` bytes ``passes`` times, each thread its own part, and the bytes that it
    reads in all: ``size`` is cut to a whole number of registers for each thread, at least one.

    With ``alternate``, every second pass goes through the panels from the last to the first, so that it first
    reads what a cache still holds of the pass before.
    """
    from bslite.kernels.cpu.runtime.stream import READ, RUN, TURNS

    part = max(1, size // threads // RUN) * RUN
    # Written now, so that there is memory behind every page.
    memory, sink = np.ones((threads * part + 4096) // 4, np.float32), np.zeros(16 * threads, np.float32)
    job = stream_job(TURNS if alternate else READ, threads, part, passes, memory, sink)
    return _turn(job, threads, memory, sink), float(threads * part * passes)


def meeting(threads: int, times: int) -> float:
    """The seconds of one barrier of ``threads`` threads, measured over ``times`` in a row.

    Raises EngineError where so many cannot run at once: the first would wait for ever.
    """
    from bslite.kernels.cpu.runtime.stream import MEET
    from bslite.kernels.cpu.vector.atomic import LINE

    if threads > numba_threads():
        raise EngineError(f"{threads} threads cannot run at once here, {numba_threads()} can")
    memory, sink = np.zeros((times * LINE + 4096) // 4, np.float32), np.zeros(16 * threads, np.float32)
    job = stream_job(MEET, threads, 0, times, memory, sink, meet=threads)
    start_threads(threads)
    start = time.perf_counter()
    job.run(threads)
    return (time.perf_counter() - start) / times


def stream_job(
    mode: int, threads: int, size: int, repeats: int, memory: Floats, sink: Floats, meet: int | None = None
) -> Job:
    """A job of ``threads`` items, each going ``repeats`` times over ``size`` bytes; keep the arrays alive.

    ``meet``: the number of items that wait for each other.
    """
    from bslite.kernels.cpu.runtime.stream import stream

    values = {
        "data_item": size, "target_at": threads * size,
        "bytes": size, "repeats": repeats, "mode": mode, "sink": 1,
        "a": 0x1E3779B97F4A7C15 if meet is None else meet, "b": 0x5DEECE66D,
    }  # fmt: skip
    aligned = memory.ctypes.data + -memory.ctypes.data % 4096
    return job_of(stream, threads, values, [aligned, sink.ctypes.data])
