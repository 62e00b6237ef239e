"""Jobs of the stream kernel (`bslite.kernels.cpu.runtime.stream`): reads, copies, multiply-adds, barriers."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.job import Job, in_forked_child, start_threads
from bslite.engines.cpu.threads import numba_threads
from bslite.errors import EngineError

Floats = npt.NDArray[np.float32]


def fma_turn(threads: int, repeats: int) -> tuple[Callable[[], None], float]:
    """A call that computes only multiply-adds on ``threads`` threads, and the number of operations in it."""
    from bslite.kernels.cpu.runtime.stream import FMA, FMAS
    from bslite.kernels.cpu.vector.simd import LANES

    flops = 2.0 * FMAS * LANES * threads * repeats
    memory, sink = np.ones(2048, np.float32), np.zeros(16 * threads, np.float32)
    job = stream_job(FMA, threads, 0, repeats, memory, sink)

    def turn() -> None:
        assert memory.size  # keeps it alive until the last call
        assert sink.size
        job.run(threads)

    return turn, flops


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

    def turn() -> None:
        assert memory.size  # keeps it alive until the last call
        assert sink.size
        job.run(threads)

    return turn, float(threads * part * passes)


def meeting(threads: int, times: int) -> float:
    """The seconds of one barrier of ``threads`` threads, measured over ``times`` in a row.

    Raises EngineError where so many cannot run at once: the first would wait for ever.
    """
    from bslite.kernels.cpu.runtime.stream import MEET
    from bslite.kernels.cpu.vector.atomic import LINE

    if threads > numba_threads() or in_forked_child():
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
    from bslite.kernels.cpu.runtime.walk import CELLS

    cells = {name: i for i, name in enumerate(stream.fields)}
    program = np.zeros((1, CELLS), np.int64)
    values = {
        "kernel": stream.address, "items": threads, "data_item": size, "target_at": threads * size,
        "bytes": size, "repeats": repeats, "mode": mode, "sink": 1,
        "a": 0x1E3779B97F4A7C15 if meet is None else meet, "b": 0x5DEECE66D,
    }  # fmt: skip
    for name, value in values.items():
        program[0, cells[name]] = value
    aligned = memory.ctypes.data + -memory.ctypes.data % 4096
    return Job(program, np.array([aligned, sink.ctypes.data], np.int64))
