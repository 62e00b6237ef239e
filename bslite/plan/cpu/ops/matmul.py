"""Lowering of the product of two computed matrices: a step packs the second, a "conv" step multiplies."""

import functools
import itertools
import math

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, contiguous, turned
from bslite.plan.cpu.contraction import contraction, merge_lines, rows_apart
from bslite.plan.cpu.on_tiles.pixels import Near, Pixels, Places, in_lines
from bslite.plan.cpu.on_tiles.split import PIXEL, Packed, Sum, Weights, on_tiles, split_conv
from bslite.plan.cpu.on_tiles.split_weights import computed
from bslite.plan.cpu.ops.conv_weight import summed_over_rows
from bslite.plan.cpu.packing import Matrices, pack, pack_across
from bslite.plan.cpu.reduction import reduction_of_rows, sums_across
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.tiling import LineTiling
from bslite.plan.cpu.unpacked import Products, multiplied_unpacked
from bslite.plan.shared.attention import copied

MAX_STEPS = 16  # where the batch axes do not merge; beyond that, both operands are copied out in full
ROWS = 8  # of two matrices without a batch, for each of the columns of the narrower one
OUTER = 3  # axes around a matrix that the packing kernel walks


@CPU.register("matmul")
def lower_matmul(b: CpuBuilder, layer: Layer) -> None:
    """Lower ``[..., M, K] @ [..., K, N]``: batch axes become images of a conv with weights per image."""
    name_x, name_w = layer.node.inputs
    x, w = b.values[name_x], b.values[name_w]
    shape = b.shapes[layer.name]
    batch = shape[:-2]
    y, home = b.writable(layer.name, len(shape) - 1)
    if layer.activation is None and _by_rows(b, turned(x), w, y):
        if y is not home:
            b.copy(y, home)
        return
    x, (k, n) = b.read(name_x, inner=-1, exact=True), w.shape[-2:]
    if not (batch and on_tiles(b, Sum(PIXEL, k), n, None)):  # tiles read rows split, which lie apart
        x = rows_apart(b, x, n)
    x, w = (v.broadcast((*batch, *v.shape[-2:])) for v in (x, w))
    vectors = batch and x.shape[-2] == 1 and w.strides[-2] == 1 and sums_across(b.machine, 1, k)
    if vectors:  # y^T = w^T x^T: products of w's columns, which lie in memory, with one column
        x, w = turned(w), turned(x)
    if not _multiply(b, layer, x, w, turned(y) if vectors else y):
        x, w = copied(b, x), copied(b, w)
        y = b.fresh(shape, len(shape) - 1, NO_HALO)
        done = _multiply(b, layer, x, w, turned(y) if vectors else y)
        assert done
    if y is not home:
        b.copy(y, home)


def _by_rows(b: CpuBuilder, x: View, w: View, y: View) -> bool:
    """Append the steps of ``y = x^T w`` where rows of both lie in memory, if that is quicker than a copy of x
    and panels of w; else return False, without a step. But for the number of matrices, shapes decide: so bits
    do not depend on it.
    """
    (rows, m), n, batch = x.shape[-2:], w.shape[-1], y.shape[:-2]
    if m == 1 or x.strides[-1] != 1 or 1 not in (w.strides[-1], n) or rows < min(m, n):
        return False
    if not batch:
        if b.around is not None or rows < ROWS * min(m, n):
            return False
        summed_over_rows(b, x, w, y)
        return True
    if on_tiles(b, Sum(PIXEL, rows), n, None):
        return False
    x, w = (v.broadcast((*batch, *v.shape[-2:])) for v in (x, w))
    if not _each_by_rows(b, x, w, y):
        made = b.fresh(y.shape, len(y.shape) - 1, NO_HALO)
        done = _each_by_rows(b, copied(b, x), copied(b, w), made)
        assert done
        b.copy(made, y)
    return True


def _each_by_rows(b: CpuBuilder, x: View, w: View, y: View) -> bool:
    """Append the steps for operands of the full batch; return False, without a step, for too many."""
    sizes, runs = merged_axes(y.shape[:-2], [v.strides[:-2] for v in (x, w, y)], by=2)
    if not sizes:
        sizes, runs = [1], [[0]] * 3
    if math.prod(sizes[:-1]) > MAX_STEPS:
        return False
    for place in itertools.product(*map(range, sizes[:-1])):
        at = [sum(i * s for i, s in zip(place, run, strict=False)) for run in runs]
        views = [
            View(v.buffer, v.offset + start, (sizes[-1], *v.shape[-2:]), (run[-1], *v.strides[-2:]))
            for v, start, run in zip((x, w, y), at, runs, strict=True)
        ]
        summed_over_rows(b, *views)
    return True


