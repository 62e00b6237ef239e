"""How elements between and beyond those of an image are made."""

from __future__ import annotations

from bslite.kernels.contracts.choice import Choice


class Interpolation(Choice):
    """What stands between elements along an axis: the nearest one, or a sum of those around."""

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2

    @property
    def taps(self) -> int:
        """Elements that the sum is made of, along each axis."""
        return (1, 2, 4)[self]


class Beyond(Choice):
    """What lies beyond the edges: zeros, the element at the border, or the image mirrored."""

    ZEROS = 0
    BORDER = 1
    REFLECTION = 2
