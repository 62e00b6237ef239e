"""An ONNX model ready to run, specialised on the sizes, and on the values, that cannot be left free."""

import hashlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.api import kind_of, prepared, run
from bslite.arithmetic import current
from bslite.cache import Recent, by_operations
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.inputs import check_shapes
from bslite.frontends.onnx.read import Converted, NotConverted, Reader
from bslite.frontends.onnx.sizing import Sizing
from bslite.frontends.onnx.values import Const
from bslite.onnx.chunks import MOST_NODES
from bslite.ops import Shape
from bslite.reference import run as by_reference
from bslite.spec import Array, ModelSpec
from bslite.spec.open import Settled

#: What a conversion lacked, and the inputs -> the inputs whose values to build in; none: raise the error.
Wants = Callable[[NotConverted, Mapping[str, Any]], frozenset[str]]
MAX_SEEN = 512  # kinds of inputs whose model is found without a look at the sizes that are free


def load_backend_base() -> Any:
    """The module ``onnx.backend.base``: what ONNX expects of a backend."""
    load_onnx()
    import onnx.backend.base

    return onnx.backend.base


base = load_backend_base()


class Specialised:
    """A model with some sizes fixed and some inputs built in: a spec, and outputs known already.

    ``key``: what tells it apart from the other models of a `BsliteRep`.
    """

    def __init__(self, converted: Converted, built_in: Sequence[str], key: Any) -> None:
        self.built_in, self.key, self.loops = frozenset(built_in), key, converted.loops
        self.known: list[Array | None] = [o.data if isinstance(o, Const) else None for o in converted.outputs]
        values = [o for o in converted.outputs if not isinstance(o, Const)]
        self.spec: ModelSpec | None = converted.spec(values) if values else None

    def operations(self) -> int:
        """Those of the spec."""
        return 0 if self.spec is None else len(self.spec.nodes)

    def settled(self, inputs: Mapping[str, Any]) -> Settled:
        """For the inputs of one call."""
        return Settled(self.spec, [x for name, x in inputs.items() if name not in self.built_in], self.known)

    def outputs(self, made: list[Array]) -> list[Array]:
        """All outputs in order, from those that the spec made."""
        return made if len(made) == len(self.known) else Settled(None, [], self.known).outputs(made)

    def __str__(self) -> str:
        return (
            "nothing to compute"
            if self.spec is None
            else ", ".join(f"{i.name}: {i.wants}" for i in self.spec.inputs)
        )


