"""Memory of results, used again when nobody holds them: a new page costs several times what writing does."""

import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bslite.spec import Array

LEAST = 1 << 20  # cells: of arrays smaller than that, the allocator keeps the memory itself


class Blocks:
    """Makes arrays of 4-byte cells. The memory of those that are freed is used again for others.

    All of it, used and idle, is never more than what was in use at once. Arrays of fewer than ``least`` cells
    are the allocator's. Threads may share it.
    """

    def __init__(self, least: int = LEAST) -> None:
        self.least = least
        self.used = self.idle = self.most = 0  # bytes: in use, kept for the next, and most in use so far
        self._idle: OrderedDict[int, Array] = OrderedDict()  # by number, oldest first
        self._by_size: dict[int, list[int]] = {}
        self._count = 0
        self._lock = threading.RLock()  # an array may be freed while its thread is in here
        _all.add(self)

    def array(self, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> Array:
        """A row-major array; what is in it is undefined. Views of it and tensors made from it keep its memory
        as it does.
        """
        size = math.prod(shape)
        if size < self.least:
            return np.empty(shape, dtype)
        with self._lock:
            block = self._taken(size)
        # NumPy has a view of a view hold the first array of them, and an array of a buffer is always first.
        first = np.frombuffer(block.data, dtype)
        weakref.finalize(first, self._back, block).atexit = False
        return first.reshape(shape)

    def _taken(self, size: int) -> Array:
        if numbers := self._by_size.get(size):
            block = self._idle.pop(numbers.pop())
            self.idle -= block.nbytes
        else:
            block = np.empty(size, np.float32)
            while self._idle and self.used + self.idle + block.nbytes > self.most:
                number, old = self._idle.popitem(last=False)
                self._by_size[old.size].remove(number)
                self.idle -= old.nbytes
        self.used += block.nbytes
        self.most = max(self.most, self.used)
        return block

    def _back(self, block: Array) -> None:
        with self._lock:
            self._count += 1
            self._idle[self._count] = block
            self._by_size.setdefault(block.size, []).append(self._count)
            self.used -= block.nbytes
            self.idle += block.nbytes


def _renew() -> None:
    """In a forked child: a lock that another thread held is nobody's to release."""
    for blocks in list(_all):
        blocks._lock = threading.RLock()


_all: "weakref.WeakSet[Blocks]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
