"""A thread on its way through a job: what its own memory holds, and what one that is late writes."""

import ctypes

import numpy as np
import pytest

from bslite.engines.cpu.job import Job
from bslite.kernels.cpu.runtime.compile import CELLS, Kernel
from bslite.kernels.cpu.runtime.walk import walk
from bslite.kernels.cpu.vector.atomic import fetch_add
from bslite.kernels.cpu.vector.memory import load_int, store_int

ITEMS, SLICE = 7, 64  # of a step; bytes of a thread's memory


def _count(step: int, bases: int, item: int, scratch: int) -> None:
    """Counts items, and those whose thread's memory begins with zeros."""
    fetch_add(load_int(bases), 1)
    fetch_add(load_int(bases) + 8, 1 if load_int(scratch) == 0 else 0)
    store_int(scratch, 1 + item)


COUNT = Kernel(_count, "test_count", 4)


@pytest.fixture
def counted() -> tuple[Job, np.ndarray, np.ndarray]:
    """A job of two such steps, what it has counted, and the memory of two threads."""
    found, memory = np.zeros(2, np.int64), np.full(2 * SLICE // 8, 5, np.int64)
    program = np.zeros((2, CELLS), np.int64)
    program[:, :3] = COUNT.address, ITEMS, 0
    program[1, 2] = 1
    job = Job(program, np.array([found.ctypes.data]), SLICE)
    job.scratch_at(memory.ctypes.data)
    return job, found, memory


def test_a_thread_finds_zeros_at_its_first_item_of_a_step_and_then_what_it_left(
    counted: tuple[Job, np.ndarray, np.ndarray],
) -> None:
    job, found, _ = counted
    job.run(1)
    assert found.tolist() == [2 * ITEMS, 2]


def test_one_that_comes_when_all_is_done_writes_nothing(counted: tuple[Job, np.ndarray, np.ndarray]) -> None:
    """The memory may be another job's by then."""
    job, found, memory = counted
    job.run(1)
    found[:], memory[:] = 0, 5
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(walk.address)(job._address)
    assert found.tolist() == [0, 0]
    assert (memory == 5).all()