class BsliteRep:
    """A model ready to run.

    A model in which all open sizes are free serves all sizes. Where there is none, the open sizes that stand
    in the way are fixed to those of the call, and so are values that operators need; such models are kept
    (`bslite.cache.by_operations`), and share their parameters and the weights packed for the CPU. ``wants``
    says which inputs to build in where a conversion needs values. ``limited``: the places of loops of which
    no more than so many nodes are written out (`Loops`), for there may be other numbers of steps.
    """

    def __init__(
        self, source: Source, backend: str = "cpu", threads: int | None = None, wants: Wants | None = None,
        limited: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.source, self.backend, self.threads = source, backend, threads
        self._limited = limited
        self._wants = wants or (lambda error, given: error.roots)
        self._kept: Recent[Any, Specialised] = by_operations(Specialised.operations)
        self._seen: Recent[Any, Any] = Recent(MAX_SEEN)  # kinds of inputs -> keys of models
        self._readers: dict[frozenset[str], Reader] = {}  # by the inputs that are built in
        self._wanted: frozenset[str] = frozenset()  # inputs whose values were needed before
        self._needed: list[int] = []  # their places
        self._ready: dict[Any, tuple[Any, Any, list[int] | None]] = {}  # see `again`
        self._lock = threading.RLock()

    def run(self, given: Mapping[str, Any]) -> list[Array]:
        """The outputs for the inputs by name, in the graph's order. Raises what `bslite.from_onnx` and
        `bslite.run` raise.
        """
        if (made := self.again(list(given.values()))) is not None:
            return made
        found = self.specialised(given)
        arrays = [np.asarray(x) for x in found.settled(given).inputs]
        results: Any = []
        if found.spec is not None and self.backend == "reference64":
            # float64 of another piece stays what it is
            results = by_reference(found.spec, arrays, np.float64)
        elif found.spec is not None:
            results = run(found.spec, arrays, backend=self.backend, threads=self.threads)
        self._prepare(given, found, arrays)
        return found.outputs(results if isinstance(results, list) else [results])

    def again(self, given: Sequence[Any]) -> list[Array] | None:
        """The outputs for arrays in order, of kinds that it has run before; None if there is more to do."""
        kind = _kind(given, self._needed) if self._needed else kind_of(given)
        if (ready := self._ready.get((current(), kind))) is None:
            return None
        key, call, taken = ready
        found = self._kept.find(key)
        if found is None:
            return None
        if call is None:
            return found.outputs([])
        made = call(given if taken is None else [given[i] for i in taken])
        return None if made is None else found.outputs(made)

    def _prepare(self, given: Mapping[str, Any], found: Specialised, arrays: Sequence[Array]) -> None:
        """Let `again` know the model for these inputs, by its key, so that it is not kept from here."""
        if self.backend != "cpu":
            return
        call = None if found.spec is None else prepared(found.spec, arrays, self.threads)
        needed = [i for i, name in enumerate(given) if name in self._wanted]
        kind = _kind(list(given.values()), needed)
        if kind is None or (call is None and found.spec is not None):
            return
        if len(self._ready) >= MAX_SEEN:
            self._ready.clear()
        taken = [i for i, name in enumerate(given) if name not in found.built_in]
        self._ready[current(), kind] = found.key, call, None if len(taken) == len(given) else taken
        self._needed = needed

    def kept(self) -> list[Specialised]:
        """The models that are kept, the least recently used first."""
        return self._kept.values()

    def forget(self) -> None:
        """Drop the models that are kept."""
        self._kept.clear()
        self._seen.clear()
        self._ready.clear()

    def specialised(self, given: Mapping[str, Any]) -> Specialised:
        """The model for these inputs, made if there is none yet."""
        kind = tuple((x.shape, x.dtype) for x in given.values())
        wanted = self._wanted
        if not wanted and (key := self._seen.find(kind)) and (seen := self._kept.find(key)) is not None:
            return seen
        with self._lock:
            built_in = {n for n, x in given.items() if n in wanted or 0 in x.shape}
            found = self._specialised(given, built_in)
            if not found.built_in:
                self._seen.put(kind, found.key)
            return found

    def _specialised(self, given: Mapping[str, Any], built_in: set[str]) -> Specialised:
        while True:
            reader = self._reader(frozenset(built_in))
            shapes = [tuple(given[i.name].shape) for i in reader.declared]
            check_shapes(reader.declared, shapes)
            constants = {n: np.array(given[n]) for n in sorted(built_in)}
            values = tuple((n, x.shape, x.dtype.name, _digest(x)) for n, x in constants.items())
            for sizing in reader.sizings(shapes):
                key = _key(reader, sizing, shapes, values)
                if (found := self._kept.find(key)) is not None:
                    return found
            try:
                converted = reader.convert(shapes, constants)
            except NotConverted as e:
                wanted = self._wants(e, given)
                if not wanted - built_in:
                    raise
                built_in |= wanted
                self._wanted |= wanted
                continue
            key = _key(reader, converted.sizing, shapes, values)
            made = Specialised(converted, sorted(built_in), key)
            self._share(made)
            return self._kept.put(key, made)

    def _reader(self, built_in: frozenset[str]) -> Reader:
        if built_in not in self._readers:
            self._readers[built_in] = Reader(
                self.source, built_in=sorted(built_in), limited=self._limited, most=MOST_NODES
            )
        return self._readers[built_in]

    def _share(self, made: Specialised) -> None:
        """Let the model share what is packed for the others."""
        others = [s.spec for s in self.kept() if s.spec is not None]
        if made.spec is not None and others and self.backend == "cpu":
            from bslite.engines.cpu import engine_for

            engine_for(made.spec, like=others[-1])


def _kind(given: Sequence[Any], needed: Sequence[int]) -> Any:
    """What tells inputs apart: all but the values of those whose values no operator needs."""
    kind = kind_of(given)
    return (kind, *(given[i].tobytes() for i in needed)) if needed and kind is not None else kind


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _key(reader: Reader, sizing: Sizing, shapes: Sequence[Shape], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells apart inputs that need models of their own: sizes that are not free, the values built in."""
    fixed = tuple(sizing.shape(i, s) for i, s in zip(reader.declared, shapes, strict=True))
    return sizing, fixed, values
