"""Whose turn it is: runs of several threads share the cores, first come, first served."""

import threading
from pathlib import Path

import numpy as np
import pytest
from support.process import printed

from bslite.engines.cpu import limits, threads, turns
from bslite.engines.cpu.places import places
from bslite.engines.cpu.turns import Process, Turns
from bslite.errors import EngineError
from bslite.kernels.cpu.runtime.compile import Kernel
from bslite.kernels.cpu.runtime.walk import JOB
from bslite.kernels.cpu.vector.atomic import fetch_add, wait_until
from bslite.kernels.cpu.vector.memory import load_int

WALKERS, SHARED = 8 * JOB.index("walkers"), 8 * len(JOB)


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "usable_cores", lambda: 4)


class Run(threading.Thread):
    """Takes a turn; has it until told to end."""

    def __init__(self, turns: Turns, threads: int) -> None:
        super().__init__(daemon=True)
        self.began, self.enough = threading.Event(), threading.Event()
        self._turns, self._threads = turns, threads
        self.start()

    def run(self) -> None:
        self._turns.begin(self._threads)
        self.began.set()
        self.enough.wait()
        self._turns.end(self._threads)

    def waits(self) -> bool:
        return not self.began.wait(0.05)

    def begins(self) -> bool:
        return self.began.wait(5)

    def end(self) -> None:
        self.enough.set()
        self.join()


@pytest.mark.usefixtures("four")
def test_as_many_run_as_have_cores() -> None:
    turns = Turns()
    first, second = Run(turns, 2), Run(turns, 2)
    assert first.begins()
    assert second.begins()
    third = Run(turns, 2)
    assert third.waits()
    first.end()
    assert third.begins()
    second.end()
    third.end()


@pytest.mark.usefixtures("four")
def test_a_run_of_many_threads_is_not_passed_for_ever() -> None:
    turns = Turns()
    small = Run(turns, 2)
    assert small.begins()
    large = Run(turns, 4)
    assert large.waits()
    late = Run(turns, 2)  # has cores, but came later
    assert late.waits()
    small.end()
    assert large.begins()
    assert late.waits()
    large.end()
    assert late.begins()
    late.end()


@pytest.mark.usefixtures("four")
def test_a_run_of_more_threads_than_cores_runs_alone() -> None:
    turns = Turns()
    large = Run(turns, 6)
    assert large.begins()
    small = Run(turns, 2)
    assert small.waits()
    large.end()
    assert small.begins()
    small.end()


def test_an_interrupt_gives_the_turn_back() -> None:
    code = """
import os, signal, threading
from bslite.engines.cpu.turns import Turns
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell began in the background
turns = Turns()
turns.begin(1 << 20)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    turns.begin(2)
except KeyboardInterrupt:
    print("interrupted")
turns.end(1 << 20)
turns.begin(1 << 20)  # would wait for ever if the other one had a turn
print("done")
"""
    assert printed(code).split() == ["interrupted", "done"]


def test_teams_are_taken_by_size() -> None:
    process = Process()
    large, small = process.take(2), process.take(1)
    assert (large.members, small.members) == (2, 1)
    process.give(large)
    process.give(small)
    assert process.take(1) is small
    assert process.take(1) is large
    process.give(small)
    other = process.take(3)  # and the small one goes home
    assert other.members == 3
    assert not any(thread.is_alive() for thread in small._threads)
    process.give(large)
    process.give(other)
    process.end()


def machine(root: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[list[tuple[int, ...]]]) -> None:
    """A system's files: of each NUMA node the cores, each by its CPUs."""
    monkeypatch.setattr(limits, "_mask", lambda: {cpu for node in nodes for core in node for cpu in core})
    for number, node in enumerate(nodes):
        for core in node:
            for cpu in core:
                folder = root / f"sys/devices/system/cpu/cpu{cpu}"
                (folder / "topology").mkdir(parents=True)
                (folder / f"node{number}").mkdir()
                (folder / "topology/core_cpus_list").write_text(",".join(map(str, core)))


