"""How samples between and beyond an image's elements are computed."""

from bslite.kernels.contracts.choice import Choice


class Interpolation(Choice):
    """The value between elements along an axis: the nearest element, or a sum of the neighbours."""

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2

    @property
    def taps(self) -> int:
        """The number of elements in the sum along each axis."""
        return (1, 2, 4)[self]


class Beyond(Choice):
    """The values beyond the edges: zeros, the element at the border, or the mirrored image."""

    ZEROS = 0
    BORDER = 1
    REFLECTION = 2
