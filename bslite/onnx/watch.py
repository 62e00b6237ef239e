"""A run of an ONNX model under the clock: which piece took how long, and what the engine computed in it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from bslite.onnx.pieces import ENGINE, Piece
from bslite.onnx.rep import BsliteRep
from bslite.spec.open import Ran

#: The watch over the run under way in this thread; None for runs that nobody looks at.
WATCH: ContextVar["Watch | None"] = ContextVar("watch", default=None)

MOST_NOTED = 1000  # calls of a piece whose start and end are kept


class Watch:
    """Notes of one run, in the order in which pieces first began."""

    def __init__(self) -> None:
        self._ran: dict[Any, Ran] = {}
        self._depth, self._inside = 0, 0.0
        self._start = time.perf_counter()

    @property
    def ran(self) -> list[Ran]:
        """The notes: of pieces inside others after those, as they began."""
        return sorted(self._ran.values(), key=lambda r: r.at[0])

    def run(self, running: Any, piece: Piece, values: dict[str, Any]) -> None:
        """Let ``running`` run a piece, and note it. One that fails leaves no note: it is cut again."""
        around, self._inside = self._inside, 0.0
        self._depth += 1
        start = time.perf_counter()
        try:
            running.execute(piece, values)
            stop = time.perf_counter()
            self._note(running, piece, values, (start - self._start, stop - self._start))
        finally:
            self._depth -= 1
            self._inside = around + time.perf_counter() - start  # what the notes cost is nobody's

    def _note(self, running: Any, piece: Piece, values: dict[str, Any], at: tuple[float, float]) -> None:
        how, what, reason = running.described(piece)
        spec, inputs = None, []
        if piece.how == ENGINE:
            rep, given = running.ready(piece, values)
            if isinstance(rep, BsliteRep):
                settled = rep.specialised(given).settled(given)
                spec, inputs = settled.spec, settled.inputs
        key = id(running), piece.places, id(spec)
        if key not in self._ran:
            nodes = len(piece.places)
            self._ran[key] = Ran(how, what, reason, self._depth - 1, nodes, spec, inputs, 0, 0.0, [])
        ran = self._ran[key]
        ran.calls += 1
        ran.seconds += at[1] - at[0] - self._inside
        if len(ran.at) < MOST_NOTED:
            ran.at.append(at)


@contextmanager
def watched() -> Iterator[Watch]:
    """Note what runs inside the block do, in this thread."""
    watch = Watch()
    token = WATCH.set(watch)
    try:
        yield watch
    finally:
        WATCH.reset(token)
