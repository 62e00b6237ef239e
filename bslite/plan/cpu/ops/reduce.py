"""Reductions as steps: what is kept and what is reduced, each merged into few loops.

Whether lanes are summed up or stand side by side, and the order of every sum, follow from the value's shape
alone: the channels are made contiguous (the last axis longer than one, where there is but one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bslite.ops.reduce import REDUCED, Arg, Reduction, reduced_axes
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of
from bslite.plan.cpu.elementwise import inner_axis
from bslite.plan.cpu.rows import row_layer
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

KEPT = REDUCE = 3  # loops of the kernel over either
RUN = 2  # registers of lanes it takes at once


class Reduced(NamedTuple):
    """What a reduction is of: ``axes`` of x; y is of the ``kept`` ones, in order."""

    x: View
    y: View
    axes: tuple[int, ...]
    kept: tuple[int, ...]
    arg: bool  # whether the result is a position


def reduced_of(b: AnyBuilder, layer: Layer) -> Reduced:
    """Of a layer; y is where its result goes."""
    node = layer.node
    op = node.declaration
    assert issubclass(op, (Reduction, Arg))
    x = b.values[node.inputs[0]]
    shape, rank = x.shape, len(x.shape)
    arg = issubclass(op, Arg)
    given = op.axes(node.attrs) if issubclass(op, Arg) else node.attrs["axes"]
    axes = tuple(reduced_axes(node.op, given, rank))
    kept = tuple(a for a in range(rank) if a not in axes)
    home = b.write(layer.name)
    if arg and len(axes) > 1:  # a position in row-major order
        x = View((flat := b.flat(x)).buffer, flat.offset, (size_of(shape),), (1,))
        shape, axes, kept = x.shape, (0,), ()
    strides = home.strides
    if node.attrs["keepdim"] and len(home.shape) == rank:
        strides = tuple(home.strides[a] for a in kept)
    y = View(home.buffer, home.offset, tuple(shape[a] for a in kept), strides if kept else ())
    return Reduced(x, y, axes, kept, arg)


@CPU.register(*REDUCED)
def lower_reduction(b: CpuBuilder, layer: Layer) -> None:
    """One step; of a value whose axes do not merge into the kernel's loops, a copy in plain order first."""
    node = layer.node
    x, y, axes, kept, arg = reduced_of(b, layer)
    shape = x.shape
    inner = axes[0] if arg else inner_axis(shape)
    x = b.arranged(x, inner, exact=True)
    sizes = tuple(shape[a] for a in kept)
    target = y
    if inner in kept and shape[inner] != 1 and y.strides[kept.index(inner)] != 1:
        target = b.fresh(sizes, kept.index(inner), NO_HALO)
    count = size_of(tuple(shape[a] for a in axes))
    divisor = float(max(count - node.attrs.get("correction", 0.0), 0.0))
    cells = {"count": count, "divisor": divisor, "last": int(node.attrs.get("last", False))}
    name, flag = node.op, (x.buffer, x.offset)
    if not arg and b.dtypes[layer.name] != "float32":
        name, flag = f"int_{name}", b.flag(layer.name, "the result {value} does not fit 32 bits")
    if not _reduce_step(b, name, x, target, axes, kept, inner, cells, flag):
        order = [*kept, *(a for a in axes if a != inner), *([inner] if inner in axes else [])]
        plain = b.flat(x.permute(order))
        plain_shape = (size_of(sizes), count)
        plain_x = View(plain.buffer, plain.offset, plain_shape, contiguous(plain_shape))
        flat_y = View(b.buffer(size_of(sizes)).name, 0, (size_of(sizes),), (1,))
        _reduce_step(b, name, plain_x, flat_y, (1,), (0,), 1, cells, flag)
        order = [a for a in order if a in kept]
        ordered = tuple(shape[a] for a in order)
        shaped = View(flat_y.buffer, 0, ordered, contiguous(ordered))
        target = shaped.permute([order.index(a) for a in kept])
    if target is not y:
        b.copy(target, y)


def _reduce_step(
    b: CpuBuilder,
    name: str,
    x: View,
    y: View,
    axes: Sequence[int],
    kept: Sequence[int],
    inner: int,
    cells: dict[str, Any],
    flag: tuple[str, int],
) -> bool:
    """Append the step, or say that the axes are too many."""
    rows = inner in axes
    lanes = b.machine.lanes
    outer = [a for a in kept if a != inner]
    sizes, (xs, ys) = merged_axes(
        tuple(x.shape[a] for a in outer),
        [tuple(x.strides[a] for a in outer), tuple(y.strides[list(kept).index(a)] for a in outer)],
        by=1,
    )
    inside = [a for a in axes if a != inner]
    order = contiguous(tuple(x.shape[a] for a in inside))
    counts, (steps, _) = merged_axes(
        tuple(x.shape[a] for a in inside), [tuple(x.strides[a] for a in inside), order], by=1
    )
    channels = block = 1
    if not rows:
        channels = x.shape[inner]
        wanted = -(-2 * b.machine.threads // max(1, size_of(tuple(sizes))))
        runs = -(-channels // (RUN * lanes))
        block = RUN * lanes * -(-runs // min(runs, wanted))
        sizes, xs, ys = [*sizes, -(-channels // block)], [*xs, block], [*ys, block]
    if len(sizes) > KEPT or len(counts) > REDUCE:
        return False
    total = size_of(tuple(sizes))
    cycles = 4.0 * size_of(x.shape) / lanes + 40.0 * total
    item_rows, items = share_rows(b.machine, total, cycles)
    sizes, (xs, ys) = padded(sizes, [xs, ys], KEPT)
    counts, (steps,) = padded(counts, [steps], REDUCE)
    args: dict[str, Any] = {
        **cells, "n1": sizes[1], "n2": sizes[2], "rows": total, "item_rows": item_rows,
        "length": x.shape[inner] if rows else 1, "channels": channels, "block": block,
        "function": ["reduction", name, "rows" if rows else "lanes"],
    }  # fmt: skip
    for i in range(3):
        args |= {f"x{i}": 4 * xs[i], f"y{i}": 4 * ys[i], f"m{i}": counts[i], f"s{i}": 4 * steps[i]}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset), "flag": flag}
    untyped(b, "reduce", items, args, operands, [x], [y])
    return True


@CPU.register("cumsum", "cumprod")
def lower_cumulative(b: CpuBuilder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    op, attrs, shape = layer.node.op, layer.node.attrs, b.shapes[layer.name]
    axis = attrs["axis"] % len(shape)
    integers = b.dtypes[layer.name] != "float32"
    args = {"exclusive": int(attrs["exclusive"]), "reverse": int(attrs["reverse"]), "integers": int(integers)}
    what = {"cumsum": "sum", "cumprod": "product"}[op]
    flag = b.flag(layer.name, f"a {what}, {{value}}, does not fit 32 bits") if integers else None
    row_layer(b, layer, op, axis, cycles=20 + 6.0 * shape[axis], args=args, places={"flag": flag})


@CPU.register("logcumsumexp")
def lower_logcumsumexp(b: CpuBuilder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    shape = b.shapes[layer.name]
    axis = layer.node.attrs["axis"] % len(shape)
    row_layer(b, layer, "logcumsumexp", axis, cycles=20 + 60.0 * shape[axis])
