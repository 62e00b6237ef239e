"""Threads of a job that meet on a CPU part, and keep the set of CPUs that they may use."""

import os
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numba import njit

from bslite.kernels.cpu.runtime.apart import PLACE, keep_apart
from bslite.kernels.cpu.runtime.walk import counter_bytes

if not hasattr(os, "sched_setaffinity"):
    pytest.skip("this system binds no thread to CPUs", allow_module_level=True)
CPUS = sorted(os.sched_getaffinity(0))
if len(CPUS) < 2:
    pytest.skip("threads part where there are two CPUs", allow_module_level=True)


@njit
def _begin(places: int, slot: int, slots: int) -> None:
    keep_apart(places, slot, slots)


def ends_on(may_use: Sequence[int], others: Sequence[int], slots: int | None = None) -> int:
    """Where a thread goes that begins on the first of ``may_use``, after ``others`` are on theirs."""
    found: list[int] = []

    def work() -> None:
        _begin(places.ctypes.data, 0, 1)  # compiled
        places[: len(others), 0] = [cpu + 1 for cpu in others]
        os.sched_setaffinity(0, may_use[:1])  # it is there now
        os.sched_setaffinity(0, may_use)
        _begin(places.ctypes.data, len(others), slots or len(others) + 1)
        assert os.sched_getaffinity(0) == set(may_use)
        found.append(int(places[len(others), 0]) - 1)

    places = np.zeros((len(others) + 1, PLACE // 8), np.int64)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


def often(check: Callable[[], bool]) -> bool:
    """Whether it holds at least once: a busy system may move a thread meanwhile."""
    return any(check() for _ in range(10))


def test_the_later_one_goes() -> None:
    first, second = CPUS[:2]
    assert often(lambda: ends_on([first, second], [first]) == second)
    assert often(lambda: ends_on([second, first], [second]) == first)


def test_who_is_alone_stays() -> None:
    first, second = CPUS[:2]
    assert often(lambda: ends_on([first, second], [second]) == first)
    assert often(lambda: ends_on([first, second], []) == first)


def test_who_may_go_nowhere_stays() -> None:
    first, second = CPUS[:2]
    assert ends_on([first], [first]) == first
    assert often(lambda: ends_on([first, second], [first, second]) == first)


@pytest.mark.parametrize("slots", [1, 2])
def test_where_cpus_are_left_the_system_decides(slots: int) -> None:
    """With fewer threads than CPUs there is one that none of them needs."""
    first, second = CPUS[:2]
    want = first if slots == 1 else second
    assert often(lambda: ends_on([first, second], [first], slots) == want)


def test_places_are_behind_the_counters() -> None:
    assert counter_bytes(5, 2) - counter_bytes(4, 2) == 3 * 64
    assert counter_bytes(0, 2) == 2 * PLACE
