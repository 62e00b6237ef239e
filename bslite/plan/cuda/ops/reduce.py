"""Reductions: kept and reduced axes each merge into few loops; x is copied where these do not suffice."""

from collections.abc import Sequence
from dataclasses import replace

from bslite.kernels.contracts.cuda.reduce import (
    KeptAxes,
    MergeVariant,
    Reduce,
    ReducedAxes,
    ReduceIntegers,
    ReduceMerge,
    ReduceMergePlace,
    ReducePart,
    ReducePlace,
    ReduceVariant,
)
from bslite.kernels.contracts.cuda.rows import TargetAxes
from bslite.ops.reduce import REDUCED
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads, power_above
from bslite.plan.shared.reduced import BEYOND, divisor, reduced_of

KEPT, LOOPS = 3, 4  # loops of the kernel over kept axes, over reduced axes
SECTOR = 8  # least neighbouring results, where threads read along them: 32 bytes
BLOCKS = 256  # several blocks share a result where there are fewer blocks than this
LEAST = 16  # least elements per thread, of a result that several blocks share


@CUDA.register(*REDUCED)
def lower_reduction(b: CudaBuilder, layer: Layer) -> None:
    """Append one launch; two where results are few and long. A copy precedes where the axes do not merge."""
    x, y, axes, kept, _ = reduced_of(b, layer)
    rank = len(x.shape)
    if not _reduce(b, layer, x, y, axes, kept):
        order = [*kept, *axes]
        plain = b.flat(x.permute(order))
        if not _reduce(b, layer, plain, y, range(len(kept), rank), range(len(kept))):
            results = b.dense(y.shape)
            done = _reduce(b, layer, plain, results, range(len(kept), rank), range(len(kept)))
            assert done
            b.copy(results, y)


def _reduce(b: CudaBuilder, layer: Layer, x: View, y: View, axes: Sequence[int], kept: Sequence[int]) -> bool:
    """Append the launches, or return that the axes are too many."""
    sizes, (xs, ys) = merged_axes(
        tuple(x.shape[a] for a in kept), [tuple(x.strides[a] for a in kept), y.strides], by=0
    )
    counts, (steps,) = merged_axes(tuple(x.shape[a] for a in axes), [tuple(x.strides[a] for a in axes)], by=0)
    if len(sizes) > KEPT or len(counts) > LOOPS:
        return False
    name = layer.node.op
    results, count = size_of(tuple(sizes)), size_of(tuple(counts))
    rows = int(not sizes or (bool(steps) and steps[-1] <= xs[-1]))
    threads = block_threads(b)
    width = min(threads if rows else threads // SECTOR, power_above(-(-count // 4)))
    blocks = -(-results // (threads // width))

    sizes, (xs, ys) = padded(sizes, [xs, ys], KEPT)
    counts, (steps,) = padded(counts, [steps], LOOPS)
    kept_axes = KeptAxes(sizes[1], sizes[2], tuple(xs))
    reduced = ReducedAxes(*counts[1:], tuple(steps))
    to, by = TargetAxes(tuple(ys)), divisor(layer, count)
    place = name in ("argmax", "argmin")
    last_of = int(layer.node.attrs.get("last", False))
    variant = ReduceVariant(threads, width, rows, name, last_of)
    common = (results, count, kept_axes, to, reduced, by)
    if not place and b.dtypes[layer.name] != "float32":
        variant = replace(variant, name=f"int_{name}", last_of=0)
        integers = ReduceIntegers(x.start, y.start, *common, b.flag(layer.name, BEYOND, True))
        launch(b, integers, variant, [blocks], [threads], [x], [y])
        return True

    parts = min(-(-BLOCKS // blocks), count // (LEAST * width))
    if parts <= 1:
        whole = (ReducePlace if place else Reduce)(x.start, y.start, *common)
        launch(b, whole, variant, [blocks], [threads], [x], [y])
        return True
    chunk = -(-count // parts)
    made = b.dense((4 * results * parts,))
    part = ReducePart(x.start, made.start, results, count, chunk, parts, kept_axes, reduced)
    launch(b, part, variant, [blocks, parts], [threads], [x], [made])
    few = min(64, threads)
    merge = (ReduceMergePlace if place else ReduceMerge)(
        made.start, y.start, results, count, parts, sizes[1], sizes[2], to, by
    )
    launch(b, merge, MergeVariant(few, name, last_of), [-(-results // few)], [few], [made], [y])
    return True
