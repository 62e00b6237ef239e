"""The loop nest of `bslite.explore.spatial.loop` executed on the simulated units, cycle by cycle."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bslite.explore.spatial import cells
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.loop import LoopMapping
from bslite.explore.spatial.result import LayerRun
from bslite.explore.spatial.simulation import Simulation
from bslite.explore.spatial.units import Issue, Key, VectorPipelines
from bslite.explore.spatial.weights import LayerWeights, tiles


class LoopRun(Simulation[LoopMapping]):
    """One layer on the machine. Memories are arrays, laid out as `DotArray` says."""

    def __init__(
        self, mapping: LoopMapping, weights: LayerWeights, x: Array, state: Sequence[Array] | None
    ) -> None:
        m, p = mapping, mapping.problem
        laid = np.zeros((len(x), p.batch, m.x_chunks, m.ru, m.rv), np.float32)
        laid.reshape(len(x), p.batch, -1)[..., : p.inputs] = x
        super().__init__(m, self._lay_out(m, weights), laid, state)
        self.pipelines = VectorPipelines(self.clock, m.pipeline, m.pipelines)
        # The hub's memories: h twice, as chunks for the array; the state, as vectors for the pipeline.
        self.h_memory = np.zeros((2, p.batch, m.h_chunks, m.ru, m.rv), np.float32)
        self.state = np.zeros((p.states, p.batch, m.blocks * m.hu), np.float32)
        self.state[:, :, : p.hidden] = self.first
        self.h_memory[1].reshape(p.batch, -1)[:, : p.hidden] = self.first[0]  # as if of step -1
        self.h_left: Counter[tuple[int, int]] = Counter()  # (step, sequence): vectors of h still to come
        self.sums: dict[tuple[int, int, int], dict[str, Any]] = {}  # (step, block, sequence): what is there

    def _lay_out(self, m: LoopMapping, weights: LayerWeights) -> list[Array]:
        """Weights as the memories hold them, by block, and the values that sums start from."""
        p = m.problem
        unit = np.arange(m.blocks * m.hu).reshape(m.blocks, 1, 1, m.hu)
        gate = np.arange(p.gates).reshape(1, m.rounds, m.gp, 1)
        rows = np.where(unit < p.hidden, gate * p.hidden + unit, -1).reshape(m.blocks * m.rounds, -1)
        parts = [tiles(w, rows, m.ru, m.rv) for w in (weights.weight_ih, weights.weight_hh)]
        held = np.concatenate(parts, axis=1)
        # A sum over x and h starts from both biases; where they are apart, each from its own.
        begin = weights.bias_ih.reshape(p.gates, p.hidden).copy()
        whole = [g for g in range(p.gates) if g not in cells.APART[p.kind]]
        begin[whole] += weights.bias_hh.reshape(p.gates, p.hidden)[whole]
        shape = (m.blocks, m.rounds, m.array.rows, m.ru)
        self.begin, self.anew = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for target, values in ((self.begin, begin.reshape(-1)), (self.anew, weights.bias_hh)):
            target[..., 0] = np.append(values, np.float32(0))[rows].reshape(shape[:3])
        return list(held.reshape(m.blocks, m.rounds, m.chunks, m.array.rows, m.ru, m.rv))

    def run(self) -> LayerRun:
        """All steps, then until nothing is on its way."""
        m, clock = self.mapping, self.clock
        for step in range(self.steps):
            for block, sequence, turn, k in self._chunks(step):
                clock.tick()
                while reason := self._waits(step, block, sequence, k):
                    self.array.tick(None)
                    clock.stalls[reason] += 1 + (clock.skip() if self.array.empty else 0)
                    clock.tick()
                if block == sequence == turn == k == 0:
                    self.begin_step(step)
                self.array.tick(self._issue(step, block, sequence, turn, k))
                self.idle(cycles=m.array.interval - 1)
        self.drain()
        state = tuple(self.state[i, :, : m.problem.hidden] for i in range(m.problem.states))
        return self.result(state, m.pipelines)

    def _chunks(self, step: int) -> Iterator[tuple[int, int, int, int]]:
        """The loop nest: block, sequence, round of gates, chunk."""
        m = self.mapping
        for block in range(m.blocks):
            yield from itertools.product((block,), range(m.problem.batch), range(m.rounds), range(m.chunks))
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
            vector = self.x_ready[step][sequence, k]
        else:
            vector = self.h_memory[(step + 1) % 2, sequence, k - m.x_chunks]
        if turn == k == 0:  # a block's dot products begin: its h will come
            self.sums[step, block, sequence] = {}
            if block == 0:
                self.h_left[step, sequence] = m.blocks * m.vectors
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
            # Of a gate whose sums are apart, its rows hold the second after the last chunk.
            names = [cells.SUMS[m.problem.kind][g + (g in apart)] for g in m.gates_in(turn)]
            emit = partial(self._arrive, step, block, sequence, names, slice(None))
        key = (step, block, sequence, turn, k)
        # What was read is on its way: a copy, for the memory may be written before it arrives.
        return Issue(held[turn, k], vector.copy(), start, restart, emit, key)

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
            self.send_outputs(step)

    def signature(self, step: int) -> Key:
        """The pipelines, and which sums and vectors of h are still to come."""
        return (
            self.pipelines.signature(),
            tuple(sorted((s - step, b, left) for (s, b), left in self.h_left.items() if left)),
            tuple(sorted((s - step, *rest, *sorted(there)) for (s, *rest), there in self.sums.items())),
        )
