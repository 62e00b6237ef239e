"""A ModelSpec called with torch tensors, at as little cost as possible.

`bslite.run` checks its arguments at every call. Here the first call with tensors of some shapes and strides
checks them; later calls hand the addresses to the engine.
"""

from collections.abc import Callable, Sequence

import torch

from bslite import api
from bslite.cache import Recent
from bslite.dropin import place
from bslite.engines.cpu.engine import engine_for
from bslite.engines.cpu.threads import default_threads
from bslite.spec import Array, ModelSpec

Tensor = torch.Tensor
Call = Callable[[Sequence[Tensor]], list[Tensor]]
MAX_CALLS = 64  # shapes and strides known: beyond, the least recently used are dropped


def serves(general: ModelSpec, special: ModelSpec) -> bool:
    """Whether ``general`` computes what ``special`` does, with the same weights, for at least its sizes."""

    def frame(spec: ModelSpec) -> tuple[object, ...]:
        return spec.nodes, spec.outputs, [(i.name, i.dtype, len(i.shape)) for i in spec.inputs]

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


class Model:
    """``model(tensors)`` returns the outputs of ``spec``, new tensors. Threads may share it."""

    def __init__(self, spec: ModelSpec, threads: int | None = None) -> None:
        self.spec, self.threads = spec, threads
        self._calls: Recent[tuple[object, ...], Call] = Recent(MAX_CALLS)

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self.prepared(tensors)(tensors)

    def prepared(self, tensors: Sequence[Tensor]) -> Call:
        """What to call for tensors of these shapes and strides."""
        key = (*((t.shape, t.stride(), t.device) for t in tensors), self.threads or torch.get_num_threads())
        return self._calls.get(key, lambda: self._prepare(tensors))

    def _prepare(self, tensors: Sequence[Tensor]) -> Call:
        spec = self.spec
        if place.on_gpu(tensors[0]):
            from bslite.engines.cuda import border

            return border.prepared(spec, tensors)
        names = (*(i.name for i in spec.inputs), *spec.outputs)
        if any(spec.dtypes[name] != "float32" for name in names):
            return self._checked
        arrays, _ = api.as_arrays(spec, [t.detach() for t in tensors])
        copied = [a.ctypes.data != t.data_ptr() for a, t in zip(arrays, tensors, strict=True)]
        strides = [tuple(s // a.itemsize for s in a.strides) for a in arrays]
        session = engine_for(spec).session(
            [a.shape for a in arrays], strides, self.threads or default_threads(), False
        )
        empty, float32, shapes, run_at = torch.empty, torch.float32, session.output_shapes, session.run_at

        def call(given: Sequence[Tensor]) -> list[Tensor]:
            kept = []  # until the engine has read them
            for tensor, copy in zip(given, copied, strict=True):
                if copy or tensor.data_ptr() & 3:
                    tensor = tensor.contiguous().clone() if tensor.data_ptr() & 3 else tensor.contiguous()
                kept.append(tensor)
            made = [empty(shape, dtype=float32, device="cpu") for shape in shapes]
            run_at([tensor.data_ptr() for tensor in (*kept, *made)])
            return made

        return call

    def _checked(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run through `bslite.run`, which converts dtypes other than float32."""
        result = api.run(self.spec, [t.detach() for t in tensors], threads=self.threads)
        return result if isinstance(result, list) else [result]
