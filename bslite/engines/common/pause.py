"""Python's collector of cyclic garbage, kept from running while a model is prepared.

A trace and a plan make some hundred thousand objects. The collector would go through all of them, and through
all that the program holds, again and again, and find nothing.
"""

import gc
import threading
from types import TracebackType


class _NoCollection:
    """``with`` this, the collector does not run, in no thread; it goes on where it did before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._enabled:
                gc.enable()


no_collection = _NoCollection()
