"""Which arithmetic bslite's plan of a network takes, and whether a run keeps to it."""

import numpy as np

from bslite.arithmetic import Precision
from bslite.spec import Array, ModelSpec

NONE, SOME, AGAIN = "multiply-adds", "bfloat16", "bfloat16, then multiply-adds"


def arithmetic_of(spec: ModelSpec, x: Array, threads: int, layerwise: bool, precision: str) -> str:
    """`NONE`: float32 multiply-adds alone. `SOME`: layers by products of bfloat16. `AGAIN`: such layers, but
    this input leads to numbers that have no exact parts, so each run is done again by multiply-adds.
    """
    from bslite.engines.cpu.engine import prepare
    from bslite.engines.cpu.session import address_of
    from bslite.plan.cpu.outside import INEXACT
    from bslite.plan.cpu.tuning import Tuning

    tuning = Tuning(precision=Precision(precision))
    session = prepare(spec, [x], threads, layerwise, tuning=tuning)
    if not any(flag.text == INEXACT for flag in session.plan.flags):
        return NONE
    outputs = [np.empty(shape, cell) for shape, cell in session.results]
    workspace = session.acquire()
    try:
        session.bind(workspace, map(address_of, (x, *outputs)))
        workspace.job.run(session.plan.threads)
        return AGAIN if session.check(workspace) else SOME
    finally:
        session.release(workspace)
