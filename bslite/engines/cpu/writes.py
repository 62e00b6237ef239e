"""Notices that parameters were written to: by the counters of the tensors that own them, and by a digest."""

from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter
from typing import Any

import numpy as np

from bslite.engines.cpu.asked import asked
from bslite.engines.cpu.glance import Glance
from bslite.spec import ModelSpec

_version = attrgetter("_version")


class Digest:
    """A digest of a few words of each of many pieces of memory: pairs of an address and a number of 8-byte
    words. The owner keeps the memory alive.
    """

    def __init__(self, pieces: Iterable[tuple[int, int]]) -> None:
        from bslite.kernels.cpu.runtime.digest import digest

        self._ask = asked(digest, np.array(list(pieces), np.int64).reshape(-1, 2))

    def __call__(self) -> int:
        return self._ask()


class Writes:
    """The state of a model's parameters whose memory a torch module owns."""

    def __init__(self, spec: ModelSpec) -> None:
        self._owners: list[Any] = [t for t in spec.owners if not t.is_inference()]  # those have no counter
        self._arrays = list(spec.params.values())
        self._digest = Digest((a.ctypes.data, a.nbytes // 8) for a in self._arrays)
        self._glance: Glance | None = None
        with suppress(LookupError):
            self._glance = Glance((), self._owners)
        self._known = self._digest()  # after the glance: what is written between the two is asked for
        self._versions = list(map(_version, self._owners))

    def seen(self) -> bool:
        """Whether the parameters were written to since this was made."""
        return not self._as_counted() or self._digest() != self._known

    def _as_counted(self) -> bool:
        """Whether the counters of their owners are as they were."""
        if self._glance is not None and self._glance.same():
            return True
        return self._versions == list(map(_version, self._owners))
