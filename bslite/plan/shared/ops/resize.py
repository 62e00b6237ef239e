"""Lowerings of resizing: along both axes in one step for planes, and for images where rows and columns have
one or two taps, else axis by axis. Of images, channels are contiguous, of planes, pixels; of signals either.
"""

from collections.abc import Mapping, Sequence

from bslite.ops.resized.resampling import Tap, Taps, outside, places, taps
from bslite.ops.resized.upsample import tables
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import View


@lowers("upsample")
def lower_upsample(b: AnyBuilder, layer: Layer) -> None:
    """Lower `upsample` by torch's rules, in one step."""
    x, y = (b.shapes[name] for name in (layer.node.inputs[0], layer.name))
    inner = _inner(b, layer)
    view, home = b.writable(layer.name, inner)
    _in_one_step(b, layer, view, inner, tables(x, y, layer.node.attrs))
    if view is not home:
        b.copy(view, home)


@lowers("resize")
def lower_resize(b: AnyBuilder, layer: Layer) -> None:
    """Lower `resize`: the axis that shrinks most comes first, unless all go in one step; elements beyond a
    crop are filled last.
    """
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    axes = places(x.shape, b.shapes[layer.name], attrs)
    by_axis = {axis: taps(place, attrs) for axis, place in axes.items()}
    inner, order = _inner(b, layer), list(by_axis)
    of_images = order == [2, 3] and len(by_axis[2][0]) <= 2
    if len(x.shape) == 4 and (of_images or (inner == 3 and order in ([2, 3], [3, 2]))):
        view, home = b.writable(layer.name, inner)
        _in_one_step(b, layer, view, inner, (by_axis[2], by_axis[3]))
    elif len(x.shape) == 3 and order == [2] and b.target.resizes_planes:
        view, home = b.writable(layer.name, b.inner(layer.name))
        _signal(b, layer, view, by_axis[2])
    else:
        view = home = _by_axes(b, x, by_axis, inner if len(x.shape) == 4 else b.inner(layer.name))
        b.alias(layer.name, view)
    if attrs["roi"]:
        for axis, place in axes.items():
            for i in outside(place, attrs["coordinates"]):
                b.target.fill(b, view.slice(axis, i, i + 1), attrs["extrapolation"])
    if view is not home:
        b.copy(view, home)


def _inner(b: AnyBuilder, layer: Layer) -> int:
    """The axis that is to be contiguous: the pixels of planes, else the channels."""
    return 3 if b.target.resizes_planes and b.inner(layer.name) == 3 else 1


def _in_one_step(b: AnyBuilder, layer: Layer, y: View, inner: int, both: Sequence[Taps]) -> None:
    """Append the step that resizes rows and columns, with axis ``inner`` contiguous."""
    resize = b.target.resize_planes if inner == 3 else b.target.resize_image
    resize(b, b.read(layer.node.inputs[0], inner, exact=True), y, *both)


def _signal(b: AnyBuilder, layer: Layer, y: View, table: Taps) -> None:
    """Append the step that resizes signals, with their channels contiguous, or as planes of one row."""
    inner = b.inner(layer.name)
    x = b.read(layer.node.inputs[0], inner, exact=True)
    if inner == 1:
        b.target.resample(b, x.permute((0, 2, 1)), y.permute((0, 2, 1)), 1, table)
    else:
        row = [[Tap(0, 1.0)]]
        b.target.resize_planes(b, _planes(x), _planes(y), row, table)


def _planes(signal: View) -> View:
    """Each channel of a signal as a plane of one row."""
    (n, c, pixels), (image, channel, pixel) = signal.shape, signal.strides
    return View(signal.buffer, signal.offset, (n, c, 1, pixels), (image, channel, 0, pixel))


def _by_axes(b: AnyBuilder, x: View, by_axis: Mapping[int, Taps], inner: int) -> View:
    """Append one step for each axis, over dense memory with axis ``inner`` contiguous."""
    rank = len(x.shape)
    order = [a for a in range(rank) if a != inner] + [inner]
    view = b.flat(x.permute(order))
    for axis, table in by_axis.items():
        at = order.index(axis)
        if len(table[0]) == 1 and [t[0].line for t in table] == list(range(view.shape[at])):
            continue
        y = b.dense((*view.shape[:at], len(table), *view.shape[at + 1 :]))
        b.target.resample(b, view, y, at, table)
        view = y
    return view.permute([order.index(a) for a in range(rank)])
