"""The loop nest of `bslite.explore.spatial.loop` executed on the simulated units, cycle by cycle."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bslite.explore.spatial import cells
from bslite.explore.spatial.array import WORD
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.loop import LoopMapping
from bslite.explore.spatial.result import LayerRun, Moment
from bslite.explore.spatial.stream import WeightStream
from bslite.explore.spatial.units import Clock, Collectors, DotPipeline, Dram, Issue, VectorPipelines
from bslite.explore.spatial.weights import LayerWeights, tiles


class LoopRun:
    """One layer on the machine. Memories are arrays, laid out as `DotArray` says."""

    def __init__(
        self, mapping: LoopMapping, weights: LayerWeights, x: Array, state: Sequence[Array] | None
    ) -> None:
        m = self.mapping = mapping
        p, machine = m.problem, m.machine
        self.x, self.steps = x, len(x)
        clock = self.clock = Clock()
        self.array = DotPipeline(clock, m.array)
        self.collectors = Collectors(clock, m.array)
        self.pipelines = VectorPipelines(clock, m.pipeline, m.pipelines)
        self.dram = Dram(clock, machine.dram_bytes_per_cycle, machine.dram_latency)
        self._lay_out(weights)
        units = m.blocks * m.hu
        first = [np.zeros((p.batch, p.hidden), np.float32)] * p.states if state is None else state
        # The hub's memories: x and h twice, as chunks for the array; the state, as vectors for the pipeline.
        self.x_memory = np.zeros((2, p.batch, m.x_chunks, m.ru, m.rv), np.float32)
        self.h_memory = np.zeros((2, p.batch, m.h_chunks, m.ru, m.rv), np.float32)
        self.state = np.zeros((p.states, p.batch, units), np.float32)
        self.state[:, :, : p.hidden] = first
        self.h_memory[1].reshape(p.batch, -1)[:, : p.hidden] = first[0]  # as if of step -1
        self.outputs = np.zeros((self.steps, p.batch, p.hidden), np.float32)
        self.x_ready: set[int] = set()
        self.h_left: Counter[tuple[int, int]] = Counter()  # (step, sequence): vectors of h still to come
        self.sums: dict[tuple[int, int, int], dict[str, Any]] = {}  # (step, block, sequence): what is there
        self._request_x(0)
        self.stream = WeightStream(self.dram, list(self.tiles), m.streamed_blocks, self.steps)

    def _lay_out(self, weights: LayerWeights) -> None:
        """Weights as the memories hold them, and the values that sums start from."""
        m = self.mapping
        p = m.problem
        unit = np.arange(m.blocks * m.hu).reshape(m.blocks, 1, 1, m.hu)
        gate = np.arange(p.gates).reshape(1, m.rounds, m.gp, 1)
        rows = np.where(unit < p.hidden, gate * p.hidden + unit, -1).reshape(m.blocks * m.rounds, -1)
        parts = [tiles(w, rows, m.ru, m.rv) for w in (weights.weight_ih, weights.weight_hh)]
        held = np.concatenate(parts, axis=1)
        self.tiles = held.reshape(m.blocks, m.rounds, m.chunks, m.array.rows, m.ru, m.rv)
        # A sum over x and h starts from both biases; where they are apart, each from its own.
        begin = weights.bias_ih.reshape(p.gates, p.hidden).copy()
        whole = [g for g in range(p.gates) if g not in cells.APART[p.kind]]
        begin[whole] += weights.bias_hh.reshape(p.gates, p.hidden)[whole]
        shape = (m.blocks, m.rounds, m.array.rows, m.ru)
        self.begin, self.anew = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for target, values in ((self.begin, begin.reshape(-1)), (self.anew, weights.bias_hh)):
            target[..., 0] = np.append(values, np.float32(0))[rows].reshape(shape[:3])

    def run(self) -> LayerRun:
        """All steps, then until nothing is on its way."""
        m, clock = self.mapping, self.clock
        moments = []
        for step in range(self.steps):
            first = True
            for make, wait in self._chunks(step):
                while True:
                    clock.tick()
                    reason = wait()
                    if reason is None:
                        break
                    self.array.tick(None)
                    clock.stalls[reason] += 1 + (clock.skip() if self.array.empty else 0)
                if first:
                    first = False
                    if step:
                        moments.append(self._moment(step))
                    self._request_x(step + 1)
                self.array.tick(make())
                for _ in range(m.array.interval - 1):
                    clock.tick()
                    self.array.tick(None)
        while not (clock.idle and self.array.empty):
            clock.tick()
            self.array.tick(None)
            if self.array.empty:
                clock.skip()
        state = tuple(self.state[i, :, : m.problem.hidden] for i in range(m.problem.states))
        units = {"multiplying PCUs": m.array.pcus, "element-wise pipelines": m.pipelines, "memory channel": 1}
        if m.ru > 1:
            units["collectors"] = m.array.collectors
        return LayerRun(self.outputs, state, clock.now, moments, clock.busy, clock.stalls, units)

    def _chunks(self, step: int) -> Iterator[tuple[Callable[[], Issue], Callable[[], str | None]]]:
        """The loop nest: for each chunk how it is read, and what it still waits for."""
        m = self.mapping
        for block in range(m.blocks):
            for sequence in range(m.problem.batch):
                for turn in range(m.rounds):
                    for k in range(m.chunks):
                        yield (
                            partial(self._issue, step, block, sequence, turn, k),
                            partial(self._waits, step, block, sequence, k),
                        )
            self.stream.release(step, block)

    def _waits(self, step: int, block: int, sequence: int, k: int) -> str | None:
        if k < self.mapping.x_chunks:
            if step not in self.x_ready:
                return "inputs"
        elif self.h_left[step - 1, sequence]:
            return "h of the step before"
        return None if self.stream.find(step, block) is not None else "weights"

    def _issue(self, step: int, block: int, sequence: int, turn: int, k: int) -> Issue:
        m = self.mapping
        held = self.stream.find(step, block)
        assert held is not None
        of_x = k < m.x_chunks
        if of_x:
            vector = self.x_memory[step % 2, sequence, k]
        else:
            vector = self.h_memory[(step + 1) % 2, sequence, k - m.x_chunks]
        if turn == k == 0:
            self._expect(step, block, sequence)
        start = self.begin[block, turn] if k == 0 else None
        restart, emit = None, None
        if apart := m.apart_in(turn):
            first = (apart[0] - turn * m.gp) * m.hu
            rows = slice(first, first + len(apart) * m.hu)
            if k == m.x_chunks - 1:
                names = [cells.SUMS[m.problem.kind][g] for g in apart]
                emit = partial(self._arrive, step, block, sequence, names, rows)
            elif k == m.x_chunks:
                restart = (rows, self.anew[block, turn, rows])
        if k == m.chunks - 1:
            names = [self._whole_name(g) for g in m.gates_in(turn)]
            emit = partial(self._arrive, step, block, sequence, names, slice(None))
        key = (step, block, sequence, turn, k)
        # What was read is on its way: a copy, for the memory may be written before it arrives.
        return Issue(held[turn, k], vector.copy(), start, restart, emit, key)

    def _whole_name(self, gate: int) -> str:
        """The name of what a gate's rows hold after the last chunk."""
        names, kind = cells.SUMS[self.mapping.problem.kind], self.mapping.problem.kind
        return names[gate + 1] if gate in cells.APART[kind] else names[gate]

    def _expect(self, step: int, block: int, sequence: int) -> None:
        """A block's dot products begin: its h will come."""
        self.sums[step, block, sequence] = {}
        if block == 0:
            self.h_left[step, sequence] = self.mapping.blocks * self.mapping.vectors

    def _arrive(
        self, step: int, block: int, sequence: int, names: list[str], rows: slice, sums: Array
    ) -> None:
        """Parts of sums have come to the hub: ``[rows, ru]``."""
        key = (step, "sums", block, sequence, names[0])
        self.collectors.take(key, sums[rows], partial(self._complete, step, block, sequence, names))

    def _complete(self, step: int, block: int, sequence: int, names: list[str], sums: Array) -> None:
        """Sums are there; with all gates', the block's vectors go through the pipeline."""
        m = self.mapping
        there = self.sums[step, block, sequence]
        there.update(zip(names, sums.reshape(len(names), m.hu), strict=True))
        if len(there) < m.sums:
            return
        del self.sums[step, block, sequence]
        for begin in range(0, m.hu, m.machine.lanes):
            units = slice(begin, min(begin + m.machine.lanes, m.hu))
            place = slice(block * m.hu + units.start, block * m.hu + units.stop)
            values = {name: value[units] for name, value in there.items()}
            for i, name in enumerate(("h", "c")[: m.problem.states]):
                values[name] = self.state[i, sequence, place].copy()
            key = (step, "new", block, sequence, begin)
            self.pipelines.take(key, values, partial(self._send, step, sequence, place))

    def _send(self, step: int, sequence: int, place: slice, values: dict[str, Any]) -> None:
        """A vector of new state: c stays in the hub; h goes to the memories it is read from, and out."""
        if self.mapping.problem.states == 2:
            self.state[1, sequence, place] = values["c"]
        h = values["h"]
        arrives = self.clock.now + self.mapping.array.reach + 1
        key = (step, "h", place.start, sequence)
        self.clock.at(arrives, key, lambda: self._written(step, sequence, place, h))

    def _written(self, step: int, sequence: int, place: slice, h: Array) -> None:
        p = self.mapping.problem
        self.state[0, sequence, place] = h
        end = min(place.stop, p.hidden)
        if place.start < end:
            valid = h[: end - place.start]
            self.h_memory[step % 2, sequence].reshape(-1)[place.start : end] = valid
            self.outputs[step, sequence, place.start : end] = valid
        self.h_left[step, sequence] -= 1
        if self.h_left[step, sequence]:
            return
        del self.h_left[step, sequence]
        if sequence == p.batch - 1:
            self.dram.request((step, "outputs"), p.batch * p.hidden * WORD, lambda: None)

    def _request_x(self, step: int) -> None:
        """The inputs of a step are asked for, into the memory that the step before last is done with."""
        if step >= self.steps:
            return
        p = self.mapping.problem

        def arrived() -> None:
            flat = self.x_memory[step % 2].reshape(p.batch, -1)
            flat[:, : p.inputs] = self.x[step]
            self.x_ready.discard(step - 2)
            self.x_ready.add(step)

        self.dram.request((step, "inputs"), p.batch * p.inputs * WORD, arrived)

    def _moment(self, step: int) -> Moment:
        """The state of everything that decides the cycles to come; called when ``step`` can begin."""
        clock = self.clock
        signature = (
            clock.signature(step),
            self.array.signature(step),
            self.collectors.signature(),
            self.pipelines.signature(),
            self.dram.signature(),
            self.stream.signature(step),
            tuple(sorted(s - step for s in self.x_ready)),
            tuple(sorted((s - step, b, left) for (s, b), left in self.h_left.items() if left)),
            tuple(sorted((s - step, *rest, *sorted(there)) for (s, *rest), there in self.sums.items())),
        )
        return Moment(clock.now, signature, Counter(clock.busy), Counter(clock.stalls))
