"""One network at one batch size: make every rival ready, check that they agree, then let them take turns."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.blocks import in_blocks
from benchmarks.peers.arithmetic import arithmetic_of
from benchmarks.peers.columns import AGAINST, COLUMNS, DEFAULT, column
from benchmarks.peers.engines import Bslite, Engine
from benchmarks.peers.memory import memory_of
from benchmarks.peers.nets import Net, distance, make
from benchmarks.rivals import Times, in_own_process
from benchmarks.roofline import work
from bslite.cli.timing import interleaved, medians
from bslite.verification import FACTOR, TINY

Note = Callable[[str], None]
#: Relative L2 from float64 that is allowed for being of fewer bits.
BOUNDS = {"bfloat16_3x": 1e-3, "bfloat16": 0.1}
#: Or so many times what float32 is allowed, where a network magnifies any error; bfloat16 has 16 bits fewer.
TIMES = {"bfloat16": 2.0**12}


@dataclass
class Result(Times):
    """What was found for one network and batch size; seconds throughout, rivals by the names of columns."""

    net: str
    batch: int
    threads: int
    ready: dict[str, float] = field(default_factory=dict)  # from nothing to the first answer
    errors: dict[str, float] = field(default_factory=dict)  # relative L2 from float64, of the whole batch
    #: Relative L2 from bslite's reference in float64, of so many images, the first of the batch.
    reference_errors: dict[str, float] = field(default_factory=dict)
    reference_images: int = 0
    arithmetic: dict[str, str] = field(default_factory=dict)  # of bslite's columns; see peers/tiles.py
    flops: float | None = None
    bytes: float | None = None
    memory: dict[str, dict[str, int]] = field(default_factory=dict)  # bytes; see peers/memory.py

    @property
    def best_peer(self) -> str | None:
        """The fastest rival in float32 that is not ours."""
        return self.best_against(DEFAULT)

    @property
    def ratio(self) -> float | None:
        """How many times as long as bslite, in float32, the best rival takes: above 1, bslite is faster."""
        return self.ratio_of(DEFAULT)

    def best_against(self, precision: str) -> str | None:
        """The fastest of the rivals that bslite's column of that precision is held against."""
        like = AGAINST[precision]
        others = [n for n in self.seconds if not COLUMNS[n].ours and COLUMNS[n].precision == like]
        return min(others, key=self.seconds.__getitem__) if others else None

    def ratio_of(self, precision: str) -> float | None:
        """As `ratio`, of bslite in a precision and what it is held against."""
        best, ours = self.best_against(precision), self.seconds.get(column("bslite", precision))
        return None if best is None or ours is None else self.seconds[best] / ours


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
    peers = right_ones(net, {e: COLUMNS[e] for e in engines}, result, note)
    note(f"{name} batch {batch}: comparing with the reference in float64")
    with result.noting("reference"):
        _compare_with_reference(net, peers, result)
    note(f"{name} batch {batch}: timing {', '.join(peers)}")
    result.rounds = in_turns(peers, result.failures, rounds, in_blocks)
    result.seconds = medians(result.rounds)
    timed = list(result.rounds)
    del peers
    gc.collect()
    for engine in timed if memory else ():
        note(f"{name} batch {batch}: memory of {engine}")
        with result.noting(f"{engine}'s memory"):
            result.memory[engine] = memory_of(net, engine, threads)
    return result


def apart(
    name: str, batch: int, threads: int, engines: Sequence[str], rounds: int, seed: int,
    folder: Path, note: Note, memory: bool = False,
) -> Result:  # fmt: skip
    """`compare` in a process of its own."""
    note(f"{name} batch {batch}: in a process of its own")
    try:
        how = engines, rounds, seed, folder, _quiet, memory
        return in_own_process(threads, compare, name, batch, threads, *how)
    except Exception as e:  # of the model's library, or the process is dead
        return Result(name, batch, threads, failures={"bslite": f"{type(e).__name__}: {e}"})


def _quiet(text: str) -> None:
    pass


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
        word = engines[name].precision
        allowed = max(bound, BOUNDS.get(word, 0.0), TIMES.get(word, 0.0) * bound)
        if not result.errors[name] <= allowed:
            result.failures[name] = f"wrong answer: error {result.errors[name]:.1e}, bound {allowed:.1e}"
            del peers[name]
    return peers


def _compare_with_reference(net: Net, peers: Mapping[str, Engine], result: Result) -> None:
    exact = net.reference
    result.reference_images = len(exact)
    for name, peer in peers.items():
        result.reference_errors[name] = distance(peer.answer(peer())[: len(exact)], exact)
        if isinstance(peer, Bslite):
            how = result.threads, peer.layerwise, peer.precision
            result.arithmetic[name] = arithmetic_of(peer.spec, peer.x, *how)


def _prepare(net: Net, name: str, engine: type[Engine], result: Result) -> Engine:
    start = time.perf_counter()
    peer = engine(net, result.threads)
    made = peer()
    result.ready[name] = time.perf_counter() - start
    result.errors[name] = net.error(peer.answer(made))
    return peer


def in_turns(
    peers: Mapping[str, Callable[[], object]], failures: dict[str, str], rounds: int,
    timed: Callable[..., dict[str, list[float]]] = interleaved, **options: Any,
) -> dict[str, list[float]]:  # fmt: skip
    """`interleaved` or `in_blocks`, with its options. If one fails, ``failures`` gets a line and the others
    start again.
    """
    left, at_work = dict(peers), ""

    def turn(name: str) -> object:
        nonlocal at_work
        at_work = name
        return left[name]()

    while left:
        try:
            return timed({name: partial(turn, name) for name in left}, rounds, **options)
        except Exception as e:
            failures[at_work] = f"failed while timed: {type(e).__name__}: {e}"
            del left[at_work]
    return {}
