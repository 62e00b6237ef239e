"""The largest elements along an axis, and positions as ones among zeros."""

from __future__ import annotations

from collections.abc import Mapping

from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops.index import dense, depth_flag, one_hot_numbers, topk_rows
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.rows import block_threads, power_above

SHORT = 128  # elements of a row that are compared each with each
TILE = 16  # elements of a thread, of those that a block sorts
#: Runs that are merged at once, by the longest for which it pays: each element looks through all the others.
FANS = ((64, 16), (512, 4))


@CUDA.register("topk")
def lower_topk(b: CudaBuilder, layer: Layer) -> None:
    """Short rows by comparing each with each; others sorted by tiles, of which the first k are merged."""
    (x, y), attrs = topk_rows(b, layer), layer.node.attrs
    rows, length, k = size_of(x.shape[:-1]), x.shape[-1], attrs["k"]
    threads = block_threads(b)
    order = {
        "threads": threads, "largest": int(attrs["largest"]),
        "floats": int(b.dtypes[layer.node.inputs[0]] == "float32"),
    }  # fmt: skip
    source, result = (x.buffer, x.offset), (y.buffer, y.offset)
    if length <= min(SHORT, threads):
        numbers = {"rows": rows, "length": length, "k": k}
        untyped(b, "topk_short", order, [-(-rows // (threads // length))], [threads], numbers,
               {"x": source, "y": result}, [x], [y])  # fmt: skip
        return
    sort_rows(b, x, rows, length, k, order, y)


def sort_rows(
    b: CudaBuilder, x: View, rows: int, length: int, k: int, order: Mapping[str, int], y: View | None = None
) -> View:
    """Append the launches that leave the first ``k`` of dense rows, in ``order``, as indices in y; or as
    cells of upper half and index in the memory that is returned. Tiles are sorted, then merged.
    """
    threads = order["threads"]
    tile = min(TILE * threads, power_above(length))
    runs, kept = -(-length // tile), min(k, tile)
    made = y if runs == 1 and y is not None else _runs(b, rows * runs * kept)
    untyped(b, "topk_tiles", {**order, "tile": tile, "whole": int(made is y)}, [rows * runs], [threads],
           {"length": length, "tiles": runs, "kept": kept},
           {"x": (x.buffer, x.offset), "y": (made.buffer, made.offset)}, [x], [made])  # fmt: skip
    while runs > 1:
        fan = min(runs, next((fan for most, fan in FANS if kept <= most), 2))
        groups, after = -(-runs // fan), min(k, fan * kept)
        total = rows * groups * fan * kept
        numbers = {
            "total": total, "runs": runs, "fan": fan, "groups": groups, "length": kept, "kept": after,
        }  # fmt: skip
        merged = y if groups == 1 and y is not None else _runs(b, rows * groups * after)
        untyped(b, "topk_merge", {"threads": threads, "whole": int(merged is y)}, [-(-total // threads)],
               [threads], numbers,
               {"x": (made.buffer, made.offset), "y": (merged.buffer, merged.offset)},
               [made], [merged])  # fmt: skip
        made, runs, kept = merged, groups, after
    return made


def _runs(b: CudaBuilder, elements: int) -> View:
    """Memory for sorted elements: two cells each."""
    return dense(b, (2 * elements,))


@CUDA.register("one_hot")
def lower_one_hot(b: CudaBuilder, layer: Layer) -> None:
    """A thread to a cell of the output."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    axis = attrs["axis"] % (len(x.shape) + 1)
    y, threads = dense(b, b.shapes[layer.name]), block_threads(b)
    total = size_of(y.shape)
    values = b.const("numbers" if attrs["to"] == "float32" else "cells", values=one_hot_numbers(layer))
    numbers = {"total": total, "depth": attrs["depth"], "inner": size_of(x.shape[axis:])}
    operands = {
        "x": (x.buffer, x.offset), "y": (y.buffer, 0), "values": (values, 0), "flag": depth_flag(b, layer),
    }  # fmt: skip
    untyped(b, "one_hot", {"threads": threads, "strict": int(attrs["strict"])}, [-(-total // threads)],
           [threads], numbers, operands, [x], [y])  # fmt: skip
    b.alias(layer.name, y)
