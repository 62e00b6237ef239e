"""Weights that a DequantizeLinear makes of whole numbers of a few bits."""

from typing import NamedTuple

import numpy as np

from bslite.frontends.onnx.tensors import halves
from bslite.spec import Array


class Blocked(NamedTuple):
    """``(numbers - zero) * scale`` of 8 or 4 bits. ``axis``: that of blocks of ``block``
    numbers; if ``block`` is 0, the one along which scales differ.
    """

    numbers: Array
    scale: Array
    zero: Array
    axis: int
    block: int

    @property
    def bits(self) -> int:
        """Of a number."""
        return 4 if halves(self.numbers) else 8

    def by_row(self, rows: bool) -> "Blocked | None":
        """The same with outputs along axis 0 and blocks along axis 1, of a matrix that has ``rows`` for
        outputs or else columns; None if its scales lie otherwise.
        """
        axis = self.axis % 2 if rows else 1 - self.axis % 2
        numbers, scale, zero = (a if rows else a.T for a in self[:3])
        if self.block:
            return Blocked(numbers, scale, zero, 1, self.block) if axis == 1 else None
        if max(scale.size, zero.size) > 1 and axis != 0:
            return None
        scale, zero = (np.broadcast_to(a.reshape(-1, 1), (len(numbers), 1)) for a in (scale, zero))
        return Blocked(numbers, scale, zero, 1, numbers.shape[1])
