"""The kinds of inputs that a model in pieces has run before: those are not looked at again.

A call of a model that NumPy computes takes microseconds, less than it takes to check its inputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.onnx.pieces import ALONE, Piece

MOST_MET = 256  # kinds of inputs that are known


class Met:
    """Shapes and dtypes of arrays that ran, all that there is to check of them having been checked."""

    def __init__(self) -> None:
        self._kinds: set[Any] = set()
        self._pieces: Any = None
        self._quiet: list[Any] | None = None

    def note(self, given: Sequence[Any]) -> None:
        """Arrays of these kinds have run."""
        if (kind := _kind(given)) is not None:
            if len(self._kinds) >= MOST_MET:
                self._kinds.clear()
            self._kinds.add(kind)

    def hosts(self, pieces: Sequence[Piece], by_place: Mapping[int, Any]) -> list[Any] | None:
        """What runs ``pieces``, if all are nodes in NumPy that see to its warnings themselves; else None."""
        if pieces is not self._pieces:
            found = [by_place.get(p.places[0]) if p.how == ALONE else None for p in pieces]
            quiet = all(getattr(host, "quiet", False) for host in found)
            self._pieces, self._quiet = pieces, found if quiet else None
        return self._quiet

    def __contains__(self, given: Sequence[Any]) -> bool:
        return bool(self._kinds) and _kind(given) in self._kinds


def _kind(given: Sequence[Any]) -> Any:
    """What tells arrays apart that are checked anew; None if something is no array."""
    for x in given:
        if type(x) is not np.ndarray:
            return None
    return tuple([(x.shape, x.dtype) for x in given])
