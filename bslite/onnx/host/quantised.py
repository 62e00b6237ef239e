"""To and from integers of types that the engine has inside of a model only, such as those of 16 bits."""

import numpy as np

from bslite.errors import InputError, UnsupportedError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.host.node import host_op
from bslite.spec import Array

UINT8 = 2  # ONNX's number of the type
BOTH = ("{}", "com.microsoft:{}")


def _along(p: Array, x: Array, axis: int, block: int) -> Array:
    """A scale or zero point so that it broadcasts to ``x``."""
    if p.size == 1:
        return p.reshape(())
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"axis {axis} is out of range for rank {x.ndim}")
    axis %= x.ndim
    if block:
        return np.repeat(p, block, axis).take(range(x.shape[axis]), axis)
    return p.reshape(-1, *[1] * (x.ndim - axis - 1))


@host_op(*(name.format("QuantizeLinear") for name in BOTH))
def quantize_linear(
    x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0, saturate: int = 1, precision: int = 0,
) -> Array:  # fmt: skip
    """``x / scale`` rounded, halves to even, plus the zero point, as the nearest number of its type."""
    onnx = load_onnx()
    to = zero.dtype if zero is not None else onnx.helper.tensor_dtype_to_np_dtype(output_dtype or UINT8)
    small = to.kind not in "iu"  # of fewer than 8 bits, or floats
    if precision or (small and not to.name.startswith(("int", "uint", "float8_e4", "float8_e5", "float4"))):
        raise UnsupportedError(f"with precision={precision}" if precision else f"to {to}")
    scaled = x / _along(scale, x, axis, block_size)
    if "float" in to.name:
        if not saturate:
            raise UnsupportedError(f"to {to} with saturate=0")
        made: Array = onnx.numpy_helper.saturate_cast(scaled, to)
        return made
    whole = np.rint(scaled).astype(np.float64)
    if zero is not None:
        whole = whole + _along(zero.astype(np.float64), x, axis, block_size)
    if small:
        made = onnx.numpy_helper.saturate_cast(whole, to)
        return made
    info = np.iinfo(to)
    return np.clip(whole, info.min, info.max).astype(to)


@host_op(*(name.format("DequantizeLinear") for name in BOTH))
def dequantize_linear(
    x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Array:  # fmt: skip
    """``(x - zero) * scale``, in the scale's type."""
    whole = x.astype(np.float64)  # holds every integer that comes, and every small float
    if zero is not None:
        whole = whole - _along(zero.astype(np.float64), x, axis, block_size)
    made = whole.astype(scale.dtype) * _along(scale, x, axis, block_size)
    return made.astype(dtype_name(output_dtype)) if output_dtype else made
