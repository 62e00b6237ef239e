"""The simulated units: each does its work cycle by cycle, on float32 numbers.

A `Clock` counts cycles and holds what is on its way with a known arrival. The `DotPipeline` is stepped every
cycle; the other units take a vector a cycle and their results are events. Every event has a key that begins
with the time step it belongs to, so that the state of the whole machine can be compared between time steps
(`Clock.signature`).
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bslite.explore.spatial.array import DotArray, channel_cycles
from bslite.explore.spatial.cells import Array, Pipeline

Key = tuple[Any, ...]  # (time step, what, ...)


class Clock:
    """Cycles, and what happens when."""

    def __init__(self) -> None:
        self.now = 0
        self._due: dict[int, list[tuple[Key, Callable[[], None]]]] = {}
        self.busy: Counter[str] = Counter()  # cycles, by kind of unit
        self.stalls: Counter[str] = Counter()  # cycles the array waits, by reason

    def at(self, cycle: int, key: Key, happens: Callable[[], None]) -> None:
        """At the beginning of a cycle still to come."""
        assert cycle > self.now, f"{key} would be in the past"
        self._due.setdefault(cycle, []).append((key, happens))

    def tick(self) -> None:
        """The next cycle begins, and what is due in it happens."""
        self.now += 1
        for _, happens in self._due.pop(self.now, ()):
            happens()

    def skip(self) -> int:
        """Go to where the next tick brings something that is due; how many cycles that passes over.

        For when it is known that nothing happens before.
        """
        over = max(0, min(self._due, default=self.now) - 1 - self.now)
        self.now += over
        return over

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._due

    def signature(self, step: int) -> Key:
        """What is on its way, as seen from now and from ``step``."""
        return tuple(
            sorted(
                (
                    (cycle - self.now, (key[0] - step, *key[1:]))
                    for cycle, events in self._due.items()
                    for key, _ in events
                ),
                key=repr,  # keys hold names and numbers
            )
        )


@dataclass(frozen=True)
class Issue:
    """A chunk on its way: what every PCU multiplies, and what is to be done with the sums."""

    weights: Array  # [rows, split, width], as the weight memories hold them
    vector: Array  # [split, width], as the hub's memories sent it
    start: Array | None  # the sums begin anew from this [rows, split]
    restart: tuple[slice, Array] | None  # or these rows do
    emit: Callable[[Array], None] | None  # the sums are complete: they go to the hub
    key: Key


class DotPipeline:
    """All PCUs that multiply, in lockstep: network, multipliers, reduction tree level by level, sums."""

    def __init__(self, clock: Clock, array: DotArray) -> None:
        self.clock, self.array = clock, array
        self.link: deque[Issue | None] = deque([None] * array.link)
        self.registers: list[tuple[Issue, Array] | None] = [None] * (array.levels + 1)
        self.sums: Array = np.zeros((array.rows, array.split), np.float32)

    def tick(self, issue: Issue | None) -> None:
        """One cycle of every stage, the last first; ``issue`` is what is read from the memories in it."""
        registers = self.registers
        if registers[-1] is not None:
            self._add(*registers[-1])
        for level in range(len(registers) - 1, 0, -1):
            entry = registers[level - 1]
            if entry is not None:
                half = entry[1].shape[2] // 2
                entry = (entry[0], entry[1][:, :, :half] + entry[1][:, :, half:])
            registers[level] = entry
        self.link.append(issue)
        arrived = self.link.popleft()
        registers[0] = None if arrived is None else (arrived, arrived.weights * arrived.vector)
        if issue is not None:
            self.clock.busy["multiplying PCUs"] += self.array.pcus

    def _add(self, issue: Issue, tree: Array) -> None:
        if issue.start is not None:
            self.sums = issue.start + tree[:, :, 0]
            complete = self.sums
        else:
            if issue.restart is not None:
                rows, values = issue.restart
                self.sums[rows] = values
            self.sums += tree[:, :, 0]
            complete = self.sums
        if issue.emit is not None:
            emit, handed = issue.emit, complete.copy()
            self.clock.at(self.clock.now + self.array.reach, issue.key, lambda: emit(handed))

    @property
    def empty(self) -> bool:
        """Whether no chunk is on its way."""
        return not any(self.link) and not any(self.registers)

    def signature(self, step: int) -> Key:
        """Which chunks are in which stage."""
        held = [i.key if i else None for i in self.link] + [r[0].key if r else None for r in self.registers]
        return tuple((place, (key[0] - step, *key[1:])) for place, key in enumerate(held) if key)


class Copies:
    """Units of one kind; work goes to the one that is free first."""

    def __init__(self, clock: Clock, copies: int) -> None:
        self.clock = clock
        self.free = [0] * copies  # from which cycle on

    def reserve(self, cycles: int, earliest: int = 0) -> int:
        """A unit is taken for so many cycles; the first of them."""
        unit = min(range(len(self.free)), key=lambda i: (self.free[i], i))
        start = max(self.clock.now, earliest, self.free[unit])
        self.free[unit] = start + cycles
        return start

    def signature(self) -> Key:
        """For how many more cycles each unit is taken."""
        return tuple(max(0, free - self.clock.now) for free in self.free)


class Collectors(Copies):
    """The hub's units that add up the parts of rows, a vector of rows each, a part per cycle."""

    def __init__(self, clock: Clock, array: DotArray) -> None:
        super().__init__(clock, array.collectors)
        self.array = array

    def take(self, key: Key, sums: Array, deliver: Callable[[Array], None]) -> None:
        """``sums [rows, split]`` have arrived; ``deliver`` gets ``[rows]`` once added up and written."""
        lanes = self.array.machine.lanes
        total = np.empty(len(sums), np.float32)
        groups = range(0, len(sums), lanes)
        left = len(groups)

        def add(begin: int) -> None:
            nonlocal left
            part = sums[begin : begin + lanes]
            value = part[:, 0].copy()
            for i in range(1, part.shape[1]):
                value += part[:, i]
            total[begin : begin + lanes] = value
            left -= 1
            if not left:
                deliver(total)

        for begin in groups:
            start = self.reserve(self.array.split)
            self.clock.busy["collectors"] += self.array.split
            self.clock.at(start + self.array.split + 1, (*key, "collect", begin), partial(add, begin))


