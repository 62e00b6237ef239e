"""Streams of a compiled model: so many runs at a time, in order, with the bits of a run alone."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from support.graphs import network
from support.noise import noise
from support.process import printed

import bslite
from bslite import EngineError, InputError
from bslite.compiled.streams import Streams


def model(**options: Any) -> bslite.CompiledModel:
    return bslite.compile(network("squeezenet1_1", size=64), **options)


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize(("streams", "threads"), [(1, 2), (2, 1), (3, None)])
def test_answers_have_the_same_bits(streams: int, threads: int | None, pin: bool) -> None:
    if pin and (streams * (threads or 1) > len(os.sched_getaffinity(0))):
        pytest.skip("too few cores")
    inputs = [noise(1, 3, 64, 64, seed=i) for i in range(8)]
    want = [bslite.run(network("squeezenet1_1", size=64), x, threads=1).tobytes() for x in inputs]
    with model(streams=streams, threads=threads, pin=pin) as m:
        assert m.streams == streams
        assert [made[0].tobytes() for made in m.map(inputs)] == want
        futures = [m.submit(x) for x in inputs]
        assert [m(x)[0].tobytes() for x in inputs] == want
        assert [f.result()[0].tobytes() for f in futures] == want


def test_cores_are_divided() -> None:
    from bslite.engines.cpu.threads import default_threads

    assert model(streams=2).threads == max(1, default_threads() // 2)
    assert model(streams=1000).threads == 1
    assert model(streams=2, threads=3).threads == 3
    assert (model().streams, model().threads) == (None, None)


class Gauge:
    """Counts who is in it at a time."""

    def __init__(self) -> None:
        self.inside, self.most, self._lock = 0, 0, threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.02)
        with self._lock:
            self.inside -= 1


def test_no_more_run_than_there_are_streams() -> None:
    streams, gauge = Streams(2), Gauge()
    callers = [threading.Thread(target=streams.run, args=(gauge,)) for _ in range(6)]
    futures = [streams.submit(gauge) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for future in futures:
        future.result()
    assert gauge.most == 2
    streams.close()


def test_map_takes_little_ahead_and_stops_with_its_reader() -> None:
    taken = []

    def given() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    streams = Streams(2)
    made = streams.map(lambda x: x + 1, given())
    assert next(made) == 1
    assert len(taken) <= 4
    assert [next(made) for _ in range(10)] == list(range(2, 12))
    made.close()  # type: ignore[attr-defined]
    assert len(taken) < 20
    streams.close()


def test_an_error_belongs_to_its_call() -> None:
    with model(streams=2) as m:
        good, bad = noise(1, 3, 64, 64), noise(1, 4, 64, 64)
        futures: list[Future[Any]] = [m.submit(x) for x in (good, bad, good)]
        with pytest.raises(InputError):
            futures[1].result()
        assert futures[0].result()[0].tobytes() == futures[2].result()[0].tobytes()
        with pytest.raises(InputError):
            m(bad)
        assert m(good)[0].tobytes() == futures[0].result()[0].tobytes()
    with pytest.raises(EngineError, match="is closed"):
        m.submit(good)


def test_a_torch_module_has_streams() -> None:
    torch.manual_seed(0)
    module, xs = torch.nn.Linear(8, 4).eval(), [torch.rand(2, 8) for _ in range(6)]
    with bslite.compile(module, streams=2) as m, torch.no_grad():
        for x, made in zip(xs, m.map(xs), strict=True):
            torch.testing.assert_close(made[0], module(x))


def test_what_cannot_be_divided() -> None:
    with pytest.raises(EngineError, match="streams must be a positive integer, got 0"):
        model(streams=0)
    with pytest.raises(EngineError, match="not of 'reference'"):
        model(streams=2, device="reference")
    with pytest.raises(EngineError, match="need 1024 cores of their own"):
        model(streams=1024, threads=1, pin=True)


def test_a_forked_child_has_streams_of_its_own() -> None:
    code = """
import os, threading, warnings
import bslite
from support.graphs import network
from support.noise import noise
warnings.simplefilter("ignore")
m, x = bslite.compile(network("squeezenet1_1", size=64), streams=1), noise(1, 3, 64, 64)
want = m.submit(x).result()[0].tobytes()
m._streams._turns.get()  # a run of another thread, which does not go on in the child
child = os.fork()
if child == 0:
    same = m(x)[0].tobytes() == m.submit(x).result()[0].tobytes() == want
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("the same")
"""
    assert printed(code).split("\n")[0] == "the same"
