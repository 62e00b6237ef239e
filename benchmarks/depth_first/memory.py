"""Memory that one run of bslite takes, measured in a process of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.memory import Growth, apart

CAPTION = (
    "growth of the resident memory of a fresh process, to its peak, during the first run; weights, plan, "
    "kernels, threads and input were there before"
)


def memory_of_a_run(model: Path, shape: Sequence[int], threads: int, layerwise: bool) -> int:
    """Bytes, as `CAPTION` says; ``model`` is a file, ``shape`` the input's. Raises Unmeasurable."""
    case = {"model": str(model), "shape": list(shape), "threads": threads, "layerwise": layerwise}
    return apart(__name__, case)["peak"]


def measure(model: str, shape: Sequence[int], threads: int, layerwise: bool) -> dict[str, int]:
    """As `memory_of_a_run`, of this process, which must be a fresh one."""
    from bslite.api import run
    from bslite.engines.cpu import prepare
    from bslite.engines.cpu.job import start_threads
    from bslite.spec import load

    spec = load(Path(model))
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    prepare(spec, [x], threads, layerwise)  # plans, packs weights, compiles; allocates no activations yet
    start_threads(threads)
    growth = Growth()
    run(spec, x, layerwise=layerwise, threads=threads)
    return {"peak": growth.peak()}
