"""`Call`: a run of a model prepared once, for models that take microseconds."""

import weakref
from collections.abc import Sequence

from bslite.engines.cpu.engine import as_taken, engine_for, prepare
from bslite.engines.cpu.threads import default_threads
from bslite.spec import Array, ModelSpec


class Call:
    """A model's run on inputs of one kind (shapes, strides, dtypes), which are not looked at again."""

    def __init__(
        self, spec: ModelSpec, inputs: Sequence[Array], threads: int | None, layerwise: bool = False
    ) -> None:
        engine = engine_for(spec)
        session = prepare(spec, as_taken(spec, inputs), threads, layerwise, engine=engine)
        # What the engine drops, and what a caller releases, is not kept alive from here.
        self._engine, self._key = weakref.ref(engine), session.key
        self._threads = 0 if threads else default_threads()

    def __call__(self, inputs: Sequence[Array]) -> list[Array] | None:
        """The outputs; None if this has to be prepared anew: plan or weights are not kept any more."""
        engine = self._engine()
        if engine is None or (self._threads and self._threads != default_threads()):
            return None
        session = engine.kept(self._key)
        return None if session is None else engine.compute(session, inputs)