class VectorPipelines(Copies):
    """Copies of a `Pipeline`; each takes a vector per cycle."""

    def __init__(self, clock: Clock, pipeline: Pipeline, copies: int) -> None:
        super().__init__(clock, copies)
        self.pipeline = pipeline

    def take(self, key: Key, values: dict[str, Any], done: Callable[[dict[str, Any]], None]) -> None:
        """One vector's ``values`` (by name, ``[up to lanes]``) are read in one cycle and pass all ops."""
        start = self.reserve(1)
        self.clock.busy["element-wise pipelines"] += 1
        ops = self.pipeline.done
        for number, (cycle, op) in enumerate(ops):
            self.clock.at(start + 1 + cycle, (*key, number), partial(op, values))
        self.clock.at(start + 1 + self.pipeline.latency, (*key, "out"), lambda: done(values))


class Dram(Copies):
    """The channel to the memory outside: one request after the other."""

    def __init__(self, clock: Clock, bytes_per_cycle: float, latency: int) -> None:
        super().__init__(clock, 1)
        self.rate, self.latency = bytes_per_cycle, latency

    def request(self, key: Key, count: int, done: Callable[[], None]) -> None:
        """``count`` bytes either way; ``done`` when the last has arrived."""
        cycles = channel_cycles(count, self.rate)
        start = self.reserve(cycles)
        self.clock.busy["memory channel"] += cycles
        self.clock.at(start + cycles + self.latency, key, done)
