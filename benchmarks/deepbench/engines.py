"""The rivals: those of `benchmarks.peers` that run a recurrent layer, and bslite traced."""

import statistics
import time

import numpy as np

from benchmarks.peers.engines import ENGINES as PEERS
from bslite.explore.cpu import Loops
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import Array, ModelSpec

KERNEL = "recurrent"
ENGINES = {name: PEERS[name] for name in ("bslite", "torch", "onnxruntime", "openvino")}


class Traced:
    """bslite's engine, every call traced: how long its recurrent steps take of a run.

    The plan and the weights are those of ``bslite.run`` with these arguments; ``loops`` instead of the
    search's pick, if given.
    """

    def __init__(self, spec: ModelSpec, x: Array, threads: int, loops: Loops | None = None) -> None:
        from bslite.engines.cpu.engine import prepare
        from bslite.kernels.cpu.runtime.walk import EVENT

        self.x, self.session = x, prepare(spec, [x], threads, False, tuning=Tuning(loops))
        self.out = [np.empty(v.shape, np.float32) for v in self.session.plan.outputs]
        self.steps = [i for i, s in enumerate(self.session.plan.steps) if s.kernel == KERNEL]
        self.column = {name: i for i, name in enumerate(EVENT)}
        self.spans: list[int] = []  # in ticks, one of each call
        self.ends: list[tuple[int, float]] = []  # ticks and seconds when a call was over

    def __call__(self) -> None:
        trace = self.session.trace([self.x], self.out)
        now = time.perf_counter()
        ours = trace[np.isin(trace[:, self.column["step"]], self.steps)]
        stop = ours[:, self.column["stop"]].max(initial=0)
        start = ours[:, self.column["start"]].min(initial=stop)
        self.spans.append(int(stop - start))
        self.ends.append((int(trace[:, self.column["stop"]].max()), now))

    def seconds(self, rounds: int, per_turn: int) -> float:
        """Median of the last ``rounds`` turns of one call that does not count and ``per_turn`` that do."""
        turn = 1 + per_turn
        spans = [s for i, s in enumerate(self.spans[-rounds * turn :]) if i % turn]
        (first, start), (last, end) = self.ends[0], self.ends[-1]
        return statistics.median(spans) * (end - start) / (last - first)
