"""Resizing as one step per axis, over memory in which channels are contiguous."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, channel_axis, contiguous, size_of
from bslite.plan.cpu.ops.move import fill_step
from bslite.plan.cpu.ops.upsample import _bits
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped
from bslite.plan.shared.resampling import Axis, outside, taps


def axes_of(b: AnyBuilder, layer: Layer) -> tuple[View, list[int], dict[int, Axis]]:
    """The input row-major in an order of its axes, channels last; that order; and what is resized, by axis of
    the view, the one that shrinks most first.
    """
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    rank, shape, axes = len(x.shape), b.shapes[layer.name], attrs["axes"]
    inner = channel_axis(rank)
    order = [a for a in range(rank) if a != inner] + [inner]
    places = {}
    for i, axis in enumerate(a % rank for a in axes):
        have, out = x.shape[axis], shape[axis]
        scale = attrs["scales"][i] if attrs["scales"] else out / have
        part = (attrs["roi"][i], attrs["roi"][i + len(axes)]) if attrs["roi"] else (0.0, 1.0)
        places[order.index(axis)] = Axis(have, out, scale, *part)
    by_shrinking = sorted(places, key=lambda a: places[a].out / places[a].have)
    return b.flat(x.permute(order)), order, {axis: places[axis] for axis in by_shrinking}


@CPU.register("resize")
def lower_resize(b: CpuBuilder, layer: Layer) -> None:
    """Axis by axis, the one that shrinks most first; then what lies beyond a crop."""
    view, order, places = axes_of(b, layer)
    attrs = layer.node.attrs
    for axis, place in places.items():
        table = taps(place, attrs)
        if attrs["mode"] == "nearest" and [t[0].line for t in table] == list(range(view.shape[axis])):
            continue
        made = (*view.shape[:axis], len(table), *view.shape[axis + 1 :])
        y = View(b.buffer(size_of(made)).name, 0, made, contiguous(made))
        lines, each = size_of(made[: axis + 1]), size_of(made[axis + 1 :])
        count = len(table[0])
        item_lines, items = share_rows(b.machine, lines, lines * count * (8.0 + each / b.machine.lanes))
        cells = [cell for line in table for tap in line for cell in (tap.line, _bits(tap.weight))]
        args = {
            "size": view.shape[axis], "out": len(table), "inner": each, "taps": count, "lines": lines,
            "item_lines": item_lines,
        }  # fmt: skip
        operands = {
            "x": (view.buffer, view.offset), "y": (y.buffer, 0),
            "table": (b.const("offsets", values=cells), 0),
        }  # fmt: skip
        untyped(b, "resample", items, args, operands, [view], [y])
        view = y
    if attrs["roi"]:
        for axis, place in places.items():
            for i in outside(place, attrs["coordinates"]):
                fill_step(b, view.slice(axis, i, i + 1), attrs["extrapolation"])
    b.alias(layer.name, view.permute([order.index(a) for a in range(len(order))]))
