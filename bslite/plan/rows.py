"""Layers that work on one axis at a time: its rows made contiguous, the axes around it merged into few."""

from __future__ import annotations

from typing import Any

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.loops import merged_axes, padded
from bslite.plan.sharing import share_rows
from bslite.plan.views import NO_HALO, View, size_of

OUTER = 3  # axes around the rows that the row kernels walk


def writable(b: Builder, name: str, inner: int) -> tuple[View, View]:
    """Where a kernel can write ``name`` with axis ``inner`` contiguous, and where the value must end up.

    The two differ where the value has a place that lies otherwise; the caller then copies.
    """
    home = b.write(name, inner)
    if home.shape[inner] == 1 or home.strides[inner] == 1:
        return home, home
    return b.fresh(home.shape, inner, NO_HALO), home


def row_step(
    b: Builder,
    layer: Layer,
    kernel: str,
    x: View,
    axis: int,
    cycles: float,
    args: dict[str, Any] | None = None,
    consts: dict[str, str] | None = None,
    work: int = 0,
) -> None:
    """Append a step of a row kernel over the rows of ``x`` along ``axis``, which must be contiguous in it.

    ``cycles``: what a row costs on one core. ``args`` and ``consts`` fill the cells beyond those that all row
    kernels have. ``work``: elements of memory of its own that each item needs, as operand "work".
    """
    y, home = writable(b, layer.name, axis)
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    if len(sizes) - 1 > OUTER:  # axes in such an order that they do not merge: both in plain order
        if home is y:
            y = b.fresh(y.shape, axis, NO_HALO)
        plain = b.fresh(x.shape, axis, NO_HALO)
        b.copy(x, plain)
        x = plain
        sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    length, outer = sizes[-1], sizes[:-1]
    rows = size_of(tuple(outer))
    item_rows, items = share_rows(b.machine, rows, rows * cycles)
    outer, (xs, ys) = padded(outer, [xs[:-1], ys[:-1]], OUTER)
    cells = {"n1": outer[1], "n2": outer[2], "rows": rows, "item_rows": item_rows, "length": length}
    cells |= {f"x{i}": 4 * s for i, s in enumerate(xs)} | {f"y{i}": 4 * s for i, s in enumerate(ys)}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    operands |= {role: (name, 0) for role, name in (consts or {}).items()}
    writes = [y]
    if work:
        memory = b.buffer(items * work)
        operands["work"] = (memory.name, 0)
        writes.append(View(memory.name, 0, (memory.size,), (1,)))
    b.step(kernel, items, {**cells, **(args or {})}, operands, [x], writes)
    if y is not home:
        b.copy(y, home)
