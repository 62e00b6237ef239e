"""One case: rivals made ready, their answers held against float64, then turns by the device's clock."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu.case import Case
from benchmarks.gpu.device import Device
from benchmarks.gpu.engines import ENGINES, Engine
from benchmarks.peers.engines import Unavailable
from benchmarks.tables import median_ratio

TURN = 5e-3  # seconds that the calls of a turn take, if they are short
MOST = 200  # calls of a turn


@dataclass
class Result:
    """What was found of one case; seconds, rivals by name. ``bytes``: that must come and go at least."""

    part: str
    name: str
    batch: int
    flops: float = 0.0
    bytes: float = 0.0
    rounds: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)  # from nothing to the first answer
    errors: dict[str, float] = field(default_factory=dict)  # relative L2 from float64
    bound: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    same_bits: bool | None = None  # whether bslite's answers were, call after call

    def ratio(self, other: str) -> float | None:
        """How many times as long as bslite ``other`` takes: the median over rounds."""
        if not {"bslite", other} <= self.rounds.keys():
            return None
        return median_ratio(self.rounds[other], self.rounds["bslite"])

    @property
    def best_peer(self) -> str | None:
        """The fastest rival that is not ours."""
        others = {name: s for name, s in self.seconds.items() if not ENGINES[name].ours}
        return min(others, key=others.__getitem__) if others else None


def compare(case: Case, device: Device, result: Result, engines: Sequence[str], rounds: int) -> None:
    """Measure rivals and add them to ``result``; what goes wrong with one is a line in ``failures``."""
    with _failures(result, "float64"):
        result.bound = case.bound
    ready: dict[str, Engine] = {}
    for name in engines:
        with _failures(result, name):
            engine = _prepare(case, device, name, result)
            if result.errors[name] <= result.bound:
                ready[name] = engine
            else:
                error = f"wrong answer: error {result.errors[name]:.1e}, bound {result.bound:.1e}"
                result.failures[name] = error
    if "bslite" in ready:
        with _failures(result, "bslite's bits"):
            result.same_bits = _same_bits(ready["bslite"])
    counts = {}
    for name in list(ready):
        with _failures(result, name):
            counts[name] = max(1, min(MOST, int(TURN / device.seconds(ready[name], 1))))
    for number in range(rounds):
        order = list(counts)
        for name in order[number % len(order) :] + order[: number % len(order)] if order else ():
            before = len(result.failures)
            with _failures(result, name):
                ready[name]()  # it finds the caches full of someone else's data
                result.rounds.setdefault(name, []).append(device.seconds(ready[name], counts[name]))
            if len(result.failures) > before:
                del counts[name], ready[name]
                result.rounds.pop(name, None)
    result.seconds |= {name: statistics.median(each) for name, each in result.rounds.items()}
    ready.clear()
    device.clear()


def _same_bits(engine: Engine, times: int = 3) -> bool:
    answers = [engine.answer(engine()) for _ in range(times)]
    return all(np.array_equal(a.view(np.int32), answers[0].view(np.int32)) for a in answers)


def _prepare(case: Case, device: Device, name: str, result: Result) -> Any:
    start = time.perf_counter()
    engine = ENGINES[name](case, device)
    made = engine()
    device.wait()
    result.ready[name] = time.perf_counter() - start
    result.errors[name] = case.error(engine.answer(made))
    return engine


@contextlib.contextmanager
def _failures(result: Result, engine: str) -> Iterator[None]:
    """Turn whatever a rival raises into a line of the report."""
    try:
        yield
    except Unavailable as e:
        result.failures[engine] = str(e)
    except Exception as e:
        first = (str(e).strip().splitlines() or [""])[0]
        result.failures[engine] = f"{type(e).__name__}: {first[:200]}"