@pytest.mark.parametrize(
    ("streams", "threads", "wanted"),
    [
        (2, 2, [{0, 1}, {4, 5}]),  # node by node, before one core of each is left for a third
        (3, 2, [{0, 1}, {4, 5}, {2, 6}]),
        (6, 1, [{0}, {1}, {2}, {4}, {5}, {6}]),
        (1, 6, [{0, 1, 2, 4, 5, 6}]),
    ],
)
def test_streams_have_cores_of_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: int, threads: int, wanted: list[set[int]]
) -> None:
    machine(tmp_path, monkeypatch, [[(0, 8), (1, 9), (2, 10)], [(4, 12), (5, 13), (6, 14)]])
    assert places(streams, threads, tmp_path) == wanted


@pytest.mark.parametrize(
    ("brief", "rested", "joins"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_brief_jobs_have_a_team_only_where_it_may_be_awake(
    monkeypatch: pytest.MonkeyPatch, brief: bool, rested: bool, joins: bool
) -> None:
    here, taken = Process(forked=True), list[int]()
    take = here.take
    monkeypatch.setattr(here, "take", lambda members: taken.append(members) or take(members))
    monkeypatch.setattr(here, "rested", lambda: rested)
    monkeypatch.setattr(turns, "process", here)
    monkeypatch.setattr(turns, "numba_threads", lambda: 2)
    cells = np.zeros(len(JOB), np.int64)
    turns.fork_join(2, Kernel(_counts, "test_brief", 1).address, cells.ctypes.data, brief=brief)
    assert cells[JOB.index("walkers")] >= 1
    assert cells[JOB.index("took")] > 0
    assert bool(taken) is joins
    assert here.ended > 0, "the next one may find members awake"
    here.end()


def test_too_few_cores_to_bind_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, [[(0, 1), (2, 3)]])
    with pytest.raises(EngineError, match=r"2 stream\(s\) of 2 thread\(s\) need 4 cores .* has 2"):
        places(2, 2, tmp_path)


def _counts(job: int) -> None:
    fetch_add(job + WALKERS, 1)


def _four_meet(job: int) -> None:
    fetch_add(job + WALKERS, 1)
    all_of_them = load_int(job + SHARED)
    fetch_add(all_of_them, 1)
    wait_until(all_of_them, 4)


@pytest.mark.usefixtures("four")
def test_runs_of_several_threads_go_on_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, each with a team: all four threads meet."""
    here = Process(forked=True)  # where OpenMP's threads cannot help
    monkeypatch.setattr(turns, "process", here)
    monkeypatch.setattr(turns, "numba_threads", lambda: 2)
    walk, met, finished = Kernel(_four_meet, "test_four_meet", 1).address, np.zeros(1, np.int64), []

    def run() -> None:
        cells = np.zeros(len(JOB) + 1, np.int64)
        cells[-1] = met.ctypes.data
        turns.fork_join(2, walk, cells.ctypes.data)
        finished.append(int(cells[JOB.index("walkers")]))

    runs = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join(60)
    assert finished == [2, 2]
    here.end()


BESIDE_TORCH = """
import numpy as np
import torch

import bslite
from bslite.engines.cpu import turns


class Model(torch.nn.Module):
    def forward(self, x):
        return ((x * 255).to(torch.uint8) * 3).float().div(255).add(x).tanh()  # torch's, between bslite's


entered = []
region = turns._region
turns._region = lambda *given: entered.append(given) or region(*given)
model, x = Model().eval(), torch.rand(1, 3, 256, 256)
optimized = bslite.optimize(model, tune=False)
for _ in range(5):
    torch.testing.assert_close(optimized(x), model(x))
print(turns._with_openmp(), bool(entered))
"""


@pytest.mark.processes
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_regions_beside_torch_need_its_kind_of_threads(layer: str) -> None:
    """Where Numba has other threads than torch's operations, those of a team help."""
    pytest.importorskip("torch")
    if threads.usable_cores() < 2:
        pytest.skip("regions are of two cores or more")
    if layer == "omp":
        pytest.importorskip("numba.np.ufunc.omppool", exc_type=ImportError)
    said = printed(BESIDE_TORCH, NUMBA_THREADING_LAYER=layer, OMP_NUM_THREADS="2").splitlines()[-1]
    assert said == ("True True" if layer == "omp" else "False False")
