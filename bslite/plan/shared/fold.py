"""The axes of an image with the windows that columns hold."""

from typing import NamedTuple

from bslite.ops.fold import positions
from bslite.passes import Layer


class FoldAxis(NamedTuple):
    """An axis of the image, and the windows along it."""

    n: int = 1  # elements
    w: int = 1  # windows
    k: int = 1  # elements of a window
    s: int = 1  # stride
    d: int = 1  # dilation
    p: int = 0  # padding before

    def found(self, at: int) -> list[tuple[int, int]]:
        """The windows that contain element ``at``: for each, the tap and the window's number."""
        starts = [(tap, at + self.p - tap * self.d) for tap in range(self.k)]
        return [(tap, st // self.s) for tap, st in starts if st % self.s == 0 and 0 <= st // self.s < self.w]


def fold_axes(layer: Layer) -> list[FoldAxis]:
    """The three axes of a fold; one or two axes of an image are the last of them."""
    attrs = layer.node.attrs
    size, axes = attrs["output_size"], len(attrs["kernel"])
    along = (size, positions(size, attrs), attrs["kernel"], attrs["stride"], attrs["dilation"])
    given = [FoldAxis(*numbers) for numbers in zip(*along, attrs["padding"][:axes], strict=True)]
    return [FoldAxis()] * (3 - axes) + given
