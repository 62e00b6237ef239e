"""Lowerings of reductions: the kept and the reduced axes, each merged into few loops.

The value's shape and its place in the model alone decide whether lanes are summed up or stand side by side,
and the order of every sum: the channels are made contiguous (if there is only one, the last axis longer than
one). A few channels that alone are summed, such as the two of complex numbers, are no rows: lanes of another
axis stand side by side.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.reduce import Reduce, Reduction
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand
from bslite.ops import Shape
from bslite.ops.reduce import REDUCED
from bslite.passes import Layer
from bslite.plan.core.layouts import FEW, innermost
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of
from bslite.plan.cpu.elementwise import inner_axis
from bslite.plan.cpu.ops.complex import norms_step
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.reduced import BEYOND, divisor, reduced_of

AXES = Reduce.AXES  # loops of the kernel over the kept axes, and over the reduced ones
ANY_ORDER = ("amax", "amin")  # what is found does not depend on the order: nothing need be moved for it
PAIR_NORMS = ("l2_norm", "sum_square")  # with a step for pairs, which adds as others do
COUNTED = 1 << 24  # float32 counts so far
LONG = 1 << 15  # elements that are reduced in parts
LEAST, MOST_PARTS = 1 << 13, 32  # elements of a part
LONG_OF_LANES, LEAST_OF_LANES = 1 << 11, 1 << 9  # the same of each lane: a thread finds its part near
RUN = 2  # registers of lanes that the kernel takes at once


class _InParts(NamedTuple):
    """The reduction of each part, and then of their results."""

    of_each: str
    then: str


PARTS = {
    "sum": _InParts("sum", "sum"),
    "mean": _InParts("sum", "mean"),
    "log_sum": _InParts("sum", "log_sum"),
    "l1_norm": _InParts("l1_norm", "sum"),
    "sum_square": _InParts("sum_square", "sum"),
    **{op: _InParts(op, op) for op in ("l2_norm", "logsumexp", "amax", "amin")},
}


class _Results(NamedTuple):
    """The kernel's arguments for every result; see `Reduce`."""

    elements: int
    divisor: float
    last: int


@CPU.register(*REDUCED)
def lower_reduction(b: CpuBuilder, layer: Layer) -> None:
    """Lower a reduction to one step; axes that do not merge into the kernel's loops are copied first."""
    node = layer.node
    x, y, axes, kept, arg = reduced_of(b, layer)
    shape = x.shape
    of_pairs = node.op in PAIR_NORMS and axes == (len(shape) - 1,) and shape[-1] == 2
    if of_pairs and norms_step(b, x, y, node.op == "l2_norm"):
        return
    inner = _inner_of_place(x, axes[0], kept) if arg else _channels(b, node.inputs[0], shape)
    if not arg and shape[inner] <= FEW and [a for a in axes if shape[a] > 1] == [inner]:
        inner = max(kept, key=lambda a: (x.strides[a] == 1, shape[a]), default=inner)
    if node.op in ANY_ORDER and x.strides[inner] != 1:
        inner = next((a for a in axes if shape[a] > 1 and x.strides[a] == 1), inner)
    if inner in kept and x.strides[inner] != 1:  # lanes stand side by side: any axis will do
        inner = max(kept, key=lambda a: (x.strides[a] == 1 and shape[a] >= b.machine.lanes, a == inner))
    x = b.arranged(x, inner, exact=True)
    sizes = tuple(shape[a] for a in kept)
    target = y
    if inner in kept and shape[inner] != 1 and y.strides[kept.index(inner)] != 1:
        target = b.fresh(sizes, kept.index(inner), NO_HALO)
    count = size_of(tuple(shape[a] for a in axes))
    integers = not arg and b.dtypes[layer.name] != "float32"
    flag = b.flag(layer.name, BEYOND, beyond=True) if integers else x.start
    results = _Results(count, divisor(layer, count), int(node.attrs.get("last", False)))
    function = Reduction(node.op, inner in axes, integers)
    if not integers and (cut := _parts(b, node.op, x, axes, kept, inner)) is not None:
        last = len(kept)
        then = Reduction(PARTS[node.op].then, function.rows)
        along = last if function.rows else kept.index(inner)
        done = _reduce_step(b, then, cut, target, (last,), range(last), along, results, flag)
        assert done, layer.name
    elif not _reduce_step(b, function, x, target, axes, kept, inner, results, flag):
        # In three loops, lanes and the order of the sums as they would be.
        outer, inside = [a for a in kept if a != inner], [a for a in axes if a != inner]
        parts = [size_of(tuple(shape[a] for a in found)) for found in (outer, inside, [inner])]
        plain_x = b.reshaped(b.flat(x.permute([*outer, *inside, inner])), tuple(parts))
        order = outer if function.rows else [*outer, inner]
        flat_y = b.dense((parts[0],) if function.rows else (parts[0], parts[2]))
        over: tuple[int, ...] = (1, 2) if function.rows else (1,)
        beside: tuple[int, ...] = (0,) if function.rows else (0, 2)
        done = _reduce_step(b, function, plain_x, flat_y, over, beside, 2, results, flag)
        assert done, layer.name
        shaped = b.reshaped(flat_y, tuple(shape[a] for a in order))
        target = shaped.permute([order.index(a) for a in kept])
    if target is not y:
        b.copy(target, y)


