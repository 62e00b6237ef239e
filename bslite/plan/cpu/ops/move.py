"""Ops that move data, as changes of strides where that suffices and as copies where it does not."""

from __future__ import annotations

import dataclasses

from bslite.passes import Layer
from bslite.plan.core.builder import Builder
from bslite.plan.core.loops import into_items, merged_axes, padded, split_for_items
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of, with_halo
from bslite.plan.core.windows import volume
from bslite.plan.cpu.sharing import item_count, share_rows

AXES = 6  # of the copy kernel


def copy_step(b: Builder, source: View, target: View) -> None:
    """Append a copy of ``source`` to ``target``, views of the same logical shape."""
    if _is_picture(source, target):
        _interleave_step(b, source, target)
        return
    sizes, runs = merged_axes(target.shape, [source.strides, target.strides], by=1)
    if not sizes:
        sizes, runs = [1], [[1], [1]]
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 16)
    if len(sizes) > AXES:
        _copy_axes_step(b, source, target, sizes, runs)
        return
    if _transpose_step(b, source, target, sizes, runs):
        return
    vector = int(runs[0][-1] == 1 and runs[1][-1] == 1)
    items = item_count(b.machine, 2.0 * size_of(target.shape) / (b.machine.lanes if vector else 1))
    sizes, runs = into_items(sizes, runs, items, AXES)
    (x, y) = runs
    args = {f"n{i}": n for i, n in enumerate(sizes)}
    args |= {f"x{i}": 4 * s for i, s in enumerate(x)} | {f"y{i}": 4 * s for i, s in enumerate(y)}
    args["vector"] = vector
    operands = {"x": (source.buffer, source.offset), "y": (target.buffer, target.offset)}
    b.step("copy", sizes[0] * sizes[1], args, operands, [source], [target])


def _copy_axes_step(b: Builder, source: View, target: View, sizes: list[int], runs: list[list[int]]) -> None:
    """Append a copy over more axes than the copy kernel has loops."""
    x, y = runs
    planes = size_of(tuple(sizes[:-2]))
    each, items = share_rows(b.machine, planes, 2.0 * size_of(target.shape) + 100.0 * planes)
    outer = reversed(range(len(sizes) - 2))
    table = b.const("offsets", values=[cell for a in outer for cell in (sizes[a], 4 * x[a], 4 * y[a])])
    args = {
        "axes": len(sizes) - 2, "planes": planes, "item_planes": each, "n0": sizes[-2], "n1": sizes[-1],
        "x0": 4 * x[-2], "x1": 4 * x[-1], "y0": 4 * y[-2], "y1": 4 * y[-1],
        "vector": int(x[-1] == 1 and y[-1] == 1),
    }  # fmt: skip
    operands = {"x": (source.buffer, source.offset), "y": (target.buffer, target.offset), "table": (table, 0)}
    b.step("copy_axes", items, args, operands, [source], [target])


