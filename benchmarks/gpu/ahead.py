"""Kernels compiled before they are needed, in as many processes as there are cores: one after the other they
take seconds each, and the GPU waits.
"""

import json
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bslite.engines.cpu.threads import available_cores
from bslite.ops import Shape
from bslite.spec import ModelSpec

Wanted = tuple[str, str]  # a kernel's name and its variant, as JSON


def wanted_by(spec: ModelSpec, shapes: Sequence[Shape], machine: Any) -> set[Wanted]:
    """What runs of a model take, depth-first and layer by layer."""
    from bslite.passes import simplify_for_gpu
    from bslite.plan.cuda import build_plan

    found = set()
    for layerwise in (False, True):
        plan = build_plan(simplify_for_gpu(spec), shapes, machine, layerwise=layerwise)
        found |= {(step.kernel, json.dumps(step.variant.constants(), sort_keys=True)) for step in plan.steps}
    return found


def compile_one(wanted: Wanted, capability: tuple[int, int]) -> None:
    """Leave a kernel's machine code on disk."""
    from bslite.engines.cuda.program import constants_of
    from bslite.kernels.cuda.runtime.compile import code_of

    name, variant = wanted
    code_of(name, capability, {k: constants_of(v) for k, v in json.loads(variant).items()})


class Compilers:
    """The processes, started when there is something to compile; what was compiled is not asked for again."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self._capability = capability
        self._pool: ProcessPoolExecutor | None = None
        self._done: set[Wanted] = set()

    def compile(self, wanted: Iterable[Wanted]) -> int:
        """All of these; how many were new. What fails will say so when it is needed."""
        new = sorted(set(wanted) - self._done)
        if not new:
            return 0
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a process that has a GPU must not be forked
            self._pool = ProcessPoolExecutor(available_cores(), mp_context=context)
        for one in [self._pool.submit(compile_one, each, self._capability) for each in new]:
            one.exception()
        self._done |= set(new)
        return len(new)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
