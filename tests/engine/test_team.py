"""The threads that help: they come, sleep, are not waited for, and are there again in a forked child."""

import os
import threading
import time

import numpy as np
import pytest
from support.check import Array
from support.graphs import network
from support.noise import noise
from support.process import printed

import bslite
from bslite.engines.cpu.team import Team
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.runtime.walk import JOB
from bslite.kernels.cpu.vector.atomic import fetch_add, load_acquire, wait_until

WALKERS, FLAG = 8 * JOB.index("walkers"), 8 * len(JOB)


def _second_stays(job: int) -> None:
    """Both walkers come; the second one to come stays until the flag is set."""
    second = fetch_add(job + WALKERS, 1)
    wait_until(job + WALKERS, 2)
    if second:
        wait_until(job + FLAG, 1)


def _both_come(job: int) -> None:
    fetch_add(job + WALKERS, 1)
    wait_until(job + WALKERS, load_acquire(job + FLAG))


def job(flag: int = 0) -> Array:
    """Cells of a job of no steps, and a flag behind them."""
    cells = np.zeros(len(JOB) + 1, np.int64)
    cells[-1] = flag
    return cells


def test_the_caller_does_not_wait_for_one_that_is_late() -> None:
    team, walk = Team(1), Kernel(_second_stays, "test_second_stays", 1).address
    for _ in range(20):
        cells = job()
        late = threading.Timer(0.5, cells.__setitem__, (-1, 1))
        late.start()
        start = time.perf_counter()
        ticket = team.run(1, walk, cells.ctypes.data)
        took = time.perf_counter() - start
        if ticket:  # the member came second
            assert took < 0.4
            assert team.works(ticket)
            team.hold(ticket, cells)
            cells[-1] = 1
        late.join()
        for _ in range(1000):
            if not ticket or not team.works(ticket):
                break
            time.sleep(0.01)
        assert not ticket or not team.works(ticket)
        if ticket:
            break
    else:
        pytest.fail("the caller was never first")
    team.dissolve()


def test_no_more_than_asked_for_come() -> None:
    team, walk = Team(3), Kernel(_both_come, "test_both_come", 1).address
    for helpers in (1, 2, 3):
        for _ in range(50):
            cells = job(helpers + 1)
            ticket = team.run(helpers, walk, cells.ctypes.data)
            while ticket and team.works(ticket):
                time.sleep(0.001)
            assert cells[JOB.index("walkers")] == helpers + 1
    team.dissolve()


def test_where_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    walk, cells = Kernel(_both_come, "test_both_come", 1).address, job(1)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.warns(UserWarning, match="bslite runs 1 of 4 threads: can't start new thread"):
        team = Team(3)
    assert team.run(team.members, walk, cells.ctypes.data) == 0
    assert cells[JOB.index("walkers")] == 1
    team.dissolve()


def test_idle_threads_take_no_time() -> None:
    spec, x = network("resnet18", size=64), noise(1, 3, 64, 64)
    want = bslite.run(spec, x, threads=2)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    assert bslite.run(spec, x, threads=2).tobytes() == want.tobytes()


def test_answers_on_a_busy_machine() -> None:
    """Threads that are taken off their cores in any place change no bit."""
    code = """
import subprocess, sys, time
import bslite
from support.graphs import network
from support.noise import noise
spec, x = network("mobilenet_v2", size=64), noise(2, 3, 64, 64)
want = bslite.run(spec, x, threads=1).tobytes()
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
try:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert bslite.run(spec, x, threads=2).tobytes() == want
finally:
    for process in busy:
        process.kill()
print("the same")
"""
    assert printed(code).split("\n")[0] == "the same"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_has_threads_of_its_own() -> None:
    code = """
import os, threading, warnings
import bslite
from bslite.engines.cpu import team
from support.graphs import network
from support.noise import noise
warnings.simplefilter("ignore")  # Python warns of forks with threads about
spec, x = network("resnet18", size=64), noise(2, 3, 64, 64)
want = bslite.run(spec, x, threads=2).tobytes()
with team.process.turn:  # another thread's turn, which will not end in the child
    child = os.fork()
    if child == 0:
        same = bslite.run(spec, x, threads=2).tobytes() == want
        os._exit(0 if same and team.process.team.members == 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert bslite.run(spec, x, threads=2).tobytes() == want
print("the same")
"""
    assert printed(code).split("\n")[0] == "the same"
