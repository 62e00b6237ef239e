"""`explain`: run a model under the clock and say, layer by layer, how far it is from the machine's limits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.api import as_arrays, check_threads, cuda_tensors, settled
from bslite.arithmetic import current, precision_of
from bslite.arithmetic import precision as least
from bslite.errors import EngineError, InputError
from bslite.explanation.cpu import Explanation
from bslite.explanation.data.inside import inner_shares
from bslite.explanation.data.layers import layer_rows
from bslite.explanation.data.limits import Limits, measured
from bslite.explanation.data.memory import memory_of
from bslite.explanation.data.profile import profile
from bslite.explanation.gpu import GpuExplanation, explain_on_gpu
from bslite.explanation.pieces import explain_pieces
from bslite.explore.gpu import GpuMachine
from bslite.ops import Shape
from bslite.spec import Array, ModelSpec
from bslite.spec.open import OpenModel, asked, behind, in_order, no_engine


def explain(
    spec: Any,
    shape: Any = None,
    *,
    threads: int | None = None,
    batch: int | None = None,
    runs: int = 15,
    limits: Limits | None = None,
    backend: str | None = None,
    machine: GpuMachine | None = None,
    precision: str | None = None,
) -> Any:
    """Say where the time of ``spec`` goes on the CPU engine, as an `Explanation`; or what the GPU engine will
    do, as a `GpuExplanation`, with ``backend="cuda"`` and by default for CUDA tensors.

    ``spec`` is what `bslite.run` takes. ``shape`` is the input's shape, a list of shapes for several inputs,
    or the input itself as `bslite.run` takes it; a dict by name may mix both. By default, and for inputs that
    a dict lacks, the model's example shapes, with ``batch`` images. A compiled torch module declares no
    shapes: of it give the input itself, or nothing after a call. ``threads`` defaults to those of a compiled
    model, or else to the cores this process may use. Times are medians over at least ``runs`` traced runs,
    after some to warm up. ``limits`` are the rates to hold the layers against; by default they are measured,
    once per process. For a GPU nothing is run: ``machine`` is the GPU to plan for, by default the GPU of this
    computer, and where there is none, an H200; the explanation says what it assumes. ``precision`` as for
    `bslite.run`; a layer that is computed by products of bfloat16 says so.

    For a model that runs in several pieces (`CompiledModel.pieces`) the result is a `PiecesExplanation`: the
    time of each piece, NumPy's nodes with the reason, and an `Explanation` of what the engine computes.

    For a compiled torch module and one made by `bslite.optimize` the result is a
    `bslite.dropin.diagnosis.explaining.ModuleExplanation`. It says which parts run in bslite and which in
    torch, names the parts that stay in torch because they were measured slower in bslite, and explains each
    other part at the sizes that it was specialised on.

    Raises InputError and SpecError as `bslite.run` does, EngineError for another backend.
    """
    precision = getattr(spec, "precision", None) if precision is None else precision
    if precision is not None and precision_of(precision) is not current():
        with least(precision):
            return explain(
                spec, shape, threads=threads, batch=batch, runs=runs, limits=limits, backend=backend,
                machine=machine,
            )  # fmt: skip
    if (model := behind(spec)) is not spec and hasattr(type(model), "_bslite_explain"):
        threads = spec.threads if threads is None else threads
        _specialise(spec, shape)
        spec, shape = model, None
    spec, backend, threads = asked(spec, backend, threads)
    if backend not in (None, "cpu", "cuda"):
        raise no_engine(backend)
    look = getattr(type(spec), "_bslite_explain", None)
    if look is not None:  # made by `bslite.optimize`: its class knows how
        if any(given is not None for given in (shape, batch, backend, machine)):
            raise InputError(
                "explain() of an optimized module takes no shape, backend or machine: it says what was made "
                "when the module was called; call it first"
            )
        return look(spec, runs=runs, limits=limits, **({"threads": threads} if threads else {}))
    if not isinstance(spec, (ModelSpec, OpenModel)):
        raise InputError(
            f"explain() takes a ModelSpec first, got {type(spec).__name__}; "
            "of any other model explain what bslite.compile makes of it"
        )
    check_threads(threads)
    if isinstance(spec, OpenModel) and not (isinstance(spec, ModelSpec) and shape is None):
        given = _open_inputs(spec, shape, batch)
        found = settled(spec, given)
        if found is None:
            if backend == "cuda" or machine is not None:
                raise EngineError(
                    f"model {spec.name!r} runs in several pieces, which explain() measures on the CPU only"
                )
            return explain_pieces(
                spec, given, threads, runs,
                lambda part, x: explain(part, x, threads=threads, runs=runs, limits=limits),
            )  # fmt: skip
        spec, shape = found
        batch = None
    elif isinstance(shape, Mapping):
        shape, batch = _open_inputs(spec, shape, batch), None
    from bslite.engines.cpu import engine_for, prepare
    from bslite.engines.cpu.detect import detect
    from bslite.engines.cpu.engine import as_taken

    tensors = cuda_tensors(spec, shape)
    if backend == "cuda" or (backend is None and tensors):
        return _on_gpu(spec, shape, batch, tensors, machine)
    if machine is not None:
        raise InputError("explain(): a machine goes with backend='cuda'; the CPU is measured")
    inputs = as_taken(spec, _inputs(spec, shape, batch))
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


def _open_inputs(model: ModelSpec | OpenModel, given: Any, batch: int | None) -> list[Any]:
    """What is given, as inputs; those of which the shape is given, or nothing, drawn at random."""
    names = [i.name for i in model.inputs]
    if isinstance(given, (tuple, list)) and given and all(isinstance(n, int) for n in given):
        given = [given]
    if given is not None and not isinstance(given, Mapping):
        each = in_order(model, given)
        if len(each) != len(names):
            raise InputError(f"model {model.name!r} takes {len(names)} input(s), got {len(each)}")
        given = dict(zip(names, each, strict=True))
    known = {n: tuple(x) if isinstance(x, (tuple, list)) else x for n, x in (given or {}).items()}
    if batch is not None and any(not isinstance(x, tuple) for x in known.values()):
        raise InputError("give either an input or a batch")
    if isinstance(model, OpenModel):
        return model.example(known, batch)
    if other := [n for n, x in known.items() if not hasattr(x, "shape") and not isinstance(x, tuple)]:
        raise InputError(f"model {model.name!r}: {other[0]!r} is neither an array nor a shape")
    if unknown := [n for n in known if n not in names]:
        raise InputError(f"model {model.name!r} takes {', '.join(names)}, not {', '.join(unknown)}")
    if batch is not None:
        _check_batch(batch)
    sizes: dict[str, int] = {}
    for declared in model.inputs:
        if declared.name in known:
            x = known[declared.name]
            declared.bind(x if isinstance(x, tuple) else tuple(x.shape), sizes)
    rng, made = np.random.default_rng(0), []
    for i in model.inputs:
        example = tuple(sizes.get(str(d), n) for d, n in zip(i.shape, i.example, strict=True))
        shape = example if batch is None or not example else (batch, *example[1:])
        x = known.get(i.name, shape)
        made.append(i.draw(rng, x) if isinstance(x, tuple) else x)
    return made


def _specialise(model: Any, given: Any) -> None:
    """Call a compiled torch module with ``given``; with nothing, if it was called before."""
    if given is None and model.outputs:
        return
    each = list(given) if isinstance(given, (list, tuple)) else [given]
    values = given.values() if isinstance(given, Mapping) else each
    if all(v is None or isinstance(v, (int, list, tuple)) for v in values):
        raise InputError(
            f"model {model.name!r} is a compiled torch module, which declares neither sizes nor dtypes: "
            f"explain() takes its inputs, tensors or arrays, or nothing after a call; got {given!r}"
        )
    model(*each)


def _on_gpu(
    spec: ModelSpec, given: Any, batch: int | None, tensors: Sequence[Any], machine: GpuMachine | None
) -> GpuExplanation:
    """The plan for the shapes and strides of what is given."""
    if tensors:
        shapes, strides = [tuple(t.shape) for t in tensors], [tuple(t.stride()) for t in tensors]
        return explain_on_gpu(spec, shapes, strides, machine, tensors[0].device.index or 0, images=True)
    if (wanted := _shapes(spec, given, batch)) is not None:
        return explain_on_gpu(spec, wanted, None, machine)
    arrays = as_arrays(spec, given)[0]
    strides = [tuple(s // x.itemsize for s in x.strides) for x in arrays]
    return explain_on_gpu(spec, [x.shape for x in arrays], strides, machine)


def _shapes(spec: ModelSpec, given: Any, batch: int | None) -> list[Shape] | None:
    """The shapes given; None if arrays are."""
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
        return None
    if batch is not None:
        _check_batch(batch)
        shapes = [(batch, *s[1:]) for s in shapes]
    spec.infer_shapes(shapes)
    return shapes


def _check_batch(batch: Any) -> None:
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise InputError(f"batch must be a positive integer, got {batch!r}")


def _inputs(spec: ModelSpec, given: Any, batch: int | None) -> list[Array]:
    """What to run on: the arrays given, or seeded random ones of the shapes given."""
    shapes = _shapes(spec, given, batch)
    if shapes is None:
        return as_arrays(spec, given)[0]
    rng = np.random.default_rng(0)
    return [i.draw(rng, s) for i, s in zip(spec.inputs, shapes, strict=True)]
