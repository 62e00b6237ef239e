"""The CPU engine's state of a model: its simplified form, its packed weights, and the plans made so far."""

import dataclasses
import functools
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.arithmetic import Precision, current
from bslite.cache import Derived, Recent, place_of
from bslite.engines.common.cells import comes_as_bytes, from_cells, inputs_to_cells, to_cells
from bslite.engines.common.pause import no_collection
from bslite.engines.cpu import (
    block_panels,  # noqa: F401  (registers its recipe)
    constants,
    fourier,  # noqa: F401  (registers its recipes)
    plane_filters,  # noqa: F401  (registers its recipes)
)
from bslite.engines.cpu.blocks import Blocks
from bslite.engines.cpu.detect import detect
from bslite.engines.cpu.session import Session, address_of
from bslite.engines.cpu.threads import default_threads
from bslite.engines.cpu.workspace import Memory
from bslite.engines.cpu.writes import Writes
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.cpu.vector.quads import SATURATES
from bslite.kernels.cpu.vector.target import has_dots, widens_halves
from bslite.ops import Shape
from bslite.passes import simplify
from bslite.plan import Const, build_plan
from bslite.plan.cpu.known_runs import KnownRuns
from bslite.plan.cpu.tuning import MANY, Tuning
from bslite.plan.cpu.work import rounds
from bslite.spec import ModelSpec

Array = npt.NDArray[Any]
#: Bytes of the plans that a model keeps; beyond, the least recently used is dropped. Texts of all lengths up
#: to 512 fit, in a model of twelve layers: the memory for values is shared by all.
MAX_PLAN_BYTES = 512 << 20


