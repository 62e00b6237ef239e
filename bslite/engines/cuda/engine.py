"""The GPU engine's memory of a model: its simplified form, its weights on the device, plans made so far."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bslite.arithmetic import current
from bslite.cache import Recent
from bslite.engines.common.cells import from_cells, inputs_to_cells
from bslite.engines.common.recipes import data_of
from bslite.engines.cuda import constants  # noqa: F401  (registers its recipes)
from bslite.engines.cuda.devices import driver_for
from bslite.engines.cuda.driver import Array, Driver, Memory, span
from bslite.engines.cuda.library import library_of
from bslite.engines.cuda.session import CudaSession
from bslite.ops import Shape
from bslite.passes import simplify_for_gpu
from bslite.plan import Const
from bslite.plan.core.views import contiguous, size_of
from bslite.plan.cuda import build_plan
from bslite.plan.cuda.tuning import DEFAULT, Tuning
from bslite.spec import ModelSpec

MAX_PLANS = 16  # per model and device: beyond, the least recently used is dropped


class CudaEngine:
    """Plans and constants of one ModelSpec on one device. Get it through `engine_for`."""

    def __init__(self, spec: ModelSpec, driver: Driver) -> None:
        self.spec = simplify_for_gpu(spec)
        self.driver = driver
        self._constants: dict[Const, Memory] = {}
        self._sessions: Recent[tuple[Any, ...], CudaSession] = Recent(MAX_PLANS)
        #: What `bslite.engines.cuda.border` made ready, by layerwise, precision, shapes and strides.
        self.calls: Recent[tuple[Any, ...], Callable[..., Any]] = Recent(MAX_PLANS)
        self._in_graphs: dict[CudaSession, None] = {}  # graphs of the caller's hold addresses of their memory

    def session(
        self,
        shapes: Sequence[Shape],
        strides: Sequence[Shape],
        layerwise: bool = False,
        keep_values: bool = False,
        tuning: Tuning = DEFAULT,
        channels_last: bool = False,
    ) -> CudaSession:
        """The session for inputs of these shapes and strides (elements); the rest as `build_plan` takes it,
        the precision what `bslite.arithmetic.current` says, unless ``tuning`` has one.
        """

        def make() -> CudaSession:
            plan = build_plan(
                self.spec,
                shapes,
                self.driver.machine,
                input_strides=strides,
                channels_last=channels_last,
                layerwise=layerwise,
                keep_values=keep_values,
                tuning=tuning,
            )
            params = {key: p.shape for key, p in self.spec.params.items()}
            library = None if layerwise or keep_values else library_of(self.driver)
            with self.driver.unrestricted():
                return CudaSession(
                    plan, self.driver, self.constant, params, library, keep=self._in_graphs.setdefault
                )

        tuning = replace(tuning, precision=tuning.precision or current())
        key = (tuple(shapes), tuple(strides), layerwise, keep_values, tuning, channels_last)
        return self._sessions.get(key, make)

    def constant(self, const: Const) -> Memory:
        """The data of a constant on the device, made on first use."""
        identity = Const("", const.recipe, const.keys, const.args)
        if identity not in self._constants:
            data = np.ascontiguousarray(data_of(const, self.spec.params))
            stream = self.driver.private()  # the caller's current one may be captured
            memory = self.driver.allocate(data.nbytes, stream, f"weights of {self.spec.name!r}")
            self.driver.upload(memory.address, data, stream)
            self.driver.finish(stream)  # it is for all streams
            self._constants[identity] = memory
        return self._constants[identity]


def engine_for(spec: ModelSpec, device: int = 0) -> CudaEngine:
    """The engine of a spec on a device, made on first use and kept on the spec."""
    engines: dict[int, CudaEngine] = spec.__dict__.setdefault("_cuda_engines", {})
    if device not in engines:
        engines.setdefault(device, CudaEngine(spec, driver_for(device)))
    return engines[device]


def run(
    spec: ModelSpec,
    inputs: Sequence[Array],
    *,
    layerwise: bool = False,
    device: int = 0,
    tuning: Tuning = DEFAULT,
) -> list[Array]:
    """Outputs for checked arrays of the host, whose strides are whole, positive numbers of elements."""
    engine = engine_for(spec, device)
    cells = inputs_to_cells(spec, inputs)
    strides = [strides_of(x) for x in cells]
    session = engine.session([x.shape for x in cells], strides, layerwise, tuning=tuning)
    outputs = [np.empty(shape, np.float32) for shape in session.output_shapes]
    session.run_host([span(x) for x in cells], outputs)
    return [from_cells(y, spec.dtypes[name]) for name, y in zip(spec.outputs, outputs, strict=True)]


def strides_of(array: Array) -> Shape:
    """Strides of an array in elements."""
    return tuple([s // array.itemsize for s in array.strides])


def warmup(spec: ModelSpec, shapes: Sequence[Shape] | None = None) -> list[str]:
    """Compile and load what a model needs, and capture its graph, by two runs on zeros; names of all kernels.

    ``shapes`` are the input shapes to plan for, the spec's example shapes if not given.
    """
    given = shapes or [i.example for i in spec.inputs]
    spec.infer_shapes(given)
    session = engine_for(spec).session(given, [contiguous(s) for s in given])
    outputs = [np.empty(shape, np.float32) for shape in session.output_shapes]
    for _ in range(2):
        session.run_host([np.zeros(size_of(tuple(s)), np.int32) for s in given], outputs)
    return list(dict.fromkeys(step.kernel for step in session.plan.steps))


def trace(
    spec: ModelSpec, inputs: Sequence[Array], *, layerwise: bool = False, device: int = 0
) -> Iterator[tuple[str, Array]]:
    """Run once with every value kept, then yield (node name, value in logical order), layer by layer."""
    engine = engine_for(spec, device)
    driver, dtypes = engine.driver, engine.spec.dtypes
    cells = inputs_to_cells(spec, inputs)
    session = engine.session([x.shape for x in cells], [strides_of(x) for x in cells], layerwise, True)
    plan, stream = session.plan, driver.private()
    made = [np.empty(shape, np.float32) for shape in session.output_shapes]
    with driver.here():
        session.run_host([span(x) for x in cells], made)
        workspace = session.acquire(stream)  # the one that was used
        arena = np.empty(plan.arena_size, np.float32)
        driver.download(arena, workspace.arena.address, stream)
        session.release(workspace, stream)
    outputs = {f"output{i}": y.reshape(-1) for i, y in enumerate(made)}
    for name, view in plan.values.items():
        if view.buffer in plan.consts or plan.buffers[view.buffer].kind == "input":
            continue  # of the model, or what the caller gave
        at = plan.places.get(view.buffer, 0)
        memory = outputs.get(view.buffer, arena)[at + view.offset :]
        strides = [4 * s for s in view.strides]
        value = np.lib.stride_tricks.as_strided(memory, view.shape, strides, writeable=False)
        yield name, from_cells(value.copy(), dtypes[name])
