"""The kernels of `bslite.explore.spatial.kernels` executed on the simulated units, cycle by cycle."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bslite.explore.spatial import cells
from bslite.explore.spatial.array import WORD
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.kernels import Elementwise, H, KernelMapping, Product, X
from bslite.explore.spatial.result import LayerRun, Moment
from bslite.explore.spatial.stream import WeightStream
from bslite.explore.spatial.units import Clock, Collectors, DotPipeline, Dram, Issue
from bslite.explore.spatial.weights import LayerWeights, tiles


class KernelRun:
    """One layer on the machine; between kernels everything lies in memory."""

    def __init__(
        self, mapping: KernelMapping, weights: LayerWeights, x: Array, state: Sequence[Array] | None
    ) -> None:
        m = self.mapping = mapping
        p = m.problem
        self.x, self.steps = x, len(x)
        clock = self.clock = Clock()
        self.array = DotPipeline(clock, m.array)
        self.collectors = Collectors(clock, m.array)
        self.dram = Dram(clock, m.machine.dram_bytes_per_cycle, m.machine.dram_latency)
        self.ports = [0] * m.tile_columns  # of the memories that h is read from: taken until
        self._lay_out(weights)
        first = [np.zeros((p.batch, p.hidden), np.float32)] * p.states if state is None else state
        #: Vectors between kernels, by name, [batch, hidden]; h and c among them.
        self.vectors: dict[str, Array] = {"h": first[0].copy()}
        if p.states == 2:
            self.vectors["c"] = first[1].copy()
        self.next_h = self.vectors["h"].copy()
        self.outputs = np.zeros((self.steps, p.batch, p.hidden), np.float32)
        self.x_ready: dict[int, Array] = {}
        self.left = 0  # results of the running kernel still to be written
        self._request_x(0)
        self.stream = WeightStream(self.dram, self.blocks, m.streamed_blocks, self.steps)

    def _lay_out(self, weights: LayerWeights) -> None:
        """Each kernel's matrix in tiles; all kernels' blocks in one row, as they are used."""
        m = self.mapping
        p = m.problem
        names = cells.SUMS[p.kind]
        self.blocks: list[Array] = []
        self.first_block: list[int] = []
        self.begin: list[Array] = []  # of each kernel, [blocks, rows, split]
        for product in m.products:
            pieces, biases = [], []
            for name in product.sums:
                gate = min(names.index(name), p.gates - 1)  # the GRU's last gate makes two sums
                rows = slice(gate * p.hidden, (gate + 1) * p.hidden)
                by_part = {X: weights.weight_ih[rows], H: weights.weight_hh[rows]}
                bias = {X: weights.bias_ih[rows], H: weights.bias_hh[rows]}
                pieces.append(np.hstack([by_part[part] for part in product.reads]))
                biases.append(np.sum([bias[part] for part in product.reads], axis=0, dtype=np.float32))
            matrix = np.vstack(pieces)
            index = np.arange(m.blocks(product) * m.tile_rows).reshape(-1, m.tile_rows)
            index = np.where(index < len(matrix), index, -1)
            self.first_block.append(len(self.blocks))
            self.blocks += list(tiles(matrix, index, m.tile_columns, m.machine.lanes))
            begin = np.zeros((*index.shape, m.tile_columns), np.float32)
            begin[..., 0] = np.append(np.concatenate(biases), np.float32(0))[index]
            self.begin.append(begin)

    def run(self) -> LayerRun:
        """All steps, kernel after kernel; then until nothing is on its way."""
        m, clock = self.mapping, self.clock
        moments = []
        for step in range(self.steps):
            for number, product in enumerate(m.products):
                if number == 0:
                    if step:
                        moments.append(self._moment(step))
                    self._request_x(step + 1)
                self._product(step, number, product)
            for number, kernel in enumerate(m.elementwise):
                self._elementwise(step, number, kernel)
            self.vectors["h"] = self.next_h.copy()
            self.outputs[step] = self.next_h
            count = m.problem.batch * m.problem.hidden * WORD
            self.dram.request((step, "outputs"), count, lambda: None)
        while not clock.idle:
            self._idle()
            clock.skip()
        state = tuple(self.vectors[name] for name in ("h", "c")[: m.problem.states])
        units = {"multiplying PCUs": m.array.pcus, "memory channel": 1}
        units["element-wise pipelines"] = max(k.copies for k in m.elementwise)
        if m.tile_columns > 1:
            units["collectors"] = m.array.collectors
        return LayerRun(self.outputs, state, clock.now, moments, clock.busy, clock.stalls, units)

    def _idle(self, reason: str | None = None, cycles: int = 1) -> None:
        """Cycles in which the array is given nothing new."""
        for _ in range(cycles):
            self.clock.tick()
            self.array.tick(None)
            if reason is not None:
                self.clock.stalls[reason] += 1

    def _product(self, step: int, number: int, product: Product) -> None:
        """One matrix-vector kernel, from launch to the barrier."""
        m, clock = self.mapping, self.clock
        p, kinds = m.problem, product.reads
        if X in kinds:
            while step not in self.x_ready:
                self._idle("inputs")
        self._idle("starting kernels", m.machine.launch_cycles + m.array.reach)
        vector = np.zeros((p.batch, m.chunks(product) * m.columns), np.float32)
        parts = {X: lambda: self.x_ready[step], H: lambda: self.vectors["h"]}
        joint = np.hstack([parts[kind]() for kind in kinds])
        vector[:, : joint.shape[1]] = joint
        read = vector.reshape(p.batch, -1, m.tile_columns, m.machine.lanes)
        rows = len(product.sums) * p.hidden
        result = np.zeros((p.batch, m.blocks(product) * m.tile_rows), np.float32)
        self.left = m.blocks(product) * p.batch
        for block in range(m.blocks(product)):
            place = self.first_block[number] + block
            for sequence in range(p.batch):
                for k in range(m.chunks(product)):
                    clock.tick()
                    while (held := self.stream.find(step, place)) is None:
                        self.array.tick(None)
                        clock.stalls["weights"] += 1 + (clock.skip() if self.array.empty else 0)
                        clock.tick()
                    key = (step, number, block, sequence, k)
                    last = k == m.chunks(product) - 1
                    target = result[sequence, block * m.tile_rows : (block + 1) * m.tile_rows]
                    emit = partial(self._arrive, key, target) if last else None
                    start = self.begin[number][block] if k == 0 else None
                    self.array.tick(Issue(held[k], read[sequence, k], start, None, emit, key))
                    for _ in range(m.array.interval - 1):
                        self._idle()
            self.stream.release(step, place)
        self._finish(m.array.reach)
        for i, name in enumerate(product.sums):
            self.vectors[name] = result[:, :rows][:, i * p.hidden : (i + 1) * p.hidden].copy()

    def _arrive(self, key: tuple[int, ...], target: Array, sums: Array) -> None:
        """Parts of a block's sums have come to the hub; added up, they go to memory."""

        def complete(total: Array) -> None:
            arrives = self.clock.now + self.mapping.array.reach + 1
            self.clock.at(arrives, (*key, "written"), lambda: self._write(target, total))

        self.collectors.take(key, sums, complete)

    def _write(self, target: Array, values: Array) -> None:
        target[...] = values
        self.left -= 1

    def _finish(self, reach: int) -> None:
        """Until the last result is written, and the controller knows."""
        while self.left:
            self._idle("finishing kernels")
        self._idle("finishing kernels", reach)

    def _elementwise(self, step: int, number: int, kernel: Elementwise) -> None:
        """One element-wise kernel, from launch to the barrier."""
        m, clock = self.mapping, self.clock
        p, hop, lanes = m.problem, m.machine.hop_cycles, m.machine.lanes
        self._idle("starting kernels", m.machine.launch_cycles + kernel.reach)
        size = p.batch * p.hidden
        made = [op.out for op in kernel.ops]
        kept = made if m.pointwise == "each" else [name for name in made if name in ("h", "c")]
        results = {name: np.zeros(size, np.float32) for name in kept}
        sources = {arg for op in kernel.ops for arg in op.args} & set(self.vectors)
        flat = {name: self.vectors[name].reshape(-1) for name in sources}
        self.left = 0
        vectors = -(-size // lanes)
        for turn in range(kernel.turns):
            clock.tick()
            begin = turn * kernel.copies
            count = min(kernel.copies, vectors - begin)
            place = slice(begin * lanes, min((begin + count) * lanes, size))
            values: dict[str, Any] = {name: value[place] for name, value in flat.items()}
            clock.busy["element-wise pipelines"] += count
            enters = clock.now + 1 + hop
            key = (step, "kernel", number, turn)
            for op_number, (cycle, op) in enumerate(kernel.pipeline.done):
                clock.at(enters + cycle, (*key, op_number), partial(op, values))
            self.left += 1
            ends = enters + kernel.pipeline.latency
            clock.at(ends, (*key, "out"), partial(self._store, key, values, results, place, count))
            self.array.tick(None)
        self._finish(kernel.reach)
        for name, value in results.items():
            if name == "h":
                self.next_h = value.reshape(p.batch, p.hidden)
            else:
                self.vectors[name] = value.reshape(p.batch, p.hidden)

    def _store(
        self,
        key: tuple[Any, ...],
        values: dict[str, Any],
        results: dict[str, Array],
        place: slice,
        count: int,
    ) -> None:
        """The vectors of one turn go to memory; h to where the array reads it, a vector per port a cycle."""
        m, clock = self.mapping, self.clock
        arrives = clock.now + m.machine.hop_cycles + 1
        if "h" in results:
            arrives = clock.now + m.array.reach
            for _ in range(count):
                port = min(range(len(self.ports)), key=lambda i: (self.ports[i], i))
                self.ports[port] = max(self.ports[port], clock.now + m.array.reach) + 1
            arrives = max(arrives, *self.ports)

        def write() -> None:
            for name, target in results.items():
                target[place] = values[name]
            self.left -= 1

        clock.at(arrives, (*key, "written"), write)

    def _request_x(self, step: int) -> None:
        """The inputs of a step are asked for when the step before begins."""
        if step >= self.steps:
            return
        p = self.mapping.problem

        def arrived() -> None:
            self.x_ready.pop(step - 2, None)
            self.x_ready[step] = self.x[step]

        self.dram.request((step, "inputs"), p.batch * p.inputs * WORD, arrived)

    def _moment(self, step: int) -> Moment:
        """The state of everything that decides the cycles to come; called at a barrier."""
        clock = self.clock
        signature = (
            clock.signature(step),
            self.array.signature(step),
            self.collectors.signature(),
            self.dram.signature(),
            self.stream.signature(step),
            tuple(max(0, port - clock.now) for port in self.ports),
            tuple(sorted(s - step for s in self.x_ready)),
        )
        return Moment(clock.now, signature, Counter(clock.busy), Counter(clock.stalls))
