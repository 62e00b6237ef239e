"""Lowerings of resizing: images along both axes in one step where rows and columns have one or two taps, else
axis by axis. Channels are contiguous.
"""

from collections.abc import Mapping

from bslite.ops.resized.resampling import Taps, outside, places, taps
from bslite.ops.resized.upsample import tables
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, View, channel_axis


@lowers("upsample")
def lower_upsample(b: AnyBuilder, layer: Layer) -> None:
    """Lower `upsample` by torch's rules, in one step."""
    x = b.read(layer.node.inputs[0], exact=True)
    y, home = b.writable(layer.name, 1)
    b.target.resize_image(b, x, y, *tables(x.shape, y.shape, layer.node.attrs))
    if y is not home:
        b.copy(y, home)


@lowers("resize")
def lower_resize(b: AnyBuilder, layer: Layer) -> None:
    """Lower `resize`: the axis that shrinks most comes first; elements beyond a crop are filled last."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    axes = places(x.shape, b.shapes[layer.name], attrs)
    by_axis = {axis: taps(place, attrs) for axis, place in axes.items()}
    if len(x.shape) == 4 and list(by_axis) == [2, 3] and len(by_axis[2][0]) <= 2:
        view = b.fresh(b.shapes[layer.name], 1, NO_HALO)
        b.target.resize_image(b, b.read(layer.node.inputs[0], exact=True), view, by_axis[2], by_axis[3])
    else:
        view = _by_axes(b, x, by_axis)
    if attrs["roi"]:
        for axis, place in axes.items():
            for i in outside(place, attrs["coordinates"]):
                b.target.fill(b, view.slice(axis, i, i + 1), attrs["extrapolation"])
    b.alias(layer.name, view)


def _by_axes(b: AnyBuilder, x: View, by_axis: Mapping[int, Taps]) -> View:
    """Append one step for each axis, over memory with channels last."""
    rank = len(x.shape)
    inner = channel_axis(rank)
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
