"""The kernels of `bslite.explore.spatial.kernels` executed on the simulated units, cycle by cycle."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bslite.explore.spatial import cells
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.kernels import Elementwise, H, KernelMapping, Product, X
from bslite.explore.spatial.result import LayerRun
from bslite.explore.spatial.simulation import Simulation
from bslite.explore.spatial.units import Copies, Issue, Key
from bslite.explore.spatial.weights import LayerWeights, tiles


class KernelRun(Simulation[KernelMapping]):
    """One layer on the machine; between kernels everything lies in memory."""

    def __init__(
        self, mapping: KernelMapping, weights: LayerWeights, x: Array, state: Sequence[Array] | None
    ) -> None:
        super().__init__(mapping, self._lay_out(mapping, weights), x, state)
        #: Of the memories that h is read from.
        self.ports = Copies(self.clock, mapping.tile_columns)
        #: Vectors between kernels, by name, [batch, hidden]; h and c among them.
        self.vectors: dict[str, Array] = {
            name: value.copy() for name, value in zip("hc", self.first, strict=False)
        }
        self.next_h = self.vectors["h"].copy()
        self.left = 0  # results of the running kernel still to be written

    def _lay_out(self, m: KernelMapping, weights: LayerWeights) -> list[Array]:
        """Each kernel's matrix in tiles; all kernels' blocks in one row, as they are used."""
        p = m.problem
        names = cells.SUMS[p.kind]
        blocks: list[Array] = []
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
            self.first_block.append(len(blocks))
            blocks += list(tiles(matrix, index, m.tile_columns, m.machine.lanes))
            begin = np.zeros((*index.shape, m.tile_columns), np.float32)
            begin[..., 0] = np.append(np.concatenate(biases), np.float32(0))[index]
            self.begin.append(begin)
        return blocks

    def run(self) -> LayerRun:
        """All steps, kernel after kernel; then until nothing is on its way."""
        m = self.mapping
        for step in range(self.steps):
            self.begin_step(step)
            for number, product in enumerate(m.products):
                self._product(step, number, product)
            for number, kernel in enumerate(m.elementwise):
                self._elementwise(step, number, kernel)
            self.vectors["h"] = self.next_h.copy()
            self.outputs[step] = self.next_h
            self.send_outputs(step)
        self.drain()
        state = tuple(self.vectors[name] for name in ("h", "c")[: m.problem.states])
        return self.result(state, max(k.copies for k in m.elementwise))

    def _product(self, step: int, number: int, product: Product) -> None:
        """One matrix-vector kernel, from launch to the barrier."""
        m, clock = self.mapping, self.clock
        p, kinds = m.problem, product.reads
        if X in kinds:
            while step not in self.x_ready:
                self.idle("inputs")
        self.idle("starting kernels", m.machine.launch_cycles + m.array.reach)
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
                        self.idle()
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
            self.idle("finishing kernels")
        self.idle("finishing kernels", reach)

    def _elementwise(self, step: int, number: int, kernel: Elementwise) -> None:
        """One element-wise kernel, from launch to the barrier."""
        m, clock = self.mapping, self.clock
        p, hop, lanes = m.problem, m.machine.hop_cycles, m.machine.lanes
        self.idle("starting kernels", m.machine.launch_cycles + kernel.reach)
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
                self.ports.reserve(1, clock.now + m.array.reach)
            arrives = max(arrives, *self.ports.free)

        def write() -> None:
            for name, target in results.items():
                target[place] = values[name]
            self.left -= 1

        clock.at(arrives, (*key, "written"), write)

    def signature(self, step: int) -> Key:
        """For how many more cycles h's memories are written to."""
        return (self.ports.signature(),)