def _multiply(b: CpuBuilder, layer: Layer, x: View, w: View, y: View) -> bool:
    """Append the steps for operands of the full batch; return False, without a step, for too many."""
    (m, k), n = x.shape[-2:], w.shape[-1]
    batch = y.shape[:-2]
    across = sums_across(b.machine, n, k)
    may_split = bool(batch) and not across
    tiles_take_it = may_split and on_tiles(b, Sum(PIXEL, k), n, None)
    if not (across or tiles_take_it) and _as_they_lie(b, layer, x, w, y):
        return True
    # w's matrices are packed one after the other, each once: repeated ones have stride 0
    own = tuple(size if stride else 1 for size, stride in zip(batch, w.strides, strict=False))
    order = tuple(s if stride else 0 for s, stride in zip(contiguous(own), w.strides, strict=False))
    sizes, (xs, ws, ys) = merged_axes(batch, [x.strides[:-2], order, y.strides[:-2]], by=2)
    if not sizes:
        sizes, xs, ws, ys = [1], [0], [0], [0]
    if math.prod(sizes[:-1]) > MAX_STEPS:
        return False
    geometry = {"x": (xs[-1], 0, x.strides[-2]), "y": (ys[-1], 0, y.strides[-2]), "r": (0, 0, 0)}
    # images that share their matrix may be cut into lines together
    lines, geometry = merge_lines(b, sizes[-1] if ws[-1] == 0 else 1, 1, m, n, geometry)
    if ws[-1] != 0:
        lines = lines._replace(images=sizes[-1])
    packed: list[View] = []
    tiles: list[Weights] = []

    def parts_of(first: int, parts: int, b_parts: int) -> Packed:
        """The weights on tiles, from matrix ``first`` on."""
        if not tiles:
            tiles.append(computed(b, layer, _matrices(b, w, own)))
        start, _, views = tiles[0].packed(parts, b_parts)
        each = views[0].shape[-1]
        return start._replace(at=start.at + first * each), ws[-1] * each, views

    for place in itertools.product(*map(range, sizes[:-1])):
        at_x, at_w, at_y = (sum(i * s for i, s in zip(place, run, strict=False)) for run in (xs, ws, ys))

        def weights(tiling: LineTiling, at: int = at_w) -> tuple[View, int, int]:
            if not packed:
                matrices = _matrices(b, w, own)
                packed.append(
                    pack_across(b, matrices)
                    if across
                    else pack(b, matrices, tiling.width, tiling.tail, tiling.panels)
                )
            size = packed[0].shape[-1]
            return packed[0], at * size, ws[-1] * size

        rows = View(x.buffer, x.offset + at_x, (sizes[-1], m, k), (xs[-1], x.strides[-2], 1))
        result = View(y.buffer, y.offset + at_y, (sizes[-1], m, n), (ys[-1], y.strides[-2], 1))
        size, (from_x, to_y) = in_lines(
            b.machine.threads,
            Pixels(sizes[-1], 1, 1, m),
            [Places(v, v.start, v.strides[0], 0, 0, v.strides[1]) for v in (rows, result)],
            apart=ws[-1] != 0,
        )
        some = Weights(functools.partial(parts_of, at_w))
        if may_split and split_conv(
            b, layer, size, Sum(PIXEL, k), from_x, Near(0, 0, 0), to_y, None, n, False, some, None
        ):
            continue
        contraction(
            b, layer, rows.start, result, None, lines, geometry,
            reduction_of_rows(k, n, across), channels=n, halo_reads=rows, pack=weights, across=across,
        )  # fmt: skip
    return True


def _as_they_lie(b: CpuBuilder, layer: Layer, x: View, w: View, y: View) -> bool:
    """Append the step that reads matrices as they lie in memory, if that is quicker, and each is read once;
    else return False, without a step.
    """
    batch, (k, n) = y.shape[:-2], w.shape[-2:]
    sizes, runs = merged_axes(batch, [v.strides[:-2] for v in (x, w, y)], by=2)
    if len(sizes) > 2 or any(run == 0 for run in runs[1]):
        return False
    (n0, n1), runs = padded(sizes, runs, 2)
    around = Products((n0, n1), *((outer, inner) for outer, inner in runs))
    left, right, made = (View(v.buffer, v.offset, v.shape[-2:], v.strides[-2:]) for v in (x, w, y))
    matrices = Matrices(right, right.offset, k, n, right.strides[0], right.strides[1])
    return multiplied_unpacked(b, layer, left, matrices, reduction_of_rows(k, n), made, around=around)


def _matrices(b: CpuBuilder, w: View, own: Shape) -> Matrices:
    """The ``own`` matrices of ``w``, of a copy where they have too many axes."""
    k, n = w.shape[-2:]
    sizes, (runs, _) = merged_axes(own, [w.strides[:-2], contiguous(own)], by=1)
    if len(sizes) > OUTER:
        w = copied(b, View(w.buffer, w.offset, (*own, k, n), w.strides))
        sizes, (runs, _) = merged_axes(own, [w.strides[:-2], contiguous(own)], by=1)
    sizes, (runs,) = padded(sizes, [runs], OUTER)
    (n0, n1, n2), (x0, x1, x2) = sizes, runs
    return Matrices(w, w.offset, k, n, w.strides[-2], w.strides[-1], sizes=(n0, n1, n2), runs=(x0, x1, x2))