class Engine:
    """Plans and constants of one ModelSpec. `engine_for` returns it.

    ``like``: share what is made of parameters, folded and packed weights, and the memory of runs and results
    with the engine of a model that holds the same arrays.
    """

    def __init__(self, spec: ModelSpec, like: "Engine | None" = None) -> None:
        self.derived: Derived = Derived(None if like is None else like.derived)
        self.spec = simplify(spec, self.derived, dots=has_dots() or (False if SATURATES else None))
        self._unrounded = spec.unrounded
        if spec.unrounded:  # what was made of parameters may have been made of those
            self._unrounded = spec.unrounded | (self.spec.params.keys() - spec.params.keys())
        #: Where a parameter lies -> registers of the panels it was packed in, which other plans take again.
        self._widths: dict[Any, int] = {} if like is None else like._widths
        self._runs: KnownRuns = KnownRuns() if like is None else like._runs
        gives = [np.dtype(spec.dtypes[name]) for name in spec.outputs]
        self._cells = [np.dtype("f4" if dtype == np.float32 else "i4") for dtype in gives]
        #: Inputs and outputs that need a conversion of their dtype, by place.
        self._takes = [(n, f"input {i.name!r}") for n, i in enumerate(spec.inputs) if i.dtype != "float32"]
        self._gives = [(n, dtype) for n, dtype in enumerate(gives) if dtype != self._cells[n]]
        self.memory: Memory = Memory() if like is None else like.memory
        self.results: Blocks = Blocks() if like is None else like.results
        self._sessions: Recent[tuple[Any, ...], Session] = Recent(MAX_PLAN_BYTES, size_of=lambda s: s.size)
        self._writes = Writes(spec) if spec.owners else None

    def outdated(self) -> bool:
        """Whether parameters that a torch module shares with the model changed since they were packed."""
        return self._writes is not None and self._writes.seen()

    def session(
        self,
        shapes: Sequence[Shape],
        strides: Sequence[Shape],
        threads: int,
        layerwise: bool,
        keep_values: bool = False,
        tuning: Tuning | None = None,
    ) -> Session:
        """The session for inputs of these shapes and strides (elements), by default of the precision that the
        caller's thread asks for.
        """
        precision = current()  # tells sessions apart sooner than a tuning does

        def make() -> Session:
            known = ((key, self._widths.get(place_of(a))) for key, a in self.spec.params.items())
            packed_in = {key: width for key, width in known if width} if self._widths else {}
            machine, chosen = detect(threads), self._own(tuning or Tuning(precision=precision))
            plan = build_plan(
                self.spec,
                shapes,
                machine,
                input_strides=strides,
                layerwise=layerwise,
                keep_values=keep_values,
                tuning=dataclasses.replace(
                    chosen,
                    packed=packed_in,
                    runs=self._runs,
                    narrow=self._narrow(0 if machine.tile_cycles else MANY) if chosen.narrowing else {},
                    inexact=chosen.inexact | self._inexact
                    if rounds(machine, chosen.precision)
                    else frozenset(),
                ),
            )
            packed = Derived(self.derived)  # kept with the session: constants of a size go when its plan goes
            memory = None if keep_values else self.memory
            here, spec = weakref.ref(self), self.spec  # a session does not keep its engine alive

            def exact() -> Session:
                by_float32 = dataclasses.replace(chosen, precision=Precision.IEEE)
                engine = here() or Engine(spec)
                return engine.session(shapes, strides, threads, layerwise, keep_values, by_float32)

            return Session(
                plan, partial(self.constant, packed=packed), packed, key, self._cells, memory, exact
            )

        key = (tuple(shapes), tuple(strides), threads, layerwise, keep_values, tuning or precision)
        if (found := self._sessions.find(key)) is not None:
            return found
        with no_collection:
            return self._sessions.get(key, make)

    def _own(self, tuning: Tuning) -> Tuning:
        """At the precision that the model itself has, where it is of bfloat16 and no other is asked for."""
        if self._unrounded is None or tuning.precision in (Precision.IEEE, Precision.BFLOAT16):
            return tuning
        return dataclasses.replace(tuning, precision=Precision.BFLOAT16, inexact=self._unrounded)

    @functools.cached_property
    def _inexact(self) -> frozenset[str]:
        """The parameters that have no exact parts of bfloat16."""
        floats = {key: a for key, a in self.spec.params.items() if a.dtype == np.float32}
        return frozenset(key for key, a in floats.items() if not constants.has_parts(a))

    def _narrow(self, least: int) -> dict[str, Narrow]:
        """The parameters of so many bytes or more whose numbers all fit 16 bits that the processor widens."""
        found = {}
        for key, a in self.spec.params.items():
            if a.dtype == np.float32 and a.ndim >= 2 and a.nbytes >= least:
                made = self.derived.get("narrow", [a], partial(constants.narrow_of, a))
                found[key] = Narrow(int(made))
        widened = {Narrow.BFLOAT16, Narrow.FLOAT16} if widens_halves() else {Narrow.BFLOAT16}
        return {key: narrow for key, narrow in found.items() if narrow in widened}

    def kept(self, key: Any) -> Session | None:
        """The session of a key (`Session.key`), if it is still there and its weights are not outdated."""
        return None if self._writes is not None and self._writes.seen() else self._sessions.find(key)

    def compute(self, session: Session, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a session for checked inputs, converted to cells and back where need be."""
        if self._takes:
            inputs = list(inputs)
            for i, what in self._takes:
                if i not in session.plan.as_bytes:
                    inputs[i] = to_cells(inputs[i], what)
        outputs = [self.results.array(shape, cell) for shape, cell in session.results]
        session.run(inputs, outputs)
        for i, dtype in self._gives:
            outputs[i] = outputs[i].astype(dtype)
        return outputs

    def constant(self, const: Const, packed: Derived | None = None) -> Array:
        """The data of a constant, made on first use and kept by ``packed``."""
        params = self.spec.params
        sources = [params[key] for key in const.keys]
        table = packed or Derived(self.derived)
        if const.recipe in constants.IN_PANELS:
            self._widths.setdefault(place_of(sources[0]), dict(const.args)["width"])
        made: Array = table.get((const.recipe, const.args), sources, partial(constants.make, const, params))
        return made

    def weights(self) -> dict[Any, int]:
        """Bytes of folded and packed weights, by what tells them apart among engines that share them."""
        found = self.derived.sizes()
        for session in self._sessions.values():
            found |= session.packed.sizes()
        return found

    def values(self) -> dict[int, int]:
        """Bytes held for values between layers and for results to come, by what tells them apart where
        engines share them.
        """
        memories = (self.memory, *(session.memory for session in self._sessions.values()))
        return {id(self.results): self.results.idle, **{id(memory): memory.held() for memory in memories}}

    def plans(self) -> int:
        """Bytes of the plans that are kept, about."""
        return sum(session.size for session in self._sessions.values())


def engine_for(spec: ModelSpec, like: ModelSpec | None = None) -> Engine:
    """The engine of a spec, made on first use and kept on it; anew after a change of parameters that a torch
    module shares with it. ``like``: see `Engine`.
    """
    engine = spec.__dict__.get("_cpu_engine")
    if engine is None:
        made = Engine(spec, _like(like or spec.shares))
        engine = spec.__dict__.setdefault("_cpu_engine", made)
    assert isinstance(engine, Engine)
    if spec.owners and engine.outdated():
        engine = spec.__dict__["_cpu_engine"] = Engine(spec, _like(spec.shares))
    return engine


def _like(spec: Any) -> Engine | None:
    return None if spec is None else engine_for(spec)


def prepare(
    spec: ModelSpec,
    inputs: Sequence[Array],
    threads: int | None,
    layerwise: bool,
    keep_values: bool = False,
    tuning: Tuning | None = None,
    engine: Engine | None = None,
) -> Session:
    """The session for these inputs, checked and converted by `as_taken` or `inputs_to_cells`; `build_plan`
    explains ``tuning``.
    """
    shapes = [x.shape for x in inputs]
    strides = [tuple([s // x.itemsize for s in x.strides]) for x in inputs]
    if as_bytes := frozenset(i for i, x in enumerate(inputs) if x.itemsize == 1):
        tuning = dataclasses.replace(tuning or Tuning(precision=current()), as_bytes=as_bytes)
    threads = threads or default_threads()
    engine = engine or engine_for(spec)
    return engine.session(shapes, strides, threads, layerwise, keep_values, tuning)


def run(
    spec: ModelSpec, inputs: Sequence[Array], *, threads: int | None = None, layerwise: bool = False
) -> list[Array]:
    """Outputs for checked inputs whose strides are whole, positive numbers of elements."""
    engine, taken = engine_for(spec), as_taken(spec, inputs)
    return engine.compute(prepare(spec, taken, threads, layerwise, engine=engine), taken)


def as_taken(spec: ModelSpec, inputs: Sequence[Array]) -> list[Array]:
    """Checked inputs as `prepare` takes them: many bytes as they are, all else as cells."""
    named = zip(spec.inputs, inputs, strict=True)
    return [x if comes_as_bytes(x) else to_cells(x, f"input {i.name!r}") for i, x in named]


def warmup(
    spec: ModelSpec | None = None, shapes: Sequence[Shape] | None = None, threads: int | None = None
) -> list[str]:
    """Compile (or load from disk) the kernels of a model, or those every model needs; return their names.

    ``shapes`` are the input shapes to plan for, the spec's example shapes if not given.
    """
    from bslite.engines.cpu.job import start_threads
    from bslite.kernels.cpu import STEP_KERNELS
    from bslite.kernels.cpu.runtime.walk import walk

    threads = threads or default_threads()
    if spec is None:
        wanted = [*STEP_KERNELS.values(), walk]
        for kernel in wanted:
            _ = kernel.address
    else:
        given = shapes or [i.example for i in spec.inputs]
        spec.infer_shapes(given)
        blank = [np.zeros(shape, i.dtype) for i, shape in zip(spec.inputs, given, strict=True)]
        session = prepare(spec, as_taken(spec, blank), threads, False)
        wanted = session.kernels
    start_threads(threads)
    return [kernel.name for kernel in wanted]


def trace(
    spec: ModelSpec,
    inputs: Sequence[Array],
    threads: int | None = None,
    layerwise: bool = False,
    tuning: Tuning | None = None,
) -> Iterator[tuple[str, Array]]:
    """Run once with every value kept, then yield (node name, value in logical order), layer by layer."""
    inputs = inputs_to_cells(spec, inputs)
    session = prepare(spec, inputs, threads, layerwise, keep_values=True, tuning=tuning)
    dtypes = engine_for(spec).spec.dtypes
    plan = session.plan
    outputs = [np.empty(v.shape, np.float32) for v in plan.outputs]
    workspace = session.acquire()
    session.bind(workspace, map(address_of, (*inputs, *outputs)))
    workspace.job.run(plan.threads)
    if session.check(workspace):
        tuning = dataclasses.replace(tuning or Tuning(), precision=Precision.IEEE)
        yield from trace(spec, inputs, threads, layerwise, tuning)
        return
    for name, view in plan.values.items():
        if any(name == i.name for i in spec.inputs) or view.buffer in plan.consts:
            continue
        kind = plan.buffers[view.buffer].kind
        if kind == "arena":
            memory = workspace.arena[plan.places[view.buffer] :]
        else:
            memory = (inputs if kind == "input" else outputs)[int(view.buffer[len(kind) :])]
            if kind == "input":
                continue  # a view of the caller's data
            memory = memory.reshape(-1)
        strides = [4 * s for s in view.strides]
        value = np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, strides, writeable=False)
        yield name, from_cells(value.copy(), dtypes[name])
