"""Windows as columns: strides over the padded image, one copy. Columns as windows: one step of sums."""

from __future__ import annotations

import math
from typing import NamedTuple

from bslite.ops.fold import positions
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.ops.move import fill_step
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

TAP_CYCLES = 4.0


@CPU.register("unfold")
def lower_unfold(b: CpuBuilder, layer: Layer) -> None:
    """The image seen as [N, C, window, places] by its strides."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    windows = positions(x.shape[2:], attrs)
    top, left, bottom, right = attrs["padding"]
    if any(attrs["padding"]):
        shape = (*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right)
        wide = View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))
        fill_step(b, wide, 0.0 if b.dtypes[layer.name] == "float32" else 0)
        inside = wide.slice(2, top, top + x.shape[2]).slice(3, left, left + x.shape[3])
        b.copy(x, inside)
        x = wide
    n, c, h, w = x.strides
    (dh, dw), (sh, sw) = attrs["dilation"], attrs["stride"]
    shape = (*x.shape[:2], *attrs["kernel"], *windows)
    source = View(x.buffer, x.offset, shape, (n, c, h * dh, w * dw, h * sh, w * sw))
    target = View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))
    b.copy(source, target)
    made = b.shapes[layer.name]
    b.alias(layer.name, View(target.buffer, 0, made, contiguous(made)))


class FoldAxis(NamedTuple):
    """An axis of the image, and how windows lie along it."""

    n: int = 1  # elements
    w: int = 1  # places of windows
    k: int = 1  # elements of a window
    s: int = 1  # stride
    d: int = 1  # dilation
    p: int = 0  # padding before

    def found(self, at: int) -> list[tuple[int, int]]:
        """The windows that element ``at`` is in: which tap it is, and the window's place."""
        starts = [(tap, at + self.p - tap * self.d) for tap in range(self.k)]
        return [(tap, st // self.s) for tap, st in starts if st % self.s == 0 and 0 <= st // self.s < self.w]


def fold_axes(layer: Layer) -> list[FoldAxis]:
    """Always three: one or two axes are the last of them."""
    attrs = layer.node.attrs
    size, axes = attrs["output_size"], len(attrs["kernel"])
    along = (size, positions(size, attrs), attrs["kernel"], attrs["stride"], attrs["dilation"])
    given = [FoldAxis(*numbers) for numbers in zip(*along, attrs["padding"][:axes], strict=True)]
    return [FoldAxis()] * (3 - axes) + given


@CPU.register("fold")
def lower_fold(b: CpuBuilder, layer: Layer) -> None:
    """Line by line of the image."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    y = b.write(layer.name)
    y_steps = (*y.strides[:2], *(0,) * (5 - len(y.strides)), *y.strides[2:])
    cells = {
        f"{role}{i}": value
        for i, axis in enumerate(fold_axes(layer))
        for role, value in axis._asdict().items()
    }
    lines = size_of(y.shape[:-1])
    item_lines, items = share_rows(
        b.machine, lines, TAP_CYCLES * size_of(y.shape) * math.prod(attrs["kernel"])
    )
    args = {
        **cells, **{f"y{i}": 4 * s for i, s in enumerate(y_steps)},
        "lines": lines, "item_lines": item_lines, "channels": y.shape[1],
    }  # fmt: skip
    untyped(b, "fold", items, args, {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}, [x], [y])
