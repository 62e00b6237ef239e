"""Run a model under the clock; say, layer by layer, what was done and how far that is from the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from bslite.api import as_arrays, check_threads
from bslite.errors import InputError
from bslite.explanation.inside import inner_shares
from bslite.explanation.layers import layer_rows
from bslite.explanation.limits import Limits, measured
from bslite.explanation.memory import memory_of
from bslite.explanation.profile import profile
from bslite.explanation.result import Explanation
from bslite.ops import Shape
from bslite.spec import Array, ModelSpec


def explain(
    spec: Any,
    shape: Any = None,
    *,
    threads: int | None = None,
    batch: int | None = None,
    runs: int = 15,
    limits: Limits | None = None,
) -> Any:
    """Where the time of ``spec`` goes on the CPU engine: an `Explanation`.

    ``shape`` is the input's shape, a list of shapes for several inputs, or the input itself as `bslite.run`
    takes it; by default the model's example shapes, with ``batch`` images. ``threads`` defaults to the cores
    this process may use. Medians over ``runs`` traced runs, after some to warm up. ``limits`` are the rates
    to hold the layers against; by default they are measured, once per process.

    Of a module made by `bslite.optimize`, a `bslite.dropin.explaining.ModuleExplanation`: what runs in bslite
    and what in torch, which part was measured slower than in torch and stays there, and an explanation of
    each of the others, at the sizes they were specialised on.

    Raises InputError and SpecError as `bslite.run` does.
    """
    if hasattr(type(spec), "_bslite_runner"):
        from bslite.dropin.explaining import explain_module

        if shape is not None or batch is not None:
            raise InputError("explain() of an optimized module takes no shape: call the module with it first")
        return explain_module(spec, runs=runs, limits=limits, **({"threads": threads} if threads else {}))
    from bslite.engines.cells import inputs_to_cells
    from bslite.engines.cpu import engine_for, prepare
    from bslite.engines.cpu.detect import detect

    if not isinstance(spec, ModelSpec):
        raise InputError(f"explain() takes a ModelSpec first, got {type(spec).__name__}")
    check_threads(threads)
    inputs = inputs_to_cells(spec, _inputs(spec, shape, batch))
    session = prepare(spec, inputs, threads, False)
    timing = profile(session, inputs, runs)
    limits = limits or measured(timing.threads)
    engine, plan = engine_for(spec), session.plan
    outputs = [np.empty(v.shape, np.float32) for v in plan.outputs]
    inner = inner_shares(session, inputs, outputs, engine.constant)
    rows = layer_rows(spec, engine.spec, plan, detect(plan.threads), timing, inner, limits)
    return Explanation(
        spec.name, plan.shapes, tuple(rows), timing, limits, memory_of(engine.spec, plan, timing)
    )


def _inputs(spec: ModelSpec, given: Any, batch: int | None) -> list[Array]:
    """What to run on: the arrays given, or seeded random ones of the shapes given."""
    shapes: list[Shape]
    if given is None:
        shapes = [i.example for i in spec.inputs]
    elif isinstance(given, (tuple, list)) and all(isinstance(n, int) for n in given):
        shapes = [tuple(given)]
    elif isinstance(given, (tuple, list)) and all(isinstance(s, (tuple, list)) for s in given):
        shapes = [tuple(s) for s in given]
    else:
        if batch is not None:
            raise InputError("give either an input or a batch")
        return as_arrays(spec, given)[0]
    if batch is not None:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise InputError(f"batch must be a positive integer, got {batch!r}")
        shapes = [(batch, *s[1:]) for s in shapes]
    spec.infer_shapes(shapes)
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(s, np.float32) if i.dtype == "float32" else rng.integers(0, 2, s).astype(i.dtype)
        for i, s in zip(spec.inputs, shapes, strict=True)
    ]
