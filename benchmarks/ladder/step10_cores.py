"""All cores: the panels are items that threads claim as they become free.

The engine's walker (kernels/cpu/walk.py): each thread takes the next item by an atomic counter, so no
core waits for another before all the work is given out. Which thread computes a panel changes no bit of
it: the sums are inside.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import cfunc, types

from benchmarks.ladder.problem import NR, Problem
from benchmarks.ladder.step09_prefetch import convolve_panel, operands
from bslite.engines.cpu.job import Job, start_threads
from bslite.kernels.cpu.compile import record
from bslite.kernels.cpu.simd import load_int
from bslite.kernels.cpu.walk import CELLS
from bslite.spec import Array

F = record("ladder", "side channels n rows sweep x offsets b c bias clamp")


def _item(step: int, bases: int, item: int, scratch: int) -> None:
    """What the walker calls: ``step`` is the address of the record."""
    convolve_panel(
        item, load_int(step + F.side), load_int(step + F.channels), load_int(step + F.n),
        load_int(step + F.rows), load_int(step + F.sweep), load_int(step + F.x), load_int(step + F.offsets),
        load_int(step + F.b), load_int(step + F.c), load_int(step + F.bias), load_int(step + F.clamp),
    )  # fmt: skip


def prepare(p: Problem, threads: int) -> Callable[[], Array]:
    """A call that computes the problem on so many threads."""
    c = p.result()
    arguments, keep = operands(p, c)
    kernel = cfunc(types.void(*[types.int64] * 4), error_model="numpy")(_item)
    program = np.zeros((1, CELLS), np.int64)
    program[0, : len(F)] = [kernel.address, p.filters // NR, 0, *arguments]
    job = Job(program, np.zeros(1, np.int64))
    start_threads(threads)

    def call() -> Array:
        assert keep
        assert kernel.address
        job.run(threads)
        return c

    return call
