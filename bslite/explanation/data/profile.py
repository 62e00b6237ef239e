"""Where the time goes: warm traced runs of a session, in seconds per step and per walker.

Each moment of a walker is charged to one step: the step of the item that the walker works on, or, while it
waits, the steps that the other walkers work on. The times of the steps therefore add up to the time of the
run, and a step that shares its work badly shows a long wait.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.session import Session
from bslite.engines.cpu.threads import numba_threads

Array = npt.NDArray[Any]
WARM_RUNS = 3
LEAST = 0.1  # seconds between the first and the last traced run: what the clock's rate is taken from


@dataclass(frozen=True)
class Items:
    """The work items of one run in the order they were finished: arrays of equal length.

    ``step``, ``item`` and ``walker`` are numbers; ``start`` and ``stop`` seconds from the run's first start.
    """

    step: Array
    item: Array
    walker: Array
    start: Array
    stop: Array


@dataclass(frozen=True)
class Profile:
    """Medians over ``runs`` traced runs, in seconds; arrays have an element per step of the plan.

    ``untraced`` is the time of a whole call without tracing, ``wall`` that from a traced run's first item to
    its last. ``repeated``: runs are done again by multiply-adds, which only ``untraced`` includes. ``busy``
    sums the items of a step over all walkers, ``wait`` what walkers waited for its end, ``span`` reaches from
    its first start to its last stop. ``items`` are those of the run of median length.
    """

    runs: int
    threads: int
    ticks_per_second: float
    untraced: float
    wall: float
    repeated: bool
    busy: Array
    wait: Array
    span: Array
    items: Items

    def walkers(self) -> list[tuple[float, float]]:
        """Busy and idle seconds of each walker in the run that ``items`` holds."""
        length = float(self.items.stop.max(initial=0.0))
        worked = self.items.stop - self.items.start
        busy = np.bincount(self.items.walker, worked, minlength=self.threads)
        return [(float(b), length - float(b)) for b in busy]


def profile(session: Session, inputs: Sequence[Array], runs: int = 15) -> Profile:
    """Warm the session up, then take ``runs`` traced runs and as many untraced ones, in turns."""
    steps = len(session.plan.steps)
    threads = max(1, min(session.plan.threads, numba_threads()))
    outputs = [np.empty(v.shape, np.float32) for v in session.plan.outputs]
    before = session.repeated
    for _ in range(WARM_RUNS):
        session.run(inputs, outputs)
    traces: list[dict[str, Array]] = []
    seconds: list[float] = []
    ends: list[float] = []
    while len(traces) < max(runs, 2) or ends[-1] - ends[0] < LEAST:
        start = time.perf_counter()
        session.run(inputs, outputs)
        seconds.append(time.perf_counter() - start)
        traces.append(_columns(session.trace(inputs, outputs)))
        ends.append(time.perf_counter())
    last = [int(t["stop"].max()) for t in traces] if steps else [0, 1]
    rate = (last[-1] - last[0]) / (ends[-1] - ends[0])
    found = [_items(trace, rate) for trace in traces]
    walls = [float(f.stop.max(initial=0.0)) for f in found]
    parts = [_parts(f, steps, threads) for f in found]
    busy, wait, span = (np.median([p[i] for p in parts], axis=0) for i in range(3))
    typical = int(np.argsort(walls, kind="stable")[len(walls) // 2])
    return Profile(
        len(traces), threads, rate, statistics.median(seconds), statistics.median(walls),
        session.repeated > before,
        busy, wait, span, found[typical],
    )  # fmt: skip


def steps_of(trace: Array, steps: int) -> Array:
    """Ticks of the clock spent on the items of each step."""
    events = _columns(trace)
    return np.bincount(events["step"], events["stop"] - events["start"], minlength=steps)


def _columns(trace: Array) -> dict[str, Array]:
    from bslite.kernels.cpu.runtime.walk import EVENT

    return dict(zip(EVENT, trace.T, strict=True))


def _items(events: dict[str, Array], rate: float) -> Items:
    """A trace in seconds, from its first start."""
    origin = events["start"].min(initial=np.iinfo(np.int64).max)
    seconds = {name: (events[name] - origin) / rate for name in ("start", "stop")}
    return Items(**{**events, **seconds})


def _parts(items: Items, steps: int, threads: int) -> tuple[Array, Array, Array]:
    """Busy, waited-for and spanned seconds of each step in one run.

    An idle walker waits for the steps that the others work on; where no walker works, for the next step.
    """
    busy = np.bincount(items.step, items.stop - items.start, minlength=steps)
    first, last = np.full(steps, np.inf), np.zeros(steps)
    np.minimum.at(first, items.step, items.start)
    np.maximum.at(last, items.step, items.stop)
    span = np.where(np.isfinite(first), last - first, 0.0)
    edges = np.unique(np.concatenate([[0.0], items.start, items.stop]))
    length = np.diff(edges)
    doing = np.full((threads, len(length)), -1)  # the step each walker is at between two edges
    for walker in range(threads):
        mine = np.flatnonzero(items.walker == walker)
        mine = mine[np.argsort(items.start[mine], kind="stable")]
        if len(mine):
            latest = np.searchsorted(items.start[mine], edges[:-1], side="right") - 1
            at = mine[np.maximum(latest, 0)]
            working = (latest >= 0) & (items.stop[at] > edges[:-1])
            doing[walker] = np.where(working, items.step[at], -1)
    workers = (doing >= 0).sum(axis=0)
    each = length * (threads - workers) / np.maximum(workers, 1)
    wait = np.zeros(steps)
    for row in doing:
        wait += np.bincount(row[row >= 0], each[row >= 0], minlength=steps)
    nobody = np.flatnonzero(workers == 0)
    by_start = np.argsort(items.start, kind="stable")
    following = by_start[np.searchsorted(items.start[by_start], edges[nobody + 1])]
    wait += np.bincount(items.step[following], threads * length[nobody], minlength=steps)
    return busy, wait, span
