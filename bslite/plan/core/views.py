"""Views: strided windows into buffers, the places of values. A change of strides moves data where one
suffices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bslite.kernels.contracts.record import Operand
from bslite.ops import Shape

Halo = tuple[int, int, int, int]  # zeros above, to the left, below and to the right of an image
NO_HALO = (0, 0, 0, 0)


@dataclass(frozen=True)
class Buffer:
    """A flat run of 4-byte cells: float32, or int32 for integers and bools. ``kind``: "arena" (placed by the
    planner), "input", "output", "const", "flags" (errors that steps find) or "outer" (in a stack's plan,
    memory outside it).
    """

    name: str
    size: int  # elements
    kind: str = "arena"


@dataclass(frozen=True)
class View:
    """A value of logical ``shape`` in ``buffer``: element ``offset`` plus ``strides`` (elements, per logical
    axis).

    ``halo`` (top, left, bottom, right) counts the zeros around an image, along the last two axes of ``[N, C,
    H, W]`` or ``[N, C, D, H, W]`` (the last of a signal ``[N, C, L]``), reachable with the same strides.
    """

    buffer: str
    offset: int
    shape: Shape
    strides: Shape
    halo: tuple[int, int, int, int] = NO_HALO

    @property
    def start(self) -> Operand:
        """The value's first element, as records hold it."""
        return Operand(self.buffer, self.offset)

    @property
    def extent(self) -> tuple[int, int]:
        """The first and one past the last element touched, without the halo. Strides may be negative."""
        first = last = self.offset
        for n, s in zip(self.shape, self.strides, strict=True):
            if s > 0:
                last += (n - 1) * s
            else:
                first += (n - 1) * s
        return first, last + 1

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> "View":
        """``self[..., start:stop:step, ...]`` along ``axis``. Rows that are cut off are not zeros; a cut of
        columns loses all of the halo.
        """
        size = max(0, -(-(stop - start) // step))
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        strides = (*self.strides[:axis], self.strides[axis] * step, *self.strides[axis + 1 :])
        halo = self.halo if axis < max(2, len(self.shape) - 2) else NO_HALO
        if axis == len(self.shape) - 2 > 1:
            _, left, _, right = self.halo
            halo = 0, left, 0, right
        return View(self.buffer, self.offset + start * self.strides[axis], shape, strides, halo)

    def permute(self, order: Sequence[int]) -> "View":
        """The view with its axes in another order."""
        shape, strides = tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order)
        return replace(self, shape=shape, strides=strides, halo=NO_HALO)

    def reshape(self, shape: Shape) -> "View | None":
        """The same elements in the same logical order under another shape, or None where strides cannot
        express it.
        """
        strides = reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else View(self.buffer, self.offset, shape, strides)

    @property
    def closed_up(self) -> Shape | None:
        """Strides of the same elements in the same order in memory, without the gaps that there are between
        runs of neighbours; None if there are no gaps, or no runs, or elements coincide or run backwards.
        """
        axes = [a for a, n in enumerate(self.shape) if n != 1]
        order = sorted(axes, key=lambda a: self.strides[a])
        if not order or self.strides[order[0]] != 1:
            return None
        strides, step, taken = [0] * len(self.shape), 1, 1
        for a in order:
            if self.strides[a] < taken:
                return None
            taken += (self.shape[a] - 1) * self.strides[a]
            strides[a] = step
            step *= self.shape[a]
        return tuple(strides) if any(self.strides[a] != strides[a] for a in axes) else None

    def broadcast(self, shape: Shape) -> "View":
        """NumPy broadcasting to ``shape``: strides of zero along axes that are missing or of size 1."""
        missing = len(shape) - len(self.shape)
        sizes, strides = (1,) * missing + self.shape, (0,) * missing + self.strides
        along = tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))
        return View(self.buffer, self.offset, shape, along)


def channel_axis(rank: int) -> int:
    """The axis that kernels vectorise over: 1 for images, else the last."""
    return 1 if rank == 4 else rank - 1


def contiguous(shape: Shape) -> Shape:
    """Row-major strides."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def channels_last(shape: Shape, strides: Shape) -> bool:
    """Whether images ``[N, C, H, W]`` lie with their channels last, and not row-major as well."""
    if len(shape) != 4:
        return False
    _, c, h, w = shape
    last, rows = (h * w * c, 1, w * c, c), contiguous(shape)

    def so(wanted: Shape) -> bool:
        return all(n == 1 or s == t for n, s, t in zip(shape, strides, wanted, strict=True))

    return so(last) and not so(rows)


def reshaped_strides(old: Shape, strides: Shape, new: Shape) -> Shape | None:
    """Strides for ``new`` over memory described by ``(old, strides)``, or None (NumPy's no-copy rule)."""
    dims = [(n, s) for n, s in zip(old, strides, strict=True) if n != 1]
    out: list[int] = [0] * len(new)
    i = 0
    j = 0
    while i < len(dims):
        count, j0 = 1, j
        i0 = i
        count_old = dims[i][0]
        while count < count_old or (j < len(new) and count == 0):
            count *= new[j]
            j += 1
            while count > count_old and i + 1 < len(dims):
                i += 1
                count_old *= dims[i][0]
            if count > count_old:
                return None
        # dims[i0..i] hold the same elements as new[j0..j): they must be one evenly strided run to be re-cut
        for a, b in zip(dims[i0:i], dims[i0 + 1 : i + 1], strict=True):
            if a[1] != b[0] * b[1]:
                return None
        step = dims[i][1]
        for k in range(j - 1, j0 - 1, -1):
            out[k] = step
            step *= new[k]
        i += 1
    return tuple(out)


def size_of(shape: Shape) -> int:
    """Number of elements."""
    return math.prod(shape)


def with_halo(view: View) -> View:
    """The view extended to the zeros around it, which a convolution reads too."""
    top, left, bottom, right = view.halo
    if view.halo == NO_HALO:
        return view
    *before, w = view.shape
    offset = view.offset - left * view.strides[-1]
    if top or bottom:
        before[-1] += top + bottom
        offset -= top * view.strides[-2]
    return View(view.buffer, offset, (*before, w + left + right), view.strides)


def turned(view: View) -> View:
    """The last two axes exchanged."""
    rank = len(view.shape)
    return view.permute([*range(rank - 2), rank - 1, rank - 2])
