"""Reductions: what is kept and what is reduced, each merged into few loops; no copy where they suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.ops.reduce import REDUCED
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.ops.reduce import reduced_of
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.rows import block_threads, power_above

KEPT, LOOPS = 3, 4  # loops of the kernel over what is kept, over what is reduced
SECTOR = 8  # results side by side at least, where neighbouring threads read along them: 32 bytes
BLOCKS = 256  # results that make fewer blocks are shared by several
LEAST = 16  # elements of a thread, of a result that several blocks share


@CUDA.register(*REDUCED)
def lower_reduction(b: CudaBuilder, layer: Layer) -> None:
    """One launch; two where results are few and long. A copy before where the axes do not merge."""
    x, y, axes, kept, _ = reduced_of(b, layer)
    rank = len(x.shape)
    if not _reduce(b, layer, x, y, axes, kept):
        order = [*kept, *axes]
        plain = b.flat(x.permute(order))
        if not _reduce(b, layer, plain, y, range(len(kept), rank), range(len(kept))):
            results = View(b.buffer(size_of(y.shape)).name, 0, y.shape, contiguous(y.shape))
            done = _reduce(b, layer, plain, results, range(len(kept), rank), range(len(kept)))
            assert done
            b.copy(results, y)


def _reduce(b: CudaBuilder, layer: Layer, x: View, y: View, axes: Sequence[int], kept: Sequence[int]) -> bool:
    """Append the launches, or say that the axes are too many."""
    sizes, (xs, ys) = merged_axes(
        tuple(x.shape[a] for a in kept), [tuple(x.strides[a] for a in kept), y.strides], by=0
    )
    counts, (steps,) = merged_axes(tuple(x.shape[a] for a in axes), [tuple(x.strides[a] for a in axes)], by=0)
    if len(sizes) > KEPT or len(counts) > LOOPS:
        return False
    attrs, name = layer.node.attrs, layer.node.op
    results, count = size_of(tuple(sizes)), size_of(tuple(counts))
    rows = int(not sizes or (bool(steps) and steps[-1] <= xs[-1]))
    threads = block_threads(b)
    width = min(threads if rows else threads // SECTOR, power_above(-(-count // 4)))
    blocks = -(-results // (threads // width))

    sizes, (xs, ys) = padded(sizes, [xs, ys], KEPT)
    counts, (steps,) = padded(counts, [steps], LOOPS)
    to = {"n1": sizes[1], "n2": sizes[2], **{f"y{i}": s for i, s in enumerate(ys)}}
    source = {"n1": sizes[1], "n2": sizes[2], **{f"x{i}": s for i, s in enumerate(xs)}}
    source |= {f"m{i}": n for i, n in enumerate(counts) if i} | {f"s{i}": s for i, s in enumerate(steps)}
    numbers: dict[str, Any] = {"results": results, "count": count}
    divisor = {"divisor": float(max(count - attrs.get("correction", 0.0), 0.0))}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    place = name in ("argmax", "argmin")
    if not place and b.dtypes[layer.name] != "float32":
        flag = b.flag(layer.name, "the result {value} does not fit 32 bits")
        variant = {"threads": threads, "width": width, "rows": rows, "name": f"int_{name}", "last_of": 0}
        untyped(b, "reduce_integers", variant, [blocks], [threads], {**numbers, **to, **source, **divisor},
               {**operands, "flag": flag}, [x], [y])  # fmt: skip
        return True

    last_of = int(attrs.get("last", False))
    variant = {"threads": threads, "width": width, "rows": rows, "name": name, "last_of": last_of}
    suffix = "_place" if place else ""
    parts = min(-(-BLOCKS // blocks), count // (LEAST * width))
    if parts <= 1:
        untyped(b, f"reduce{suffix}", variant, [blocks], [threads], {**numbers, **to, **source, **divisor},
               operands, [x], [y])  # fmt: skip
        return True
    chunk = -(-count // parts)
    made = View(b.buffer(4 * results * parts).name, 0, (4 * results * parts,), (1,))
    untyped(b, "reduce_part", variant, [blocks, parts], [threads],
           {**numbers, **source, "chunk": chunk, "parts": parts},
           {"x": operands["x"], "made": (made.buffer, 0)}, [x], [made])  # fmt: skip
    few = min(64, threads)
    untyped(b, f"reduce_merge{suffix}", {"threads": few, "name": name, "last_of": last_of},
           [-(-results // few)], [few], {**numbers, **to, **divisor, "parts": parts},
           {"made": (made.buffer, 0), "y": operands["y"]}, [made], [y])  # fmt: skip
    return True
