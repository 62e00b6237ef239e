"""Views of operands as the loops of the "elementwise" kernel: broadcast, merged, cut into items."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.loops import into_items, merged_axes, split_for_items
from bslite.plan.core.views import NO_HALO, View, channel_axis, contiguous, size_of
from bslite.plan.cpu.epilogue import after
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, untyped

AXES = 5  # loops of the kernel, the channels included
OPERANDS = "xzw"
Place = tuple[str, int]


def elementwise_layer(
    b: CpuBuilder, layer: Layer, function: str, cycles: float = 4.0, fails: str | None = None
) -> None:
    """One function of the layer's inputs, broadcast to its shape; ``cycles`` of a register of results.

    ``fails``: what a flag that it raises means.
    """
    operands = [b.values[name] for name in layer.node.inputs]
    home = b.write(layer.name)
    shape, inner = home.shape, inner_axis(home.shape)
    direct = not shape or home.strides[inner] == 1 or shape[inner] == 1
    y = home if direct else b.fresh(shape, inner, NO_HALO)
    cells = {"function": ["elementwise", function], **after(layer.activation).numbers()}
    flag = b.flag(layer.name, fails) if fails else None
    elementwise_step(b, [_aligned(b, v, shape, inner) for v in operands], y, cells, cycles, flag)
    if y is not home:
        b.copy(y, home)


def inner_axis(shape: Shape) -> int:
    """The axis kernels vectorise over: the channels, or where there is but one, the last longer than one."""
    channels = channel_axis(len(shape))
    if not shape or shape[channels] != 1:
        return channels
    return max((a for a, n in enumerate(shape) if n != 1), default=channels)


def _aligned(b: CpuBuilder, view: View, shape: Shape, inner: int) -> View:
    """``view`` with ``shape``: broadcast by strides of zero, contiguous or constant along ``inner``."""
    missing = len(shape) - len(view.shape)
    view = View(view.buffer, view.offset, (1,) * missing + view.shape, (0,) * missing + view.strides)
    view = b.arranged(view, inner, exact=True) if shape else view
    strides = tuple(0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    return View(view.buffer, view.offset, shape, strides)


def elementwise_step(
    b: CpuBuilder, operands: Sequence[View], y: View, cells: dict[str, Any], cycles: float, flag: Place | None
) -> None:
    """Append one "elementwise" step from operands of y's shape, strides of zero among theirs."""
    views = [
        *operands,
        *[dataclasses.replace(operands[0], strides=(0,) * len(y.shape))] * (3 - len(operands)),
    ]
    sizes, runs = merged_axes(y.shape, [v.strides for v in (*views, y)], by=3)
    if len(sizes) > AXES:
        copies, made = in_plain_order(b, operands, y)
        elementwise_step(b, copies, made, cells, cycles, flag)
        b.copy(made, y)
        return
    if not sizes or any(run[-1] not in (0, 1) for run in runs[:3]) or runs[3][-1] != 1:
        sizes, runs = [*sizes, 1], [[*run, 1] for run in runs]
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 14)
    inner = {f"{name}_inner": run[-1] for name, run in zip(OPERANDS, runs, strict=False)}
    items = item_count(b.machine, cycles * size_of(y.shape) / b.machine.lanes)
    sizes, runs = into_items(sizes, runs, items, AXES)
    args: dict[str, Any] = {**cells, **inner, "channels": sizes[-1]}
    args |= {f"n{i}": n for i, n in enumerate(sizes[:-1])}
    for letter, run in zip((*OPERANDS, "y"), runs, strict=True):
        args |= {f"{letter}{i}": 4 * s for i, s in enumerate(run[:-1])}
    places = {name: (v.buffer, v.offset) for name, v in zip(OPERANDS, views, strict=True)}
    places |= {"y": (y.buffer, y.offset), "flag": flag or places["x"]}
    untyped(b, "elementwise", sizes[0] * sizes[1], args, places, list(operands), [y])


def in_plain_order(b: AnyBuilder, operands: Sequence[View], y: View) -> tuple[list[View], View]:
    """Operands that lie in too many different orders, each copied out in full, row-major; and where the
    result goes before it is copied to y.
    """

    def plain() -> View:
        return View(b.buffer(size_of(y.shape)).name, 0, y.shape, contiguous(y.shape))

    copies = []
    for view in operands:
        copies.append(plain())
        b.copy(view, copies[-1])
    return copies, plain()