def _transpose_step(b: Builder, source: View, target: View, sizes: list[int], runs: list[list[int]]) -> bool:
    """Append a copy by squares of registers, if different axes are contiguous in source and target."""
    x, y = runs
    lanes = b.machine.lanes
    rows = [a for a in range(len(sizes) - 1) if x[a] == 1 and sizes[a] >= lanes]
    if y[-1] != 1 or x[-1] == 1 or sizes[-1] < lanes or not rows or len(sizes) > 5:
        return False
    row = rows[0]
    outer = [a for a in range(len(sizes) - 1) if a != row]
    n, (xs, ys) = padded([sizes[a] for a in outer], [[run[a] for a in outer] for run in runs], 3)
    wanted = -(-item_count(b.machine, 0.5 * size_of(target.shape)) // size_of(tuple(n)))
    block_cols = lanes * -(-sizes[-1] // (lanes * min(wanted, -(-sizes[-1] // lanes))))
    blocks = -(-sizes[-1] // block_cols)
    args = {
        "n1": n[1], "n2": n[2], **{f"x{i}": 4 * s for i, s in enumerate(xs)},
        "rows": sizes[row], "cols": sizes[-1],
        **{f"y{i}": 4 * s for i, s in enumerate(ys)}, "x_col": 4 * x[-1], "y_row": 4 * y[row],
        "blocks": blocks, "block_cols": block_cols,
    }  # fmt: skip
    operands = {"x": (source.buffer, source.offset), "y": (target.buffer, target.offset)}
    b.step("transpose", size_of(tuple(n)) * blocks, args, operands, [source], [target])
    return True


def _is_picture(source: View, target: View) -> bool:
    """Three planes to pixels of three channels, in runs on both sides."""
    if len(source.shape) != 4 or source.shape[1] != 3:
        return False
    return source.strides[3] == 1 and target.strides[1] == 1 and target.strides[3] == 3


def _interleave_step(b: Builder, source: View, target: View) -> None:
    """Append the copy of planes to pixels."""
    n, _, h, w = source.shape
    args = {
        "lines": h, "pixels": w, "x_image": 4 * source.strides[0], "x_plane": 4 * source.strides[1],
        "x_line": 4 * source.strides[2], "y_image": 4 * target.strides[0], "y_line": 4 * target.strides[2],
    }  # fmt: skip
    operands = {"x": (source.buffer, source.offset), "y": (target.buffer, target.offset)}
    b.step("interleave", n * h, args, operands, [source], [target])


def halo_step(b: Builder, view: View) -> None:
    """Append the zeros around the images of ``view``: of a volume, around every plane."""
    whole = volume(view)
    n, _, d, h, w = whole.shape
    image, _, plane, line, col = whole.strides
    top, left, bottom, right = view.halo
    bands = min(h, b.machine.threads)  # each thread those of its share of the lines
    args = {
        "y_image": 4 * image, "y_line": 4 * line, "lines": h, "left": left * col, "right": right * col,
        "top": top, "bottom": bottom, "whole": (left + w + right) * col, "bands": bands,
        "planes": d, "y_plane": 4 * plane,
    }  # fmt: skip
    b.step("halo", n * d * bands, args, {"y": (view.buffer, view.offset)}, [], [with_halo(view)])
    zeros = b.steps[-1].writes
    zeros[0] = dataclasses.replace(zeros[0], inside=view.extent)  # nobody waits who only fills the image


@lowers("reshape", "flatten")
def lower_reshape(b: Builder, layer: Layer) -> None:
    """A new shape over the same memory if strides allow, else over a row-major copy."""
    x = b.values[layer.node.inputs[0]]
    view = x.reshape(b.shapes[layer.name])
    if view is None:
        view = b.flat(x).reshape(b.shapes[layer.name])
        assert view is not None
    b.alias(layer.name, view)


@lowers("permute")
def lower_permute(b: Builder, layer: Layer) -> None:
    """Strides reordered."""
    b.alias(layer.name, b.values[layer.node.inputs[0]].permute(layer.node.attrs["order"]))


@lowers("repeat_batch")
def lower_repeat_batch(b: Builder, layer: Layer) -> None:
    """A stride of zero."""
    x = b.values[layer.node.inputs[0]]
    b.alias(layer.name, View(x.buffer, x.offset, b.shapes[layer.name], (0, *x.strides[1:])))


@lowers("slice")
def lower_slice(b: Builder, layer: Layer) -> None:
    """An offset and a stride."""
    x = b.values[layer.node.inputs[0]]
    attrs = layer.node.attrs
    axis = attrs["axis"] % len(x.shape)
    start, stop, step = slice(attrs["start"], attrs["stop"], attrs["step"]).indices(x.shape[axis])
    b.alias(layer.name, x.slice(axis, start, stop, step))


@lowers("concat")
def lower_concat(b: Builder, layer: Layer) -> None:
    """Nothing to do for inputs already written in place; copies for the others."""
    y = b.write(layer.name)
    axis = layer.node.attrs["axis"] % len(y.shape)
    start = 0
    for name in layer.node.inputs:
        x = b.values[name]
        size = x.shape[axis]
        target = y.slice(axis, start, start + size)
        if (x.buffer, x.offset, x.strides) != (target.buffer, target.offset, target.strides):
            b.copy(x, target)
        start += size


def fill_step(b: Builder, view: View, value: float) -> None:
    """Append steps that set every element of ``view``: to a float, or an int where its cells are integers."""
    sizes, (strides,) = merged_axes(view.shape, [view.strides], by=0)
    if not sizes or strides[-1] != 1:
        sizes, strides = [*sizes, 1], [*strides, 1]
    while len(sizes) > 2:  # rare: a slice of a wider buffer, line by line
        for i in range(sizes[0]):
            inner = View(view.buffer, view.offset + i * strides[0], tuple(sizes[1:]), tuple(strides[1:]))
            fill_step(b, inner, value)
        return
    count = sizes[-1]
    items, step = (sizes[0], strides[0]) if len(sizes) == 2 else (1, 0)
    operands = {"y": (view.buffer, view.offset)}
    b.step("fill", items, {"y_step": 4 * step, "count": count, "value": value}, operands, [], [view])


@lowers("constant")
def lower_constant(b: Builder, layer: Layer) -> None:
    """The parameter itself, as a value."""
    key = layer.node.params["value"]
    shape = b.shapes[layer.name]
    b.alias(layer.name, View(b.const("param", key), 0, shape, contiguous(shape), NO_HALO))
