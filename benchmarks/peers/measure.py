"""One network at one batch size: make every rival ready, check that they agree, then let them take turns."""

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.engines import ENGINES, Engine
from benchmarks.peers.memory import memory_of
from benchmarks.peers.nets import Net, make
from benchmarks.rivals import Times
from benchmarks.roofline import work
from bslite.cli.timing import interleaved, medians
from bslite.verification import FACTOR, TINY

Note = Callable[[str], None]


@dataclass
class Result(Times):
    """What was found for one network and batch size; seconds throughout, rivals by name."""

    net: str
    batch: int
    threads: int
    ready: dict[str, float] = field(default_factory=dict)  # from nothing to the first answer
    errors: dict[str, float] = field(default_factory=dict)  # relative L2 from float64
    flops: float | None = None
    bytes: float | None = None
    memory: dict[str, dict[str, int]] = field(default_factory=dict)  # bytes; see peers/memory.py

    @property
    def ratio(self) -> float | None:
        """How many times as long as bslite the best rival takes: above 1, bslite is faster."""
        best = self.best_peer
        if best is None or "bslite" not in self.seconds:
            return None
        return self.seconds[best] / self.seconds["bslite"]


def compare(
    name: str, batch: int, threads: int, engines: Sequence[str], rounds: int, seed: int,
    folder: Path, note: Note, memory: bool = False,
) -> Result:  # fmt: skip
    """Measure one network. What goes wrong with one rival is a line in ``failures`` and stops no other."""
    result = Result(name, batch, threads)
    note(f"{name} batch {batch}: making the model and the float64 answer")
    net = make(name, batch, seed, folder)
    _ = net.exact
    with result.noting("bslite"):
        result.flops, result.bytes = work(net.spec, batch)
    peers = right_ones(net, {e: ENGINES[e] for e in engines}, result, note)
    note(f"{name} batch {batch}: timing {', '.join(peers)}")
    result.rounds = in_turns(peers, result.failures, rounds)
    result.seconds = medians(result.rounds)
    timed = list(result.rounds)
    del peers
    gc.collect()
    for engine in timed if memory else ():
        note(f"{name} batch {batch}: memory of {engine}")
        with result.noting(f"{engine}'s memory"):
            result.memory[engine] = memory_of(net, engine, threads)
    return result


def right_ones(
    net: Net, engines: Mapping[str, type[Engine]], result: Result, note: Note
) -> dict[str, Engine]:
    """Those of the rivals that could be made ready and give the right answer; why not, in ``failures``."""
    peers = {}
    for name, engine in engines.items():
        note(f"{result.net} batch {result.batch}: preparing {name}")
        with result.noting(name):
            peers[name] = _prepare(net, name, engine, result)
    error = result.errors.get("torch")
    bound = net.bound if error is None else FACTOR * error + TINY
    for name in list(peers):
        if not result.errors[name] <= bound:
            result.failures[name] = f"wrong answer: error {result.errors[name]:.1e}, bound {bound:.1e}"
            del peers[name]
    return peers


def _prepare(net: Net, name: str, engine: type[Engine], result: Result) -> Engine:
    start = time.perf_counter()
    peer = engine(net, result.threads)
    made = peer()
    result.ready[name] = time.perf_counter() - start
    result.errors[name] = net.error(peer.answer(made))
    return peer


def in_turns(
    peers: Mapping[str, Callable[[], object]], failures: dict[str, str], rounds: int, **options: Any
) -> dict[str, list[float]]:
    """`interleaved`, with its options. If one fails, ``failures`` gets a line and the others start again."""
    left, at_work = dict(peers), ""

    def turn(name: str) -> object:
        nonlocal at_work
        at_work = name
        return left[name]()

    while left:
        try:
            return interleaved({name: functools.partial(turn, name) for name in left}, rounds, **options)
        except Exception as e:
            failures[at_work] = f"failed while timed: {type(e).__name__}: {e}"
            del left[at_work]
    return {}
