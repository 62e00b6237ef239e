"""Layers that work along one axis: its rows made contiguous, the axes around it merged into few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

OUTER = 3  # axes around the rows that the row kernels walk


def writable(b: AnyBuilder, name: str, inner: int) -> tuple[View, View]:
    """Where a kernel can write ``name`` with axis ``inner`` contiguous, and where the value must end up.

    The two differ where the value has a place that lies otherwise; the caller then copies.
    """
    home = b.write(name, inner)
    if home.shape[inner] == 1 or home.strides[inner] == 1:
        return home, home
    return b.fresh(home.shape, inner, NO_HALO), home


def row_layer(b: CpuBuilder, layer: Layer, kernel: str, axis: int, cycles: float, **more: Any) -> None:
    """A layer that is a row kernel along ``axis`` of its input; for the rest see `row_step`."""
    x = b.read(layer.node.inputs[0], inner=axis, exact=True)
    y, home = writable(b, layer.name, axis)
    row_step(b, kernel, x, y, axis, cycles, **more)
    if y is not home:
        b.copy(y, home)


def row_step(
    b: CpuBuilder,
    kernel: str,
    x: View,
    y: View,
    axis: int,
    cycles: float,
    args: Mapping[str, Any] | None = None,
    consts: Mapping[str, str | None] | None = None,
    work: int = 0,
    places: Mapping[str, tuple[str, int] | None] | None = None,
) -> None:
    """Append a step of a row kernel from x to y, views of one shape in which ``axis`` is contiguous.

    ``cycles``: what a row costs on one core. ``args`` and ``consts`` fill the cells beyond those that all row
    kernels have; a constant that is None is one the kernel will not look at. ``work``: elements of memory of
    its own that each item needs, as operand "work". ``places``: operands that lie elsewhere, such as a flag.
    """
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # the axes lie in two orders that do not merge: through plain order
        plain_x, plain_y = b.fresh(x.shape, axis, NO_HALO), b.fresh(y.shape, axis, NO_HALO)
        b.copy(x, plain_x)
        row_step(b, kernel, plain_x, plain_y, axis, cycles, args, consts, work, places)
        b.copy(plain_y, y)
        return
    length, outer = sizes[-1], sizes[:-1]
    rows = size_of(tuple(outer))
    item_rows, items = share_rows(b.machine, rows, rows * cycles)
    outer, (xs, ys) = padded(outer, [xs[:-1], ys[:-1]], OUTER)
    cells = {"n1": outer[1], "n2": outer[2], "rows": rows, "item_rows": item_rows, "length": length}
    cells |= {f"x{i}": 4 * s for i, s in enumerate(xs)} | {f"y{i}": 4 * s for i, s in enumerate(ys)}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    operands |= {role: (name, 0) if name else operands["x"] for role, name in (consts or {}).items()}
    operands |= {role: place or operands["x"] for role, place in (places or {}).items()}
    writes = [y]
    if work:
        memory = b.buffer(items * work)
        operands["work"] = (memory.name, 0)
        writes.append(View(memory.name, 0, (memory.size,), (1,)))
    untyped(b, kernel, items, {**cells, **(args or {})}, operands, [x], writes)
