"""Lowerings of resizing: images along both axes in one step where rows and columns have one or two taps, else
axis by axis. Channels are contiguous.
"""

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.taps import Tap, Taps
from bslite.plan.core.views import NO_HALO, View, channel_axis
from bslite.plan.shared.resampling import Axis, linear_taps, nearest_taps, outside, taps


@lowers("upsample")
def lower_upsample(b: AnyBuilder, layer: Layer) -> None:
    """Lower `upsample` by torch's rules, in one step."""
    attrs = layer.node.attrs
    x = b.read(layer.node.inputs[0], exact=True)
    y, home = b.writable(layer.name, 1)
    tables: list[Taps] = []
    for have, out, scale in zip(x.shape[2:], y.shape[2:], attrs["scale"] or (None, None), strict=True):
        if attrs["mode"] == "nearest":
            tables.append(nearest_taps(have, out, scale))
        else:
            tables.append(linear_taps(have, out, scale, attrs["align_corners"]))
    b.target.resize_image(b, x, y, *tables)
    if y is not home:
        b.copy(y, home)


@lowers("resize")
def lower_resize(b: AnyBuilder, layer: Layer) -> None:
    """Lower `resize`: the axis that shrinks most comes first; elements beyond a crop are filled last."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    places = _places(b, layer)
    tables = {axis: taps(place, attrs) for axis, place in places.items()}
    if len(x.shape) == 4 and list(tables) == [2, 3] and len(tables[2][0]) <= 2:
        view = b.fresh(b.shapes[layer.name], 1, NO_HALO)
        b.target.resize_image(b, b.read(layer.node.inputs[0], exact=True), view, tables[2], tables[3])
    else:
        view = _by_axes(b, x, tables)
    if attrs["roi"]:
        for axis, place in places.items():
            for i in outside(place, attrs["coordinates"]):
                b.target.fill(b, view.slice(axis, i, i + 1), attrs["extrapolation"])
    b.alias(layer.name, view)


def _places(b: AnyBuilder, layer: Layer) -> dict[int, Axis]:
    """The axes to resize, the one that shrinks most first."""
    x, attrs, shape = b.values[layer.node.inputs[0]], layer.node.attrs, b.shapes[layer.name]
    rank, axes, places = len(x.shape), attrs["axes"], {}
    for i, axis in enumerate(a % rank for a in axes):
        have, out = x.shape[axis], shape[axis]
        scale = attrs["scales"][i] if attrs["scales"] else out / have
        part = (attrs["roi"][i], attrs["roi"][i + len(axes)]) if attrs["roi"] else (0.0, 1.0)
        places[axis] = Axis(have, out, scale, *part)
    return dict(sorted(places.items(), key=lambda item: item[1].out / item[1].have))


def _by_axes(b: AnyBuilder, x: View, tables: dict[int, list[list[Tap]]]) -> View:
    """Append one step for each axis, over memory with channels last."""
    rank = len(x.shape)
    inner = channel_axis(rank)
    order = [a for a in range(rank) if a != inner] + [inner]
    view = b.flat(x.permute(order))
    for axis, table in tables.items():
        at = order.index(axis)
        if len(table[0]) == 1 and [t[0].line for t in table] == list(range(view.shape[at])):
            continue
        y = b.dense((*view.shape[:at], len(table), *view.shape[at + 1 :]))
        b.target.resample(b, view, y, at, table)
        view = y
    return view.permute([order.index(a) for a in range(rank)])
