"""Elements picked by index, triangles, lengths of sequences."""

from __future__ import annotations

from bslite.errors import EngineError
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import size_of
from bslite.plan.cpu.ops.index import dense, range_flag
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.rows import block_threads

AXES = 6  # of the kernel


@CUDA.register("gather_elements")
def lower_gather_elements(b: CudaBuilder, layer: Layer) -> None:
    """A thread to an element; along the axis that is picked along, x stands still."""
    x, indices = b.values[layer.node.inputs[0]], b.flat(b.values[layer.node.inputs[1]])
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = dense(b, indices.shape)
    still = tuple(0 if a == axis else s for a, s in enumerate(x.strides))
    sizes, runs = merged_axes(indices.shape, [y.strides, still], by=0)
    if len(sizes) > AXES or any(s < 0 for s in x.strides):
        raise EngineError(f"layer {layer.name!r}: {len(sizes)} separate axes; at most {AXES}")
    axes, count, threads = max(1, len(sizes)), size_of(indices.shape), block_threads(b)
    inward, (_, strides) = padded(sizes, runs, AXES)
    numbers = {"count": count, "size": x.shape[axis], "x_step": x.strides[axis]}
    numbers |= {f"n{i}": n for i, n in enumerate(reversed(inward[1:]))}
    numbers |= {f"x{i}": s for i, s in enumerate(reversed(strides))}
    flag = range_flag(b, layer, f"axis {axis} of size {x.shape[axis]}")
    operands = {
        "x": (x.buffer, x.offset), "indices": (indices.buffer, indices.offset), "y": (y.buffer, 0),
        "flag": flag,
    }  # fmt: skip
    untyped(b, "gather_elements", {"threads": threads, "axes": axes}, [-(-count // threads)], [threads],
           numbers, operands, [x, indices], [y])  # fmt: skip
    b.alias(layer.name, y)


@CUDA.register("trilu")
def lower_trilu(b: CudaBuilder, layer: Layer) -> None:
    """A thread to an element."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    y, count, threads = dense(b, x.shape), size_of(x.shape), block_threads(b)
    height, width = x.shape[-2:]
    numbers = {
        "count": count, "height": height, "width": width,
        "diagonal": max(-height, min(attrs["diagonal"], width)),
    }  # fmt: skip
    untyped(
        b, "trilu", {"threads": threads, "upper": int(attrs["upper"])}, [-(-count // threads)], [threads],
        numbers, {"x": (x.buffer, x.offset), "y": (y.buffer, 0)}, [x], [y],
    )  # fmt: skip
    b.alias(layer.name, y)


@CUDA.register("sequence_lengths")
def lower_sequence_lengths(b: CudaBuilder, layer: Layer) -> None:
    """One thread. Each thing that can be wrong has its flag."""
    attrs, x = layer.node.attrs, b.flat(b.values[layer.node.inputs[0]])
    steps, y = b.shapes[layer.node.inputs[1]][0], dense(b, x.shape)
    most = steps if attrs["longest"] is None else min(attrs["longest"], steps)
    numbers = {"count": x.shape[0], "most": most, "steps": steps if attrs["whole"] else 0}
    operands = {
        "x": (x.buffer, x.offset), "y": (y.buffer, 0),
        "range_flag": b.flag(layer.name, f"sequence length {{value}} is not between 1 and {most}"),
        "order_flag": b.flag(
            layer.name,
            "sequence length {value} follows a shorter one; with enforce_sorted=True they must be in "
            "decreasing order",
        ),
        "whole_flag": b.flag(
            layer.name,
            f"the longest sequence has {{value}} of {steps} steps: cut x to it, or give "
            f"pad_packed_sequence total_length={steps}",
        ),
    }  # fmt: skip
    untyped(b, "sequence_lengths", {"in_order": int(attrs["sorted"])}, [1], [1], numbers, operands, [x], [y])
    b.alias(layer.name, y)
