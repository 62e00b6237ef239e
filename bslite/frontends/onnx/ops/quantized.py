"""Builders of quantised models: to and from 8-bit integers, and sums of products of them.

A product with weights that are known is a layer of integers (`bslite.ops.integer`). A number of 8 bits is
exact in float32, and so is a sum of products of such numbers up to 2**24. So depthwise convolutions, and
products of two computed matrices in parts that are short enough, are those of float32.

Rounding is to the nearest, halves to even, before the zero point is added: ONNX's QuantizeLinear, and what
onnxruntime does everywhere. (ONNX's reference of QLinearConv and QLinearMatMul adds the zero point first,
which is another number where a half meets an odd zero point.)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite import ops
from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.blocked import Blocked
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.integers import by_pairs, paired, whole
from bslite.frontends.onnx.ops.layers import matmul
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.ops.windows import kernel_of, spatial, windows
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.store import Quantized, Scaled
from bslite.frontends.onnx.tensors import HALF_WORDS, dtype_name
from bslite.frontends.onnx.values import Const, Operand, Value, fixed

EXACT = 2**24  # float32 holds all integers up to it
Ints = Sequence[int]


def along(s: Site, p: Operand, x: Operand, axis: int, block: int = 0) -> Operand:
    """A scale or zero point so that it broadcasts to ``x``: one, one per index of ``axis``, or per block."""
    if p.rank == 0 or p.shape == (1,):
        return reshaped(s, p, (), last=False)
    axis = axis_of(axis, x.rank)
    if block:
        size = fixed(x.shape[axis], "the axis of its blocks")
        return s.compute(lambda a: np.repeat(a, block, axis).take(range(size), axis), p)
    if p.rank != 1 or p.shape != (x.shape[axis],):
        raise SpecError(f"a scale or zero point {list(p.shape)} does not fit axis {axis} of {list(x.shape)}")
    return reshaped(s, p, (*p.shape, *(1,) * (x.rank - axis - 1)), last=False)


def is_zero(p: Operand | None) -> bool:
    """Whether a zero point is left out, or known to be 0."""
    return p is None or (isinstance(p, Const) and not np.any(p.data))


def one(p: Operand) -> int | float | None:
    """A single number that is known, else None."""
    return p.data.reshape(-1)[0].item() if isinstance(p, Const) and p.data.size == 1 else None


def centred(s: Site, x: Operand, zero: Operand | None) -> Operand:
    """``x - zero`` as float32, exactly. ``zero`` broadcasts."""
    if isinstance(x, Value) and x.name in s.store.centred:
        point, known = s.store.centred[x.name]
        if (0 if zero is None else one(zero)) == point:
            return known
    whole = s.store.floats(x, s.name)
    if zero is None or is_zero(zero):
        return whole
    made: Operand = s.inner("sub", whole, s.store.floats(zero, s.name))
    return made


def quantized(s: Site, x: Operand, scale: Operand | None, zero: Operand | None, to: str) -> Operand:
    """``x / scale`` rounded, plus ``zero``, as the nearest number of the dtype ``to``."""
    if to not in ops.BYTES and to not in HALF_WORDS:
        raise Unsupported(f"to {to}")
    low, high = HALF_WORDS.get(to) or ops.RANGES[to]
    step, point = 1.0 if scale is None else one(scale), 0 if zero is None else one(zero)
    if step is not None and step > 0 and isinstance(point, int) and to in ops.BYTES:
        known = s.store.scaled.get(x.name) if isinstance(x, Value) else None
        if known is not None and known[1:] == (step, point, to):
            return s.store.offset(known.centred, point, to, s.name)  # quantised as it was
        around = s.inner("quantize", x, scale=float(step), low=float(low - point))
        return s.store.offset(around, point, to, s.name)
    x = x if scale is None else s.inner("div", x, scale)
    whole = s.inner("round", x)
    if to in HALF_WORDS:
        if isinstance(point, int):
            return s.store.offset(
                s.inner("clamp", whole, low=low - point, high=high - point), point, "int32", s.name
            )
        to = "int32"
    if zero is not None and not is_zero(zero):
        whole = s.inner("add", whole, s.store.floats(zero, s.name))
    return s.store.integers(s.inner("clamp", whole, low=low, high=high), to, s.name)


def dequantized(s: Site, x: Operand, scale: Operand, zero: Operand | None) -> Operand:
    """``(x - zero) * scale``."""
    around, by = centred(s, x, zero), one(scale)
    made: Operand = s.inner("mul", around, scale)
    point = 0 if zero is None else one(zero)
    multiple = by is not None and by > 0 and x.dtype in ops.BYTES
    if multiple and isinstance(point, int) and isinstance(made, Value) and isinstance(around, Value):
        s.store.scaled[made.name] = Scaled(around, float(by or 0), point, x.dtype)
    return made


@onnx_op("QuantizeLinear", "com.microsoft:QuantizeLinear")
def quantize_linear(
    s: Site, x: Operand, scale: Operand, zero: Operand | None = None, *, axis: int = 1, saturate: int = 1,
    block_size: int = 0, output_dtype: int = 0, precision: int = 0,
) -> Operand:  # fmt: skip
    if precision and dtype_name(precision) != "float32":
        raise Unsupported(f"with precision={precision}")
    to = zero.dtype if zero is not None else dtype_name(output_dtype) if output_dtype else "uint8"
    scale = along(s, scale, x, axis, block_size)
    zero = None if zero is None else along(s, zero, x, axis, block_size)
    return quantized(s, s.store.floats(x, s.name), scale, zero, to)


@onnx_op("DequantizeLinear", "com.microsoft:DequantizeLinear")
def dequantize_linear(
    s: Site, x: Operand, scale: Operand, zero: Operand | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Operand:  # fmt: skip
    if scale.dtype != "float32" or (output_dtype and dtype_name(output_dtype) != "float32"):
        raise Unsupported(f"to {dtype_name(output_dtype) if output_dtype else scale.dtype}")
    by, point = scale, s.const(np.int8(0), "nothing") if zero is None else zero
    scale = along(s, scale, x, axis, block_size)
    zero = None if zero is None else along(s, zero, x, axis, block_size)
    if isinstance(x, Value):
        return dequantized(s, x, scale, zero)
    made = s.compute(
        lambda a, k, *z: (a.astype(np.float32) - (np.asarray(z[0], np.float32) if z else np.float32(0))) * k,
        x, scale, *([] if zero is None else [zero]),
    )  # fmt: skip
    if isinstance(made, Const) and isinstance(x, Const) and x.dtype in ops.BYTES and isinstance(scale, Const):
        numbers = x.data.astype(np.int16) - (zero.data.astype(np.int16) if isinstance(zero, Const) else 0)
        s.store.weights[id(made.data)] = (numbers, scale.data, made.data)
        if isinstance(by, Const) and isinstance(point, Const):
            s.store.blocked[id(made.data)] = Blocked(x.data, by.data, point.data, axis, block_size), made.data
    return made


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(s: Site, x: Operand) -> tuple[Operand, ...]:
    """8-bit numbers with the scale and zero point that fit the least and the largest of ``x`` and 0."""
    nothing, axes = s.const(np.float32(0), "nothing"), tuple(range(x.rank))
    if not axes:
        x, axes = reshaped(s, x, (1,), last=False), (0,)
    high = s.inner("maximum", s.inner("amax", x, axes=axes, keepdim=False), nothing)
    low = s.inner("minimum", s.inner("amin", x, axes=axes, keepdim=False), nothing)
    alike = s.inner("equal", high, low)
    span = s.inner("where", alike, s.const(np.float32(1), "one"), s.inner("sub", high, low))
    scale = s.inner("div", span, s.const(np.float32(255), "steps"))
    zero = s.inner("clamp", s.inner("neg", s.inner("div", low, scale)), low=0, high=255)
    point = s.store.integers(s.inner("round", zero), "uint8", f"{s.name}.zero_point")
    made = quantized(s, x, scale, point, "uint8")
    if isinstance(made, Value) and isinstance(x, Value):
        s.store.quantized[made.name] = Quantized(x, scale, point, s.inner("round", zero))
    return made, scale, point


def largest(x: Operand, zero: Operand | None) -> int:
    """A bound on the magnitude of ``x - zero``."""
    low, high = ops.RANGES[x.dtype if x.dtype in ops.BYTES else "int8"]
    if is_zero(zero):
        return max(-low, high)
    if isinstance(zero, Const):
        least, most = int(zero.data.min()), int(zero.data.max())
        return max(abs(low - most), abs(high - least))
    return high - low


def total(s: Site, products: Sequence[Operand]) -> Operand:
    """The sum as int32 of float32 values that hold integers."""
    if len(products) == 1:
        return s.store.integers(products[0], "int32", s.name)
    made: Any = s.inner("cast", products[0], to="int32")
    for product in products[1:]:
        made = s.inner("add", made, s.inner("cast", product, to="int32"))
    if len(products) == 2 and isinstance(made, Value):
        # one addition of float32 rounds once, as the cast of the exact sum does
        s.store.rounded[made.name] = s.inner("add", *products)
    return made


def convolved(
    s: Site, x: Operand, w: Operand, x_zero: Operand | None, w_zero: Operand | None, bias: Operand | None, *,
    auto_pad: str, dilations: Ints | None, group: int, kernel_shape: Ints | None, pads: Ints | None,
    strides: Ints | None, real: bool = False,
) -> Operand:  # fmt: skip
    """The convolution of integers as int32, or with ``real`` as float32. The padding is the zero point."""
    kernel = kernel_of(w, kernel_shape)
    how = windows(x, kernel, strides, pads, dilations, auto_pad)
    weight = s.array(w, "its weight").astype(np.int64)
    if w_zero is not None:
        zeros = s.array(w_zero, "the weight's zero point").astype(np.int64).reshape(-1)
        if zeros.size not in (1, weight.shape[0]):
            raise SpecError(f"{zeros.size} zero points do not fit the weight {list(weight.shape)}")
        weight = weight - zeros.reshape(-1, *(1,) * (weight.ndim - 1))
    filters = weight.shape[0]
    more = None
    if bias is not None:
        more = s.array(bias, "its bias").astype(np.int64).reshape(-1)
        if more.shape != (filters,):
            raise SpecError(f"its bias has {more.size} numbers for {filters} filters")
    op = f"conv{spatial(kernel)}d"
    costs = np.abs(weight).reshape(filters, -1).sum(1) * largest(x, x_zero) + (
        0 if more is None else np.abs(more)
    )
    if not by_pairs(group, weight.shape) and int(costs.max(initial=0)) <= EXACT:
        around = centred(s, x, None if x_zero is None else along(s, x_zero, x, 1))
        both = {"weight": s.const(np.float32(weight), "weight")}
        if more is not None:
            both["bias"] = s.const(np.float32(more), "bias")
        made = s.inner(op, around, params=both, groups=group, **how)
        return made if real else s.store.integers(made, "int32", s.name)
    params = {"weight": whole(s, weight, "whole")}
    if more is not None:
        params["offset"] = s.const(more.astype(np.int32), "offset")
    pairs = pairs_of(s, x, x_zero, 1, group)
    to = "float32" if real else "int32"
    result: Operand = s.inner(f"int_{op}", pairs, params=params, groups=group, to=to, **how)
    return result


def pairs_of(s: Site, x: Operand, zero: Operand | None, axis: int, groups: int = 1) -> Value:
    """``x - zero`` as pairs of numbers; of what was quantised at run time, straight from there."""
    given = s.store.quantized.get(x.name) if isinstance(x, Value) else None
    if given is not None and zero is given.point:
        key = (f"{given.x.name}, quantised", axis, groups)
        if key not in s.store.paired:
            values = [given.x, given.scale, given.zero]
            s.store.paired[key] = s.store.emit(
                "pairs", f"{given.x.name}.pairs", values, axis=axis, groups=groups
            )
        return s.store.paired[key]
    along_axis = zero if zero is None else along(s, zero, x, axis) if axis == 1 else of_matrix(s, zero, x, -2)
    return paired(s, centred(s, x, along_axis), axis, groups)


@onnx_op("ConvInteger")
def conv_integer(
    s: Site, x: Operand, w: Operand, x_zero: Operand | None = None, w_zero: Operand | None = None, *,
    auto_pad: str, dilations: Ints | None, group: int, kernel_shape: Ints | None, pads: Ints | None,
    strides: Ints | None,
) -> Operand:  # fmt: skip
    return convolved(
        s, x, w, x_zero, w_zero, None, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip


def multiplier(s: Site, *scales: Operand) -> Operand:
    """The product of all scales but the last, over the last."""
    made: Any = scales[0]
    for scale in scales[1:-1]:
        made = s.inner("mul", made, scale)
    return s.inner("div", made, scales[-1])


@onnx_op("QLinearConv", "com.microsoft:QLinearConv")
def qlinear_conv(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand, w: Operand, w_scale: Operand, w_zero: Operand,
    y_scale: Operand, y_zero: Operand, bias: Operand | None = None, *, auto_pad: str = "NOTSET",
    dilations: Ints | None = None, group: int = 1, kernel_shape: Ints | None = None, pads: Ints | None = None,
    strides: Ints | None = None, channels_last: int = 0,
) -> Operand:  # fmt: skip
    if channels_last:
        x = permuted(s, x, (0, x.rank - 1, *range(1, x.rank - 1)), last=False)
    acc = convolved(
        s, x, w, x_zero, w_zero, bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides, real=True,
    )  # fmt: skip
    scales = [along(s, scale, acc, 1) for scale in (x_scale, w_scale, y_scale)]
    real = s.inner("mul", acc, multiplier(s, *scales))
    made = quantized(s, real, None, along(s, y_zero, acc, 1), y_zero.dtype)
    return permuted(s, made, (0, *range(2, x.rank), 1)) if channels_last else made


def of_matrix(s: Site, p: Operand | None, x: Operand, axis: int) -> Operand | None:
    """A scale or zero point of a matrix: a number, one for each row (axis -2) or column (-1), or whole."""
    if p is None or p.rank > 1 or x.rank == 1:
        return p if p is None or p.shape not in ((1,), (1, 1)) else reshaped(s, p, (), last=False)
    return along(s, p, x, axis)


def multiplied(
    s: Site, a: Operand, b: Operand, a_zero: Operand | None, b_zero: Operand | None, real: bool = False
) -> Operand:
    """The product of matrices of integers as int32, or with ``real`` as float32."""
    length = fixed(b.shape[-2 if b.rank > 1 else 0], "the length of its sums")
    if (
        isinstance(b, Const)
        and b.rank == 2
        and isinstance(a, Value)
        and a.rank > 1
        and not isinstance(b_zero, Value)
    ):
        zero = 0 if b_zero is None else s.array(b_zero, "its zero point").astype(np.int64).reshape(-1)
        weight = whole(s, (b.data.astype(np.int64) - zero).T, "whole")
        if a.shape[-1] != length:
            raise SpecError(f"{list(a.shape)} and {list(b.shape)} do not multiply")
        pairs = pairs_of(s, a, a_zero, -1)
        linear: Operand = s.inner(
            "int_linear", pairs, params={"weight": weight}, to="float32" if real else "int32"
        )
        return linear
    most = largest(a, a_zero) * largest(b, b_zero)
    if most > EXACT:
        raise Unsupported(f"a product of more than {EXACT} in one term")
    a, b = centred(s, a, of_matrix(s, a_zero, a, -2)), centred(s, b, of_matrix(s, b_zero, b, -1))
    products, part = [], EXACT // most
    for start in range(0, length, part):
        stop = min(length, start + part)
        x, y = (
            (a, b) if stop - start == length else (_cut(s, a, -1, start, stop), _cut(s, b, -2, start, stop))
        )
        products.append(matmul(s, x, y))
    made = total(s, products)
    return s.store.floats(made, s.name) if real else made


def _cut(s: Site, x: Operand, axis: int, start: int, stop: int) -> Operand:
    """``x[start:stop]`` along an axis from the end; that of a vector is its own."""
    axis = max(x.rank + axis, 0)
    if isinstance(x, Value):
        return s.inner("slice", x, axis=axis, start=start, stop=stop)
    return s.compute(lambda v: v.take(range(start, stop), axis), x)


@onnx_op("MatMulInteger")
def matmul_integer(
    s: Site, a: Operand, b: Operand, a_zero: Operand | None = None, b_zero: Operand | None = None
) -> Operand:
    return multiplied(s, a, b, a_zero, b_zero)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    s: Site, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand, b_zero: Operand,
    y_scale: Operand, y_zero: Operand,
) -> Operand:  # fmt: skip
    acc = multiplied(s, a, b, a_zero, b_zero, real=True)
    scales = [of_matrix(s, a_scale, a, -2), of_matrix(s, b_scale, b, -1), of_matrix(s, y_scale, acc, -2)]
    real = s.inner("mul", acc, multiplier(s, *[k for k in scales if k is not None]))
    return quantized(s, real, None, of_matrix(s, y_zero, acc, -2), y_zero.dtype)
