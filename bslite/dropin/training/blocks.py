"""Memory that training uses again, step after step: a new page costs several times what writing it does."""

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from bslite.dropin.model import new
from bslite.spec import Array

LEAST = 1 << 16  # cells: smaller tensors are torch's, whose allocator keeps small blocks


class Blocks:
    """Makes tensors of 4-byte cells. The memory of those that torch has freed is used again for others.

    All of it, used and idle, is never more than what was in use at once. Threads may share it.
    """

    def __init__(self) -> None:
        self.used = self.idle = self.most = 0  # bytes: in use, kept for the next, and most in use so far
        self._idle: OrderedDict[int, Array] = OrderedDict()  # by number, oldest first
        self._by_size: dict[int, list[int]] = {}
        self._count = 0
        self._lock = threading.RLock()  # a tensor may be freed while its thread is in here

    def tensor(self, shape: Sequence[int]) -> torch.Tensor:
        """A contiguous float32 tensor; what is in it is undefined."""
        size = math.prod(shape)
        if size < LEAST:
            return new(shape)
        with self._lock:
            block = self._taken(size)
        piece = block.reshape(tuple(shape))  # an object of its own, which lives as long as torch needs it
        weakref.finalize(piece, self._back, block).atexit = False
        return torch.from_numpy(piece)

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
