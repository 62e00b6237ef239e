"""A ModelSpec called with torch tensors, at as little cost as possible.

`bslite.run` checks its arguments at every call. Here the first call with tensors of some shapes and strides
checks them; later calls hand the addresses to the engine.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
import torch

from bslite import api
from bslite.arithmetic import current
from bslite.cache import Recent
from bslite.dropin import place
from bslite.engines.common.cells import to_cells
from bslite.engines.cpu.blocks import Blocks
from bslite.engines.cpu.engine import MAX_PLAN_BYTES, engine_for
from bslite.engines.cpu.threads import default_threads
from bslite.frontends.torch import values
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import Array, Input, ModelSpec

Tensor = torch.Tensor
Call = Callable[[Sequence[Tensor]], list[Tensor]]
NARROW = tuple(getattr(torch, name) for name in values.NARROW)
MAX_CALLS = 64  # shapes and strides known of a model for a GPU


def serves(general: ModelSpec, special: ModelSpec) -> bool:
    """Whether ``general`` computes what ``special`` does, with the same weights, for at least its sizes."""

    def frame(spec: ModelSpec) -> tuple[object, ...]:
        ports = [(i.name, i.dtype, len(i.shape)) for i in spec.inputs]
        return spec.nodes, spec.outputs, ports, spec.unrounded

    if frame(general) != frame(special):
        return False
    for g, s in zip(general.inputs, special.inputs, strict=True):
        if any(a != b and not isinstance(a, str) for a, b in zip(g.shape, s.shape, strict=True)):
            return False
    return all(_same(general.params[key], special.params[key]) for key in special.params)


def _same(a: Array, b: Array) -> bool:
    """Whether two parameters are the same memory, or hold the same bits."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides) or a.tobytes() == b.tobytes()


def widened(tensor: Tensor) -> Tensor:
    """A tensor of 16 bits as float32, any other as it is."""
    return tensor.float() if tensor.dtype in NARROW else tensor


def tensors_of(blocks: Blocks) -> Callable[[Sequence[int]], Tensor]:
    """What makes contiguous float32 tensors of the host; the large ones lie in blocks."""

    def made(shape: Sequence[int]) -> Tensor:
        if math.prod(shape) < blocks.least:  # torch's allocator is faster than NumPy's
            return torch.empty(tuple(shape), dtype=torch.float32, device="cpu")
        return torch.from_numpy(blocks.array(shape))

    return made


class Model:
    """``model(tensors)`` returns the outputs of ``spec``, new tensors. Threads may share it.

    ``cells`` names inputs and outputs that are handed over as the engine has them: 4 bytes an element in
    float32 tensors, whatever their dtype; but the first ``proper`` outputs are of their dtypes. ``empty``
    makes the outputs' tensors, by default in blocks of the engine's. ``gives``: dtypes of 16 bits to which
    outputs of float32 are rounded, others where they are not; by default none is. Inputs of 16 bits are
    widened.
    """

    def __init__(
        self,
        spec: ModelSpec,
        threads: int | None = None,
        cells: Collection[str] = (),
        empty: Callable[[Sequence[int]], Tensor] | None = None,
        proper: int = 0,
        gives: Sequence[torch.dtype] = (),
    ) -> None:
        self.proper = proper
        self.gives = tuple(d if d in NARROW else None for d in gives)
        self.beside_torch = True  # as `bslite.engines.cpu.turns.fork_join` has it
        self.spec, self.threads, self.cells, self.empty = spec, threads, frozenset(cells), empty
        self.tuning = Tuning(precision=current())  # that of who makes it: backward passes have other threads
        self._calls: Recent[tuple[object, ...], tuple[Call, int]] = Recent(
            MAX_PLAN_BYTES, size_of=itemgetter(1)
        )

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self.prepared(tensors)(tensors)

    def prepared(self, tensors: Sequence[Tensor]) -> Call:
        """What to call for tensors of these shapes and strides."""
        kinds = [(t.shape, t.stride(), t.dtype, t.device) for t in tensors]
        key = (*kinds, self.threads or torch.get_num_threads())
        return self._calls.get(key, lambda: self._converting(tensors))[0]

    @property
    def rounds(self) -> bool:
        """Whether some output is rounded."""
        return any(self.gives)

    def _converting(self, tensors: Sequence[Tensor]) -> tuple[Call, int]:
        """A function that has torch widen the inputs and round the outputs, where they are of 16 bits, and
        the bytes that keeping it takes.
        """
        narrow, gives = any(t.dtype in NARROW for t in tensors), self.gives
        call, size = self._prepare([*map(widened, tensors)])
        if not (narrow or self.rounds):
            return call, size

        def converting(given: Sequence[Tensor]) -> list[Tensor]:
            made = call([*map(widened, given)])
            return [y.to(d) if d else y for y, d in zip(made, gives, strict=True)] if gives else made

        return converting, size

    def _prepare(self, tensors: Sequence[Tensor]) -> tuple[Call, int]:
        spec = self.spec
        if place.on_gpu(tensors[0]):
            from bslite.engines.cuda import border

            on_gpu: Call = border.prepared(spec, tensors, precision=self.tuning.precision)
            return on_gpu, MAX_PLAN_BYTES // MAX_CALLS
        api.check_count(spec, list(tensors))
        ports = [replace(i, dtype="float32") if i.name in self.cells else i for i in spec.inputs]
        dtypes = [port.dtype for port in ports]
        given = [api.as_array(port, t.detach(), torch) for port, t in zip(ports, tensors, strict=True)]
        arrays = [  # of the strides that `_cells` gives
            to_cells(x if x.dtype == np.float32 else np.asarray(x, order="C"), f"input {port.name!r}")
            for port, x in zip(ports, given, strict=True)
        ]
        copied = [a.ctypes.data != t.data_ptr() for a, t in zip(arrays, tensors, strict=True)]
        strides = [tuple(s // a.itemsize for s in a.strides) for a in arrays]
        engine = engine_for(spec)
        session = engine.session(
            [a.shape for a in arrays], strides, self.threads or default_threads(), False, tuning=self.tuning
        )
        others = [
            spec.dtypes[name] != "float32" and (i < self.proper or name not in self.cells)
            for i, name in enumerate(spec.outputs)
        ]
        as_they_are = not any(others)
        empty = self.empty or tensors_of(engine.results)
        shapes, run_at = session.output_shapes, session.run_at

        def call(given: Sequence[Tensor]) -> list[Tensor]:
            kept = []  # until the engine has read them
            for i, (tensor, copy) in enumerate(zip(given, copied, strict=True)):
                if dtypes[i] != "float32":
                    tensor = _cells(tensor, ports[i])
                elif copy or tensor.data_ptr() & 3:
                    tensor = tensor.contiguous().clone() if tensor.data_ptr() & 3 else tensor.contiguous()
                kept.append(tensor)
            made = [empty(shape) for shape in shapes]
            run_at([tensor.data_ptr() for tensor in (*kept, *made)], self.beside_torch)
            if as_they_are:
                return made
            return [
                y.view(torch.int32).to(getattr(torch, spec.dtypes[name])) if other else y
                for y, name, other in zip(made, spec.outputs, others, strict=True)
            ]

        return call, session.size


def _cells(tensor: Tensor, port: Input) -> Tensor:
    """A tensor of integers or conditions as the engine has it, row-major."""
    array = np.asarray(tensor.detach().numpy(), order="C")  # which leaves a single number as it is
    return torch.from_numpy(to_cells(array, f"input {port.name!r}"))
