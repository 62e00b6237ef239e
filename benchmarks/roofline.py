"""What this machine can do at best, measured now: arithmetic by SGEMM, memory by copying and reading.

A network cannot be faster than its floor: its multiply-adds at the rate of the best matrix product, or its
compulsory bytes (weights, inputs and outputs once each) at the speed of memory, whichever takes longer.
"""

import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bslite.cli.timing import seconds_of
from bslite.ops import Kind, Shape
from bslite.spec import ModelSpec
from bslite.spec.table import layer_rows

SIZES = (1024, 2048)  # rows of the square matrices; the better rate counts
BUFFER = 256 << 20  # bytes, well beyond any cache


@dataclass(frozen=True)
class Roofline:
    """Rates of one machine at one number of threads: flop/s and bytes/s."""

    threads: int
    sgemm: dict[str, float]
    copy: float
    read: float
    fma: float | None = None  # our own microkernel's, where it can be measured

    @property
    def bandwidth(self) -> float:
        """The faster of copying (bytes read plus written) and reading."""
        return max(self.copy, self.read)

    def best(self, other: "Roofline") -> "Roofline":
        """The higher of each rate: what disturbs a measurement only ever lowers it."""
        fma = [rate for rate in (self.fma, other.fma) if rate is not None]
        return Roofline(
            self.threads,
            {name: max(rate, other.sgemm[name]) for name, rate in self.sgemm.items()},
            max(self.copy, other.copy),
            max(self.read, other.read),
            max(fma) if fma else None,
        )

    def floor(self, flops: float, bytes_: float) -> float:
        """Seconds that ``flops`` and ``bytes_`` take at least, at the fastest SGEMM's rate."""
        return max(flops / max(self.sgemm.values()), bytes_ / self.bandwidth)

    def fma_floor(self, flops: float, bytes_: float) -> float | None:
        """As `floor`, at the rate of our own microkernel."""
        return None if self.fma is None else max(flops / self.fma, bytes_ / self.bandwidth)


def measure(threads: int) -> Roofline:
    """Measure, with torch where it is installed and NumPy where its thread count is the same."""
    sgemm: dict[str, float] = {}
    if threads == _numpy_threads():
        sgemm["numpy"] = max(map(_numpy_sgemm, SIZES))
    try:
        import torch
    except ModuleNotFoundError:
        source = np.ones(BUFFER // 4, np.float32)
        target = np.empty_like(source)
        copy = 2 * BUFFER / _fastest(lambda: np.copyto(target, source))
        read = BUFFER / _fastest(lambda: source.sum())
    else:
        torch.set_num_threads(threads)
        sgemm["torch"] = max(map(_torch_sgemm, SIZES))
        here, there = torch.ones(BUFFER // 4), torch.empty(BUFFER // 4)
        copy = 2 * BUFFER / _fastest(lambda: there.copy_(here))
        read = BUFFER / _fastest(lambda: here.sum())
    return Roofline(threads, sgemm, copy, read, fma_rate(threads))


def fma_rate(threads: int) -> float:
    """flop/s of our own microkernel out of registers and L1."""
    from bslite.engines.cpu import peak

    return peak.fma_rate(threads)


def work(spec: ModelSpec, batch: int, shape: Shape | None = None) -> tuple[float, float]:
    """``(flops, bytes)``: of convolutions and matrix products; of weights, inputs and outputs once.

    ``shape``: of the one input, where the batch is not its first axis.
    """
    shapes = [(batch, *i.example[1:]) for i in spec.inputs] if shape is None else [shape]
    inferred = spec.infer_shapes(shapes)
    contractions = {n.name for n in spec.nodes if n.declaration.kind is Kind.CONTRACTION}
    flops = sum(row.flops for row in layer_rows(spec, shapes) if row.name in contractions)
    used = {key for node in spec.nodes for key in node.params.values()}
    elements = sum(spec.params[key].size for key in used)
    elements += sum(math.prod(s) for s in shapes) + sum(math.prod(inferred[name]) for name in spec.outputs)
    return float(flops), 4.0 * elements


def _numpy_sgemm(size: int) -> float:
    a, b = (np.random.default_rng(seed).random((size, size), np.float32) for seed in (0, 1))
    out = np.empty_like(a)
    return 2 * size**3 / _fastest(lambda: np.matmul(a, b, out=out))


def _torch_sgemm(size: int) -> float:
    import torch

    a, b, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    return 2 * size**3 / _fastest(lambda: torch.mm(a, b, out=out))


def _fastest(call: Callable[[], object], runs: int = 9) -> float:
    """Seconds of one call: the median of the faster half of ``runs``, so neither luck nor disturbance."""
    call()
    return statistics.median(sorted(seconds_of(call) for _ in range(runs))[:5])


def _numpy_threads() -> int:
    """Threads NumPy's matrix product uses: all cores it may, or what the environment says."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
