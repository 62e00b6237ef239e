"""One layer on the simulated machine: what every way of running it has, whatever its order of work."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from bslite.explore.spatial.array import WORD
from bslite.explore.spatial.cells import Array
from bslite.explore.spatial.kernels import KernelMapping
from bslite.explore.spatial.loop import LoopMapping
from bslite.explore.spatial.result import LayerRun, Moment
from bslite.explore.spatial.stream import WeightStream
from bslite.explore.spatial.units import Clock, Collectors, DotPipeline, Dram, Key

M = TypeVar("M", LoopMapping, KernelMapping)


class Simulation(ABC, Generic[M]):
    """The units, the channel to memory, and inputs that are asked for when the step before begins.

    ``x [steps, batch, ...]`` as it lies in the memories; ``blocks`` of weights, as `WeightStream` takes them.
    """

    def __init__(self, mapping: M, blocks: Sequence[Array], x: Array, state: Sequence[Array] | None) -> None:
        self.mapping: M = mapping
        self.x, self.steps = x, len(x)
        p, machine = mapping.problem, mapping.machine
        clock = self.clock = Clock()
        self.array = DotPipeline(clock, mapping.array)
        self.collectors = Collectors(clock, mapping.array)
        self.dram = Dram(clock, machine.dram_bytes_per_cycle, machine.dram_latency)
        #: h, and for the LSTM c, before the first step: [batch, hidden].
        self.first = [np.zeros((p.batch, p.hidden), np.float32)] * p.states if state is None else state
        self.outputs = np.zeros((self.steps, p.batch, p.hidden), np.float32)
        self.x_ready: dict[int, Array] = {}  # by step: inputs that have arrived
        self.moments: list[Moment] = []
        self._request_x(0)
        self.stream = WeightStream(self.dram, blocks, mapping.streamed_blocks, self.steps)

    def idle(self, reason: str | None = None, cycles: int = 1) -> None:
        """Cycles in which the array is given nothing new."""
        for _ in range(cycles):
            self.clock.tick()
            self.array.tick(None)
            if reason is not None:
                self.clock.stalls[reason] += 1

    def begin_step(self, step: int) -> None:
        """A step begins: a moment to compare with others, and the next step's inputs are asked for."""
        clock = self.clock
        if step:
            signature = (
                clock.signature(step),
                self.array.signature(step),
                self.collectors.signature(),
                self.dram.signature(),
                self.stream.signature(step),
                tuple(sorted(s - step for s in self.x_ready)),
                *self.signature(step),
            )
            self.moments.append(Moment(clock.now, signature, Counter(clock.busy), Counter(clock.stalls)))
        self._request_x(step + 1)

    @abstractmethod
    def signature(self, step: int) -> Key:
        """What else decides the cycles to come, as seen from now and from ``step``."""

    def _request_x(self, step: int) -> None:
        """Ask for a step's inputs, into the memory that the step before last is done with."""
        if step >= self.steps:
            return
        p = self.mapping.problem

        def arrived() -> None:
            self.x_ready.pop(step - 2, None)
            self.x_ready[step] = self.x[step]

        self.dram.request((step, "inputs"), p.batch * p.inputs * WORD, arrived)

    def send_outputs(self, step: int) -> None:
        """A step's outputs go to the memory outside."""
        p = self.mapping.problem
        self.dram.request((step, "outputs"), p.batch * p.hidden * WORD, lambda: None)

    def drain(self) -> None:
        """Until nothing is on its way."""
        while not (self.clock.idle and self.array.empty):
            self.idle()
            if self.array.empty:
                self.clock.skip()

    def result(self, state: tuple[Array, ...], pipelines: int) -> LayerRun:
        """What was simulated; ``pipelines``: copies of the element-wise pipeline."""
        array, clock = self.mapping.array, self.clock
        units = {"multiplying PCUs": array.pcus, "element-wise pipelines": pipelines, "memory channel": 1}
        if array.split > 1:
            units["collectors"] = array.collectors
        return LayerRun(self.outputs, state, clock.now, self.moments, clock.busy, clock.stalls, units)
