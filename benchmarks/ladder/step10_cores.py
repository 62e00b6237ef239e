"""All cores: the panels are items that threads claim as they become free.

The engine's walker (kernels/cpu/runtime/walk.py): each thread takes the next item by an atomic counter, so no
core waits for another before all the work is given out. Which thread computes a panel changes no bit of it:
the sums are inside.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numba import cfunc, types

from benchmarks.ladder.engine_tile import epilogue, microkernel, most_rows
from benchmarks.ladder.problem import NR, Problem, address
from benchmarks.ladder.step09_prefetch import convolve_panel
from bslite.engines.cpu.job import Job, start_threads
from bslite.kernels.contracts.record import StepRecord
from bslite.kernels.cpu.runtime.compile import offsets
from bslite.kernels.cpu.runtime.walk import CELLS
from bslite.kernels.cpu.vector.memory import load_int
from bslite.spec import Array


class Ladder(StepRecord):
    """One panel of filters over every line: addresses, and the problem's sizes."""

    kernel: ClassVar[str] = "ladder"

    sweep: int
    rows: int
    side: int
    channels: int
    n: int
    x: int
    offsets: int
    b: int
    c: int
    end: int


F = offsets(Ladder)


def _item(step: int, bases: int, item: int, scratch: int) -> None:
    """What the walker calls: ``step`` is the address of the record."""
    convolve_panel(
        item, load_int(step + F.sweep), load_int(step + F.rows), load_int(step + F.side),
        load_int(step + F.channels), load_int(step + F.n), load_int(step + F.x), load_int(step + F.offsets),
        load_int(step + F.b), load_int(step + F.c), load_int(step + F.end),
    )  # fmt: skip


@functools.cache
def _kernel() -> Any:
    return cfunc(types.void(*[types.int64] * 4), error_model="numpy")(_item)


def prepare(p: Problem, threads: int) -> Callable[[], Array]:
    """A call that computes the problem on so many threads."""
    keep = (p.image, p.offsets, p.panels, p.result(), epilogue())
    kernel = _kernel()
    items, rows = p.filters // NR, min(most_rows(), p.side)
    program = np.zeros((1, CELLS), np.int64)
    program[0, : len(F)] = [
        kernel.address, items, 0, microkernel(), rows, p.side, p.channels, p.filters, *map(address, keep)
    ]  # fmt: skip
    job = Job(program, np.zeros(1, np.int64))
    start_threads(threads)

    def call() -> Array:
        assert keep  # what the program points to
        job.run(threads)
        return keep[3]

    return call