def _parts(
    b: CpuBuilder, op: str, x: View, axes: Sequence[int], kept: Sequence[int], inner: int
) -> View | None:
    """Where much is reduced to a result, append the reduction of parts, which threads share, and return their
    results behind the kept axes. What is reduced alone decides, not how often: in a batch as alone.
    """
    shape, rows = x.shape, inner in axes
    count = size_of(tuple(shape[a] for a in axes))
    if op not in PARTS or count < (LONG if rows else LONG_OF_LANES):
        return None
    if not rows and {*kept} - {0, inner}:
        return None  # with more axes it would depend on the batch whether they merge
    axis = next((a for a in axes if a != inner and shape[a] > 1), inner)
    most = min(MOST_PARTS, count // (LEAST if rows else LEAST_OF_LANES))
    parts = next((n for n in range(most, 1, -1) if shape[axis] % n == 0), 1)
    if parts == 1:
        return None
    each = shape[axis] // parts
    cut = View(
        x.buffer, x.offset, (*shape[:axis], each, *shape[axis + 1 :], parts),
        (*x.strides, each * x.strides[axis]),
    )  # fmt: skip
    y = b.fresh((*(shape[a] for a in kept), parts), len(kept) if rows else kept.index(inner), NO_HALO)
    results, beside = _Results(count // parts, 1.0, 0), (*kept, len(shape))
    done = _reduce_step(b, Reduction(PARTS[op].of_each, rows), cut, y, axes, beside, inner, results, x.start)
    return y if done else None


def _inner_of_place(x: View, axis: int, kept: Sequence[int]) -> int:
    """The axis that is contiguous where places of extremes along ``axis`` are found: a kept one that is so
    already, if lanes can count the places in float32.
    """
    beside = [a for a in kept if x.strides[a] == 1 and x.shape[a] > 1]
    return beside[0] if beside and x.strides[axis] != 1 and x.shape[axis] <= COUNTED else axis


def _channels(b: CpuBuilder, name: str, shape: Shape) -> int:
    """The axis that is made contiguous."""
    if len(shape) != len(b.shapes[name]):  # laid flat
        return inner_axis(shape)
    channels = innermost(len(shape), name in b.second)
    return channels if shape and shape[channels] != 1 else inner_axis(shape)


def reduce_rows(b: CpuBuilder, layer: Layer, x: View, y: View) -> None:
    """Append a reduction of floats along the last axis of x to y, where that axis has one element.

    The axes before must merge into the kernel's loops.
    """
    last = len(x.shape) - 1
    function = Reduction(layer.node.op, True, False)
    results = _Results(x.shape[last], divisor(layer, x.shape[last]), 0)
    short = View(y.buffer, y.offset, y.shape[:last], y.strides[:last])
    x = b.arranged(x, last, exact=True)
    done = _reduce_step(b, function, x, short, (last,), range(last), last, results, x.start)
    assert done, layer.name


def reduce_planes(b: CpuBuilder, op: str, x: View, y: View) -> None:
    """Append the ``amax`` or ``mean`` of each plane of x, ``[N, C, H, W]``, to y, ``[N, C, 1, 1]``."""
    n, channels, *plane = x.shape
    count = size_of(tuple(plane))
    rows = b.arranged(b.reshaped(x, (n, channels, count)), 2, exact=True)  # of one column, they may lie apart
    short = View(y.buffer, y.offset, y.shape[:2], y.strides[:2])
    results = _Results(count, float(count), 0)
    done = _reduce_step(b, Reduction(op, True), rows, short, (2,), (0, 1), 2, results, x.start)
    assert done


def add_parts(b: CpuBuilder, x: View, y: View) -> None:
    """Append the step of ``y``, the sum along axis 0 of x in the order of the parts; both have contiguous
    rows, and few axes in front of them.
    """
    axes = range(1, len(x.shape))
    results = _Results(x.shape[0], 1.0, 0)
    done = _reduce_step(b, Reduction("sum", False), x, y, (0,), axes, axes[-1], results, x.start)
    assert done


def sum_of_parts(b: CpuBuilder, x: View) -> View:
    """The sum along axis 0 of a row-major view, in the order of the parts; with one part, that."""
    rest = x.shape[1:]
    if x.shape[0] == 1:
        return View(x.buffer, x.offset, rest, x.strides[1:])
    y = b.dense(rest)
    add_parts(b, b.reshaped(x, (x.shape[0], size_of(rest))), b.reshaped(y, (size_of(rest),)))
    return y


def _reduce_step(
    b: CpuBuilder,
    function: Reduction,
    x: View,
    y: View,
    axes: Sequence[int],
    kept: Sequence[int],
    inner: int,
    results: _Results,
    flag: Operand,
) -> bool:
    """Append the step; return False if the axes are too many."""
    rows, lanes = function.rows, b.machine.lanes
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
    channels = block = 0
    if not rows:
        channels = x.shape[inner]
        wanted = -(-2 * b.machine.threads // max(1, size_of(tuple(sizes))))
        runs = -(-channels // (RUN * lanes))
        block = RUN * lanes * -(-runs // min(runs, wanted))
        sizes, xs, ys = [*sizes, -(-channels // block)], [*xs, block], [*ys, block]
    if max(len(sizes), len(counts)) > AXES:
        return False
    total = size_of(tuple(sizes))
    cycles = 4.0 * size_of(x.shape) / lanes + 40.0 * total
    item_rows, items = share_rows(b.machine, total, cycles)
    sizes, (xs, ys) = padded(sizes, [xs, ys], AXES)
    counts, (steps,) = padded(counts, [steps], AXES)
    record = Reduce(
        x.start, y.start, flag, RowAxes(in_bytes(xs), in_bytes(ys), sizes[1], sizes[2], total, item_rows),
        m=tuple(counts), s=in_bytes(steps), length=x.shape[inner] if rows else 1, channels=channels,
        block=block, function=function, count=results.elements, divisor=results.divisor, last=results.last,
    )  # fmt: skip
    step(b, record, items, [x], [y])
    return True
