"""The windows of a convolution along each axis: their places in its input, and the padding they need."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from bslite.ops import Shape
from bslite.ops.core import ParamShapes
from bslite.passes.families import TRANSPOSED
from bslite.plan.core.views import Halo, View
from bslite.spec import ModelSpec, Node


class Axis(NamedTuple):
    """Windows along one axis: ``taps`` elements each, ``dilation`` apart, ``stride`` from window to window.

    The first window begins at element ``start`` of the input's ``have`` elements. Window i makes element
    ``first + i * step`` of the output.
    """

    taps: int
    stride: int
    dilation: int
    start: int
    have: int
    made: int
    first: int = 0
    step: int = 1
    first_tap: int = 0  # in the filter as it is given
    tap_step: int = 1  # distance of neighbouring taps in the given filter
    empty: bool = False  # no tap of the filter meets an element

    @property
    def before(self) -> int:
        """Elements that windows reach before the first one."""
        return max(0, -self.start)

    @property
    def after(self) -> int:
        """Elements that windows reach after the last one."""
        last = self.start + (self.made - 1) * self.stride + (self.taps - 1) * self.dilation
        return max(0, last + 1 - self.have)


NONE = Axis(1, 1, 1, 0, 1, 1)  # the axis that signals and images lack


class Window(NamedTuple):
    """Windows along depth, rows and columns."""

    depth: Axis
    rows: Axis
    cols: Axis

    @property
    def by_planes(self) -> bool:
        """Whether planes of the filter outside the volume are left out of the sum; if not, rows are."""
        return self.depth.taps > 1 or self.depth.before > 0 or self.depth.after > 0

    def making(self, first: int, stop: int) -> "Window | None":
        """The windows that make the rows ``[first, stop)`` of the output, as if these were all, if any do."""
        rows = self.rows
        skip, end = (max(0, -(-(at - rows.first) // rows.step)) for at in (first, stop))
        made = min(end, rows.made) - skip
        if made < 1:
            return None
        start, place = rows.start + skip * rows.stride, rows.first + skip * rows.step - first
        return self._replace(rows=rows._replace(start=start, made=made, first=place))

    @property
    def taps(self) -> int:
        """The number of taps."""
        return math.prod(axis.taps for axis in self)

    @property
    def empty(self) -> bool:
        """Whether no tap meets an element, so that the outputs are the bias."""
        return any(axis.empty for axis in self)

    @property
    def halo(self) -> Halo:
        """The zeros that must lie around the input."""
        if self.empty:
            return (0, 0, 0, 0)
        rows = self.rows if self.by_planes else NONE
        return rows.before, self.cols.before, rows.after, self.cols.after


def three(axes: Sequence[Axis]) -> Window:
    """The window of one to three axes; missing ones are added in front."""
    return Window(*(NONE,) * (3 - len(axes)), *axes)


def conv_window(node: Node, params: ParamShapes, have: Shape, made: Shape) -> Window:
    """The windows of a convolution from an input of shape ``have`` to an output of shape ``made``."""
    attrs = node.attrs
    return three(
        [
            Axis(taps, stride, dilation, -before, h, p)
            for taps, stride, dilation, before, h, p in zip(
                params["weight"][2:], attrs["stride"], attrs["dilation"],
                attrs["padding"][: len(have) - 2], have[2:], made[2:], strict=True,
            )
        ]
    )  # fmt: skip


def updated_windows(attrs: Mapping[str, Any], have: Shape, made: Shape) -> Window:
    """The windows of the convolution whose filter's gradient is asked for: from ``have`` to ``made``."""
    keys = ("kernel", "stride", "dilation", "before")
    each = zip(*(attrs[key] for key in keys), have[2:], made[2:], strict=True)
    return three(
        [Axis(taps, stride, dilation, -before, h, p) for taps, stride, dilation, before, h, p in each]
    )


def phases(taps: int, stride: int, dilation: int, before: int, have: int, made: int) -> list[Axis]:
    """A transposed convolution along one axis as convolutions: one for every output in ``stride``.

    Output o gets input i times tap k where ``o + before = i * stride + k * dilation``. The outputs ``o =
    phase + j * stride`` take every ``stride / gcd(stride, dilation)``-th tap, on inputs ``dilation / gcd``
    apart that advance by one with j: a convolution with stride 1. Taps are taken in the order of the inputs,
    the last one first.
    """
    common = math.gcd(stride, dilation)
    found = []
    for phase in range(min(stride, made)):
        at, count = phase + before, -(-(made - phase) // stride)
        meeting = [k for k in range(taps) if (at - k * dilation) % stride == 0]
        if not meeting:
            found.append(Axis(1, 1, 1, 0, have, count, phase, stride, empty=True))
            continue
        start = (at - meeting[-1] * dilation) // stride
        found.append(
            Axis(
                len(meeting), 1, dilation // common, start, have, count, phase, stride,
                meeting[-1], -stride // common,
            )
        )  # fmt: skip
    return found


def transposed_windows(node: Node, params: ParamShapes, have: Shape, made: Shape) -> list[Window]:
    """The windows of the convolutions that together make up a transposed one."""
    attrs = node.attrs
    axes = [
        phases(*axis)
        for axis in zip(
            params["weight"][2:], attrs["stride"], attrs["dilation"],
            attrs["padding"][: len(have) - 2], have[2:], made[2:], strict=True,
        )
    ]  # fmt: skip
    return [three(choice) for choice in product(*axes)]


def shapes_of_params(spec: ModelSpec, node: Node, shapes: Mapping[str, Shape]) -> ParamShapes:
    """Role -> shape of a node's parameters, those that are values among them."""
    stored = spec.param_shapes(node)
    return stored | {role: shapes[name] for role, name in node.given.items()} if node.given else stored


def windows_of(node: Node, params: ParamShapes, shapes: Mapping[str, Shape], name: str) -> list[Window]:
    """All windows of a convolution or transposed convolution that makes the value ``name``."""
    have, made = shapes[node.inputs[0]], shapes[name]
    if node.declaration.plain in TRANSPOSED:
        return transposed_windows(node, params, have, made)
    return [conv_window(node, params, have, made)]


def volume(view: View) -> View:
    """A signal or an image as a volume ``[N, C, D, H, W]``."""
    missing = 5 - len(view.shape)
    shape = (*view.shape[:2], *(1,) * missing, *view.shape[2:])
    return View(view.buffer, view.offset, shape, (*view.strides[:2], *(0,) * missing, *view.strides[2:]))


def made_by(view: View, window: Window) -> View:
    """The part of the output that the window computes."""
    for axis in range(2, len(view.shape)):
        along = window[axis + 3 - len(view.shape)]
        if (along.first, along.step) != (0, 1):
            view = view.slice(axis, along.first, view.shape[axis], along.step)
    return view
