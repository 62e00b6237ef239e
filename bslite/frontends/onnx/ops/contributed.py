"""Builders of operators that onnxruntime had before ONNX, or has under a name of its own (com.microsoft).

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import find, onnx_op
from bslite.frontends.onnx.ops.moves import reshaped
from bslite.frontends.onnx.ops.sampling import grid_sample
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, fixed

OPSET = 17  # of the operators that builders here are written as


def as_onnx(s: Site, op: str, *inputs: Operand | None, **attributes: Any) -> Any:
    """What ONNX's operator of that name makes, as of `OPSET`."""
    builder = find(op, OPSET)
    assert builder is not None, op
    return builder(Site(s.store, s.name, op, OPSET, s.used), *inputs, **attributes)


@onnx_op("com.microsoft:Trilu")
def trilu(s: Site, x: Operand, k: Operand | None = None, *, upper: int = 1) -> Any:
    return as_onnx(s, "Trilu", x, k, upper=upper)


@onnx_op("com.microsoft:GatherND")
def gather_nd(s: Site, x: Operand, indices: Operand) -> Any:
    return as_onnx(s, "GatherND", x, indices, batch_dims=0)


@onnx_op("com.microsoft:Range")
def range_(s: Site, start: Operand, limit: Operand, delta: Operand | None = None) -> Any:
    step = s.const(np.ones((), start.dtype), "delta") if delta is None else delta
    return as_onnx(s, "Range", start, limit, step)


@onnx_op("com.microsoft:Pad")
def pad(s: Site, x: Operand, pads: Operand, value: Operand | None = None, *, mode: str = "constant") -> Any:
    return as_onnx(s, "Pad", x, pads, value, mode=mode)


@onnx_op("com.microsoft:ExpandDims")
def expand_dims(s: Site, x: Operand, axis: Operand) -> Any:
    return as_onnx(s, "Unsqueeze", x, reshaped(s, axis, (1,), last=False))


@onnx_op("com.microsoft:GridSample")
def sampled(
    s: Site, x: Operand, grid: Operand, *, align_corners: int = 0, mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Operand:  # fmt: skip
    return grid_sample(s, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@onnx_op("com.microsoft:RotaryEmbedding")
def rotary_embedding(
    s: Site, x: Operand, places: Operand, cos: Operand, sin: Operand, *, interleaved: int = 0,
    is_packed_batching: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0, scale: float = 1.0,
) -> Operand:  # fmt: skip
    """``x`` [N, L, heads * E] or [N, heads, L, E] turned by the angles of each place: [N, L], or the first.

    ``cos`` and ``sin`` [places, R / 2] are of the angles by which the first R features of a head are turned.
    """
    if is_packed_batching or scale != 1 or places.rank not in (1, 2):
        raise Unsupported("with is_packed_batching, a scale, or places of another rank")
    half = fixed(cos.shape[-1], "the width of its table")
    apart = x.rank == 4
    n, rows = (x.shape[0], x.shape[2]) if apart else x.shape[:2]
    width = fixed(x.shape[-1], "its width")
    if not apart:
        if rotary_embedding_dim and not num_heads:
            raise SpecError("rotary_embedding_dim without num_heads")
        each = width // num_heads if num_heads else 2 * half
        x, width = reshaped(s, x, (n, rows, width // each, each), last=False), each
    if places.rank == 1:  # of the first row
        length = fixed(rows, "the length of its sequences")
        steps = s.const(np.arange(length, dtype=places.dtype).reshape(1, -1), "steps")
        places = s.inner("add", reshaped(s, places, (1, 1), last=False), steps)
    count, across = places.shape[0], places.shape[1]
    shape = (count, 1, across, half) if apart else (count, across, 1, half)
    c, d = (reshaped(s, s.inner("gather", t, places, axis=0), shape, last=False) for t in (cos, sin))

    def part(value: Operand, start: int, stop: int, step: int = 1) -> Operand:
        made: Operand = s.inner("slice", value, axis=3, start=start, stop=stop, step=step)
        return made

    if interleaved:
        a, b = part(x, 0, 2 * half, 2), part(x, 1, 2 * half, 2)
    else:
        a, b = part(x, 0, half), part(x, half, 2 * half)
    first = s.inner("sub", s.inner("mul", a, c), s.inner("mul", b, d))
    second = s.inner("add", s.inner("mul", a, d), s.inner("mul", b, c))
    if interleaved:
        heads = first.shape[:3]
        pair = [reshaped(s, y, (*heads, half, 1), last=False) for y in (first, second)]
        made = reshaped(s, s.inner("concat", *pair, axis=4), (*heads, 2 * half), last=False)
    else:
        made = s.inner("concat", first, second, axis=3)
    if width > 2 * half:
        made = s.inner("concat", made, part(x, 2 * half, width), axis=3)
    return made if apart else reshaped(s, made, (n, rows, fixed(x.shape[2], "its heads") * width))
