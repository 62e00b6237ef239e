"""An ONNX model ready to run, specialised on shapes, and on the values that its operators need."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.cache import Recent
from bslite.errors import InputError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.read import Converted, NotConverted, convert
from bslite.frontends.onnx.values import Const
from bslite.spec import Array, ModelSpec

MAX_KEPT = 16  # models specialised on shapes and values, beyond which the least recently used is dropped


def load_backend_base() -> Any:
    """The module ``onnx.backend.base``: what ONNX expects of a backend."""
    load_onnx()
    import onnx.backend.base

    return onnx.backend.base


base = load_backend_base()


class Specialised:
    """A model for inputs of certain shapes, some of them built in: a spec, and outputs known already."""

    def __init__(self, converted: Converted, built_in: Sequence[str]) -> None:
        self.built_in = frozenset(built_in)
        self.known: list[Array | None] = [o.data if isinstance(o, Const) else None for o in converted.outputs]
        values = [o for o in converted.outputs if not isinstance(o, Const)]
        self.spec: ModelSpec | None = converted.spec(values) if values else None

    def run(self, inputs: Mapping[str, Array], backend: str, threads: int | None) -> list[Array]:
        """The outputs in order."""
        computed: list[Array] = []
        if self.spec is not None:
            from bslite.api import run

            given = [np.asarray(x) for name, x in inputs.items() if name not in self.built_in]
            made = run(self.spec, given, backend=backend, threads=threads)
            computed = made if isinstance(made, list) else [made]
        rest = iter(computed)
        return [next(rest) if known is None else known.copy() for known in self.known]


def as_inputs(source: Source, names: Sequence[str], inputs: Any) -> dict[str, Array]:
    """The arrays of a run by name: given in order, by name, or the only one."""
    if isinstance(inputs, Mapping):
        missing = [n for n in names if n not in inputs]
        if missing:
            raise InputError(f"model {source.name!r}: no array for {', '.join(missing)}")
        inputs = [inputs[n] for n in names]
    elif isinstance(inputs, np.ndarray):
        inputs = [inputs]
    inputs = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
    if len(inputs) != len(names) or not all(isinstance(x, np.ndarray) for x in inputs):
        raise InputError(f"model {source.name!r} takes {len(names)} arrays, {list(names)}")
    return dict(zip(names, inputs, strict=True))


class BsliteRep(base.BackendRep):  # type: ignore[name-defined]
    """A model ready to run."""

    def __init__(self, source: Source, backend: str = "cpu", threads: int | None = None) -> None:
        self.source, self.backend, self.threads = source, backend, threads
        stored = {t.name for t in source.model.graph.initializer}
        self.names = [v.name for v in source.model.graph.input if v.name not in stored]
        self._kept: Recent[Any, Specialised] = Recent(MAX_KEPT)
        self._wanted: frozenset[str] = frozenset()  # inputs whose values were needed before

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """The outputs for ``inputs``, a list of arrays in the order of the graph's inputs, or a dict by name.

        Raises what `bslite.from_onnx` and `bslite.run` raise.
        """
        given = as_inputs(self.source, self.names, inputs)
        return tuple(self.specialised(given).run(given, self.backend, self.threads))

    def kept(self) -> list[Specialised]:
        """The models that are kept, the least recently used first."""
        return self._kept.values()

    def forget(self) -> None:
        """Drop the models that are kept."""
        self._kept.clear()

    def specialised(self, given: Mapping[str, Array]) -> Specialised:
        """The model for these inputs, made if there is none yet."""
        built_in = {n for n, x in given.items() if n in self._wanted or not x.size}
        shapes = {n: x.shape for n, x in given.items()}
        if (found := self._kept.find(_key(given, built_in))) is not None:
            return found
        while True:
            constants = {n: np.array(given[n]) for n in built_in}
            free = {n: s for n, s in shapes.items() if n not in built_in}
            try:
                converted = convert(self.source, shapes=free, constants=constants)
                break
            except NotConverted as e:
                if not e.roots - built_in:
                    raise
                built_in |= e.roots
                self._wanted |= e.roots
        return self._kept.put(_key(given, built_in), Specialised(converted, sorted(built_in)))


def _key(given: Mapping[str, Array], built_in: set[str]) -> tuple[Any, ...]:
    """What tells apart inputs that need a model of their own: shapes, dtypes, the values built in."""
    return tuple(
        (n, x.shape, x.dtype.name, hashlib.sha256(x.tobytes()).hexdigest() if n in built_in else "")
        for n, x in given.items()
    )
