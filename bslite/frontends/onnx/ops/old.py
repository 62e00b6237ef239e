"""Builders of operators as they were before opset 7, in terms of the newer ones."""

import math
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.activations import activation
from bslite.frontends.onnx.ops.arith import TOLD, cast, elementwise, power
from bslite.frontends.onnx.ops.layers import batch_norm
from bslite.frontends.onnx.ops.moves import axis_of, concat, reshape, reshaped
from bslite.frontends.onnx.ops.repeat import pad, tile
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand


def aligned(s: Site, x: Operand, y: Operand, axis: int | None) -> Operand:
    """``y`` with its first axis at ``axis`` of ``x``: sizes of 1 behind it, so that it is broadcast."""
    if axis is None or not y.rank:
        return y
    behind = x.rank - axis_of(axis, x.rank) - y.rank
    if behind < 0:
        raise SpecError(f"{list(y.shape)} does not lie within {list(x.shape)} from axis {axis} on")
    return reshaped(s, y, (*y.shape, *(1,) * behind), last=False) if behind else y


@onnx_op(*TOLD, "Pow")
def of_two(
    s: Site, x: Operand, y: Operand, *, axis: int | None = None, broadcast: int = 0
) -> Operand:  # fmt: skip
    """Without ``broadcast`` the shapes are equal."""
    y = aligned(s, x, y, axis if broadcast else None)
    made: Operand = power(s, x, y) if s.op_type == "Pow" else elementwise(s, x, y)
    return made


@onnx_op("PRelu")
def prelu(s: Site, x: Operand, slope: Operand) -> Operand:
    """One slope, or one per channel."""
    if math.prod(d for d in slope.shape if isinstance(d, int)) == 1:
        slope = reshaped(s, slope, (1,), last=False)
    elif x.rank > 2 and slope.rank == 1:
        slope = aligned(s, x, slope, 1)
    made: Operand = activation(s, x, slope)
    return made


@onnx_op("BatchNormalization")
def batch_norm_of_test(
    s: Site, x: Operand, scale: Operand, bias: Operand, mean: Operand, var: Operand, *, epsilon: float,
    momentum: float, is_test: int, spatial: int = 1,
) -> Operand:  # fmt: skip
    if not is_test:
        raise Unsupported("in training mode")
    made: Operand = batch_norm(
        s, x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial
    )
    return made


@onnx_op("Dropout")
def dropout_of_test(s: Site, x: Operand, *, is_test: int, ratio: float) -> Any:
    if not is_test and ratio:
        raise Unsupported("in training mode")
    return x, None


@onnx_op("Cast")
def cast_to_name(s: Site, x: Operand, *, to: str) -> Operand:
    codes = load_onnx().TensorProto.DataType
    if to.upper() not in codes.keys():  # noqa: SIM118  (no mapping, but protobuf's wrapper of an enumeration)
        raise SpecError(f"there is no type {to!r}")
    made: Operand = cast(s, x, to=codes.Value(to.upper()))
    return made


@onnx_op("Concat")
def concat_along(s: Site, *xs: Operand, axis: int | None) -> Operand:
    made: Operand = concat(s, *xs, axis=1 if axis is None else axis)
    return made


@onnx_op("Reshape")
def reshape_to(s: Site, x: Operand, *, shape: Any) -> Operand:
    made: Operand = reshape(s, x, s.const(np.array(shape, np.int64), "shape"))
    return made


@onnx_op("Pad")
def pad_by(s: Site, x: Operand, *, mode: str, paddings: Any, value: float) -> Operand:
    made: Operand = pad(s, x, paddings, value, mode=mode)
    return made


@onnx_op("Tile")
def tile_along(s: Site, x: Operand, tiles: Operand, axis: Operand) -> Operand:
    repeats = np.ones(x.rank, np.int64)
    repeats[axis_of(int(s.number(axis, "its axis")), x.rank)] = int(s.number(tiles, "its tiles"))
    made: Operand = tile(s, x, s.const(repeats, "repeats"))
    return made
