"""The threads that help: they come, sleep, are not waited for, and are there again in a forked child."""

import os
import threading
import time

import numpy as np
import pytest
from support.check import Array
from support.process import printed

from bslite.engines.cpu.team import Team
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.runtime.team import COMING, ENDED, PLACES, SLEEPERS, WOKEN
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
        ticket = team.run(1, walk, cells.ctypes.data)
        returned_before = bool(ticket) and not cells[-1]  # else the caller came second, or both came late
        if returned_before:
            assert team.works(ticket)
            team.hold(ticket, cells)
        late.join()
        while ticket and team.works(ticket):
            time.sleep(0.01)
        if returned_before:
            break
    else:
        pytest.fail("the caller waited")
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


def test_more_than_a_word_counts_are_not_asked_for() -> None:
    """A machine may have more cores than a job has places for members."""
    team, walk, cells = Team(1), Kernel(_both_come, "test_both_come", 1).address, job(2)
    ticket = team.run(1 << PLACES, walk, cells.ctypes.data)
    while ticket and team.works(ticket):
        time.sleep(0.001)
    assert cells[JOB.index("walkers")] == 2
    team.dissolve()


#: What a process without torch runs: with it OpenMP's threads would help, and not a team.
BEGINS = """
import os, subprocess, sys, threading, time, warnings
import bslite
from bslite.engines.cpu import turns
from support.graphs import network
from support.noise import noise
def model(name, batch=2):
    return network(name, size=64), noise(batch, 3, 64, 64)
"""


def test_idle_threads_take_no_time() -> None:
    code = """
spec, x = model("resnet18")
want = bslite.run(spec, x, threads=2)
time.sleep(0.1)
before = time.process_time()
time.sleep(0.5)
assert time.process_time() - before < 0.1
assert bslite.run(spec, x, threads=2).tobytes() == want.tobytes()
assert turns.process.take(1).members == 1 and "torch" not in sys.modules
print("they sleep")
"""
    assert printed(BEGINS + code).split("\n")[0] == "they sleep"


def test_answers_on_a_busy_machine() -> None:
    """Threads that are taken off their cores in any place change no bit."""
    code = """
spec, x = model("mobilenet_v2")
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
    assert printed(BEGINS + code).split("\n")[0] == "the same"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_has_threads_of_its_own() -> None:
    code = """
warnings.simplefilter("ignore")  # Python warns of forks with threads about
spec, x = model("resnet18")
want = bslite.run(spec, x, threads=2).tobytes()
turns.process.turns.begin(2)  # another thread's turn, which will not end in the child
child = os.fork()
if child == 0:
    same = bslite.run(spec, x, threads=2).tobytes() == want
    os._exit(0 if same and turns.process.take(1).members == 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
turns.process.turns.end(2)
assert bslite.run(spec, x, threads=2).tobytes() == want
print("the same")
"""
    assert printed(BEGINS + code).split("\n")[0] == "the same"


def _counts(job: int) -> None:
    fetch_add(job + WALKERS, 1)


class Sleepers:
    """A team of one that sleeps, whose member takes long to come as far as is known."""

    def __init__(self) -> None:
        self.team, self.walk = Team(1), Kernel(_counts, "test_counts", 1).address
        self._cells = self.team._cells
        self.set(COMING, 1 << 50)
        self.rest()

    def set(self, cell: int, value: int) -> None:
        self._cells[cell // 8] = value

    def get(self, cell: int) -> int:
        return int(self._cells[cell // 8])

    def rest(self) -> None:
        while not self.get(SLEEPERS):
            time.sleep(0.01)
        time.sleep(0.01)
        self.set(ENDED, 0)  # long ago

    def wakes(self, took: int) -> bool:
        """Whether a job wakes the member that took so many nanoseconds the last time."""
        cells, before = job(), self.get(WOKEN)
        cells[JOB.index("took")] = took
        ticket = self.team.run(1, self.walk, cells.ctypes.data)
        while ticket and self.team.works(ticket):
            time.sleep(0.001)
        assert cells[JOB.index("took")] > 0
        return self.get(WOKEN) != before


def test_a_member_is_not_woken_for_less_than_it_takes_to_come() -> None:
    sleepers = Sleepers()
    assert not sleepers.wakes(1 << 40)
    assert sleepers.get(COMING) < 1 << 50, "it would never be tried again"
    sleepers.rest()
    assert sleepers.wakes(1 << 52)
    sleepers.team.dissolve()


def test_a_member_is_woken_for_a_job_that_nothing_is_known_of() -> None:
    sleepers = Sleepers()
    assert sleepers.wakes(0)
    for _ in range(1000):  # until it has come: how long it took counts
        if sleepers.get(COMING) < 1 << 50:
            break
        time.sleep(0.01)
    else:
        pytest.fail("how long it took to come is not noted")
    sleepers.team.dissolve()


def test_a_member_is_woken_where_jobs_follow_each_other_closely() -> None:
    sleepers = Sleepers()
    for _ in range(1000):  # the system may take the caller off its core between two of them
        if sleepers.wakes(1):
            break
    else:
        pytest.fail("it was not woken")
    sleepers.team.dissolve()


def test_members_go_home_with_a_team_that_nobody_has() -> None:
    """They write to its cells until they have gone, which are not freed before."""
    team, cells = Team(1), job()
    threads = team._threads
    team.run(1, Kernel(_counts, "test_counts", 1).address, cells.ctypes.data)
    del team
    assert not any(thread.is_alive() for thread in threads)
