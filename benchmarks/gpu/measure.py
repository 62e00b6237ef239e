"""One case: rivals made ready, their answers held against float64, then turns by the device's clock."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu.case import Case
from benchmarks.gpu.device import Host
from benchmarks.gpu.engines import ENGINES, Engine
from benchmarks.rivals import Times

TURN = 5e-3  # seconds that the calls of a turn take, if they are short
MOST = 200  # calls of a turn


@dataclass
class Result(Times):
    """What was found of one case; seconds, rivals by name. ``bytes``: that must come and go at least."""

    part: str
    name: str
    batch: int
    flops: float = 0.0
    bytes: float = 0.0
    copies: float = 0.0  # seconds of the copies that are its floor; 0: its floor is that of flops and bytes
    ready: dict[str, float] = field(default_factory=dict)  # from nothing to the first answer
    errors: dict[str, float] = field(default_factory=dict)  # relative L2 from float64
    bound: float = 0.0
    same_bits: bool | None = None  # whether bslite's answers were, call after call


def compare(case: Case, device: Host, result: Result, engines: Sequence[str], rounds: int) -> None:
    """Measure rivals and add them to ``result``; what goes wrong with one is a line in ``failures``."""
    with result.noting("float64"):
        result.bound = case.bound
    ready: dict[str, Engine] = {}
    for name in engines:
        with result.noting(name):
            engine = _prepare(case, device, name, result)
            if result.errors[name] <= result.bound:
                ready[name] = engine
            else:
                error = f"wrong answer: error {result.errors[name]:.1e}, bound {result.bound:.1e}"
                result.failures[name] = error
    if "bslite" in ready:
        with result.noting("bslite's bits"):
            result.same_bits = _same_bits(ready["bslite"])
    counts = {}
    for name in list(ready):
        with result.noting(name):
            counts[name] = max(1, min(MOST, int(TURN / device.seconds(ready[name], 1))))
    for number in range(rounds):
        order = list(counts)
        for name in order[number % len(order) :] + order[: number % len(order)] if order else ():
            before = len(result.failures)
            with result.noting(name):
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


def _prepare(case: Case, device: Host, name: str, result: Result) -> Any:
    start = time.perf_counter()
    engine = ENGINES[name](case, device)
    made = engine()
    device.wait()
    result.ready[name] = time.perf_counter() - start
    result.errors[name] = case.error(engine.answer(made))
    return engine
