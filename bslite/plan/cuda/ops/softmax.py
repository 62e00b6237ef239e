"""Softmax and its logarithm, and running totals: along any axis, which is made contiguous first."""

from __future__ import annotations

from typing import Any

from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.cuda.rows import row_layer

CUMULATED = {"cumsum": 0, "cumprod": 1, "logcumsumexp": 2}  # op -> `kernels.cuda.rows.cumulate`'s kind


def _axis(b: CudaBuilder, layer: Layer) -> int:
    return int(layer.node.attrs["axis"]) % len(b.shapes[layer.name])


@CUDA.register("softmax", "log_softmax")
def lower_softmax(b: CudaBuilder, layer: Layer) -> None:
    """One launch, in which threads share rows; two, where rows are few and long."""
    log_of = int(layer.node.op == "log_softmax")
    row_layer(b, layer, "softmax", _axis(b, layer), variant={"log_of": log_of}, parted="softmax")


@CUDA.register(*CUMULATED)
def lower_cumulative(b: CudaBuilder, layer: Layer) -> None:
    """One launch; a block to a row."""
    op, attrs = layer.node.op, layer.node.attrs
    variant = {"kind": CUMULATED[op]}
    variant |= {name: int(attrs.get(name, False)) for name in ("exclusive", "reverse")}
    more: dict[str, Any] = {"variant": variant, "per": "row"}
    if b.dtypes[layer.name] == "float32":
        row_layer(b, layer, "cumulate", _axis(b, layer), **more)
        return
    what = {"cumsum": "sum", "cumprod": "product"}[op]
    flag = b.flag(layer.name, f"a {what}, {{value}}, does not fit 32 bits")
    row_layer(b, layer, "cumulate_integers", _axis(b, layer), places={"flag": flag}, **more)
