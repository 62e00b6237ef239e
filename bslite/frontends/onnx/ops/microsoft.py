"""Builders of onnxruntime's own quantised operators (the operator set com.microsoft).

Where ONNX has no integer form of an operation, these are defined by what they stand for: to float32, the
operation, and back. onnxruntime computes some of them by tables or in fixed point, which may differ by one
unit. https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.fused import embed_layer_norm
from bslite.frontends.onnx.ops.heads import HIDDEN, attended, parts_of
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.ops.quantized import (
    along,
    dequantized,
    dynamic_quantize_linear,
    multiplied,
    of_matrix,
    pairs_of,
    quantized,
)
from bslite.frontends.onnx.ops.recurrent import ordered, recurrent
from bslite.frontends.onnx.ops.windows import avg_pool, max_pool
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Const, Operand, fixed
from bslite.spec import Array

Ints = Sequence[int]


@onnx_op("com.microsoft:NhwcMaxPool")
def max_pool_of_channels_last(
    s: Site, x: Operand, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Ints | None = None, pads: Ints | None = None, strides: Ints | None = None,
) -> Operand:  # fmt: skip
    """[N, H, W, C]: the largest of each window."""
    if x.rank < 3:
        raise SpecError(f"its input {list(x.shape)} has no image")
    last = x.rank - 1
    planes = permuted(s, x, (0, last, *range(1, last)), last=False)
    pool = Site(s.store, f"{s.name}.pool", "MaxPool", 12, [True])
    made = max_pool(
        pool, planes, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    return permuted(s, made, (0, *range(2, last + 1), 1))


def number(s: Site, x: Operand | None) -> Operand | None:
    """A scale or zero point of one number, as a number."""
    return None if x is None else reshaped(s, x, (), last=False)


def real(s: Site, x: Operand, scale: Operand, zero: Operand | None) -> Operand:
    """The numbers that the integers of a tensor stand for."""
    return dequantized(s, x, reshaped(s, scale, (), last=False), number(s, zero))


def back(s: Site, y: Operand, scale: Operand, zero: Operand | None, like: Operand) -> Operand:
    """``y`` as integers of the zero point's dtype, or else that of ``like``."""
    to = like.dtype if zero is None else zero.dtype
    return quantized(s, y, reshaped(s, scale, (), last=False), number(s, zero), to)


@onnx_op("com.microsoft:QLinearAdd", "com.microsoft:QLinearMul")
def qlinear_binary(
    s: Site, a: Operand, a_scale: Operand, a_zero: Operand | None, b: Operand, b_scale: Operand,
    b_zero: Operand | None, c_scale: Operand, c_zero: Operand | None = None,
) -> Operand:  # fmt: skip
    op = {"QLinearAdd": "add", "QLinearMul": "mul"}[s.op_type]
    return back(s, s.inner(op, real(s, a, a_scale, a_zero), real(s, b, b_scale, b_zero)), c_scale, c_zero, a)


@onnx_op("com.microsoft:QLinearSigmoid")
def qlinear_sigmoid(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand | None, y_scale: Operand,
    y_zero: Operand | None = None,
) -> Operand:  # fmt: skip
    return back(s, s.inner("sigmoid", real(s, x, x_scale, x_zero)), y_scale, y_zero, x)


@onnx_op("com.microsoft:QLinearLeakyRelu")
def qlinear_leaky_relu(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand | None, y_scale: Operand,
    y_zero: Operand | None = None, *, alpha: float = 0.01,
) -> Operand:  # fmt: skip
    y = s.inner("leaky_relu", real(s, x, x_scale, x_zero), negative_slope=alpha)
    return back(s, y, y_scale, y_zero, x)


@onnx_op("com.microsoft:QLinearSoftmax")
def qlinear_softmax(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand | None, y_scale: Operand,
    y_zero: Operand | None = None, *, opset: int, axis: int = -1,
) -> Operand:  # fmt: skip
    if opset < 13 and axis_of(axis, x.rank) != x.rank - 1:
        raise Unsupported(f"as of opset {opset} along axis {axis}")
    y = s.inner("softmax", real(s, x, x_scale, x_zero), axis=axis_of(axis, x.rank))
    return back(s, y, y_scale, y_zero, x)


@onnx_op("com.microsoft:QLinearGlobalAveragePool")
def qlinear_global_pool(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand | None, y_scale: Operand,
    y_zero: Operand | None = None, *, channels_last: int = 0,
) -> Operand:  # fmt: skip
    axes = tuple(range(1, x.rank - 1) if channels_last else range(2, x.rank))
    y = s.inner("mean", real(s, x, x_scale, x_zero), axes=axes, keepdim=True)
    return back(s, y, y_scale, y_zero, x)


@onnx_op("com.microsoft:QLinearAveragePool")
def qlinear_avg_pool(
    s: Site, x: Operand, x_scale: Operand, x_zero: Operand | None, y_scale: Operand,
    y_zero: Operand | None = None, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0, pads: Ints | None = None, strides: Ints | None = None,
) -> Operand:  # fmt: skip
    image = permuted(s, x, (0, x.rank - 1, *range(1, x.rank - 1)), last=False) if channels_last else x
    y = avg_pool(
        s, real(s, image, x_scale, x_zero), auto_pad=auto_pad, ceil_mode=ceil_mode, pads=pads,
        strides=strides, count_include_pad=count_include_pad, kernel_shape=kernel_shape,
    )  # fmt: skip
    made = back(s, y, y_scale, y_zero, image)
    return permuted(s, made, (0, *range(2, x.rank), 1)) if channels_last else made


@onnx_op("com.microsoft:QLinearConcat")
def qlinear_concat(s: Site, y_scale: Operand, y_zero: Operand, *xs: Operand, axis: int) -> Operand:
    """After the result's scale and zero point, each input with its own."""
    if not xs or len(xs) % 3:
        raise SpecError(f"it has {len(xs)} inputs after the first two, expected three for each tensor")
    tensors = [real(s, *xs[i : i + 3]) for i in range(0, len(xs), 3)]
    return back(s, s.inner("concat", *tensors, axis=axis_of(axis, xs[0].rank)), y_scale, y_zero, xs[0])


@onnx_op("com.microsoft:QLinearWhere")
def qlinear_where(
    s: Site, condition: Operand, x: Operand, x_scale: Operand, x_zero: Operand, y: Operand, y_scale: Operand,
    y_zero: Operand, z_scale: Operand, z_zero: Operand,
) -> Operand:  # fmt: skip
    z = s.inner("where", condition, real(s, x, x_scale, x_zero), real(s, y, y_scale, y_zero))
    return back(s, z, z_scale, z_zero, x)


@onnx_op("com.microsoft:QGemm")
def qgemm(
    s: Site, a: Operand, a_scale: Operand, a_zero: Operand, b: Operand, b_scale: Operand, b_zero: Operand,
    c: Operand | None = None, y_scale: Operand | None = None, y_zero: Operand | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Operand:  # fmt: skip
    """``alpha * a * b + c``; ``c`` is integers of the product's scale. float32 without ``y_scale``."""
    a = permuted(s, a, (1, 0), last=False) if transA else a
    b = permuted(s, b, (1, 0), last=False) if transB else b
    acc = multiplied(s, a, b, a_zero, b_zero)
    if c is not None:
        acc = s.inner("add", acc, c)
    scale = s.inner("mul", along(s, a_scale, a, 0), along(s, b_scale, b, 1))
    if alpha != 1:
        scale = s.inner("mul", scale, s.const(np.float32(alpha), "alpha"))
    y = s.inner("mul", s.store.floats(acc, s.name), scale)
    return y if y_scale is None else back(s, y, y_scale, y_zero, a)


@onnx_op("com.microsoft:MatMulIntegerToFloat")
def matmul_integer_to_float(
    s: Site, a: Operand, b: Operand, a_scale: Operand, b_scale: Operand, a_zero: Operand | None = None,
    b_zero: Operand | None = None, bias: Operand | None = None,
) -> Operand:  # fmt: skip
    acc = multiplied(s, a, b, a_zero, b_zero)
    scales = [of_matrix(s, a_scale, a, -2), of_matrix(s, b_scale, b, -1)]
    y = s.inner("mul", s.store.floats(acc, s.name), s.inner("mul", *[k for k in scales if k is not None]))
    return y if bias is None else s.inner("add", y, bias)


@onnx_op("com.microsoft:QAttention")
def quantized_attention(
    s: Site, x: Operand, weight: Operand, bias: Operand, x_scale: Operand, w_scale: Operand,
    mask: Operand | None = None, x_zero: Operand | None = None, w_zero: Operand | None = None,
    past: Operand | None = None, *, num_heads: int, unidirectional: int = 0, scale: float = 0.0,
    mask_filter_value: float = HIDDEN, do_rotary: int = 0, past_present_share_buffer: int = 0,
) -> Any:  # fmt: skip
    """Attention of a product of integers: queries, keys and values are a third of its columns each."""
    if past is not None or do_rotary:
        raise Unsupported("with a past in one tensor, or with rotary positions")
    s.used_only(0)
    made = matmul_integer_to_float(s, x, weight, x_scale, w_scale, x_zero, w_zero, bias)
    width = fixed(weight.shape[-1], "the width of its weight")
    q, k, v = parts_of(s, made, [width // 3] * 3, num_heads)
    return attended(s, q, k, v, mask, None, bool(unidirectional), scale, mask_filter_value)


@onnx_op("com.microsoft:QEmbedLayerNormalization")
def quantized_embed_layer_norm(
    s: Site, ids: Operand, segments: Operand | None, words: Operand, positions: Operand,
    segment_table: Operand | None, gamma: Operand, beta: Operand, mask: Operand | None, *quantities: Operand,
    epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """Tables and the norm's parameters are integers; ``quantities``: the scales of all, then the zeros."""
    tables = (words, positions, segment_table, gamma, beta)
    if len(quantities) != 2 * len(tables):
        raise SpecError(f"it has {len(quantities)} scales and zero points, expected {2 * len(tables)}")
    pairs = zip(tables, quantities[:5], quantities[5:], strict=True)
    given = [None if t is None else real(s, t, scale, zero) for t, scale, zero in pairs]
    return embed_layer_norm(s, ids, segments, *given, mask, epsilon=epsilon)


@onnx_op("com.microsoft:DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    s: Site, a: Operand, b: Operand, b_scale: Operand, b_zero: Operand | None = None,
    bias: Operand | None = None,
) -> Operand:  # fmt: skip
    small, scale, zero = dynamic_quantize_linear(s, a)
    return matmul_integer_to_float(s, small, b, scale, b_scale, zero, b_zero, bias)


class Integers(NamedTuple):
    """Recurrent weights of integers, with a scale and a zero point for each direction or each gate's unit."""

    numbers: Const  # [directions, inputs, gates * H]
    scale: Array  # [directions, gates * H]
    zero: Array
    role: str

    @classmethod
    def of(cls, s: Site, w: Operand, scale: Operand, zero: Operand, role: str) -> "Integers":
        array, per, point = (s.array(p, f"its {role}") for p in (w, scale, zero))
        if array.ndim != 3:
            raise SpecError(f"{role} is {list(array.shape)}, expected [directions, inputs, gates]")
        assert isinstance(w, Const)
        every = array.shape[0], array.shape[2]

        def wide(p: Array) -> Array:
            return np.broadcast_to(p.reshape(p.shape[0], -1) if p.ndim else p, every)

        return cls(w, wide(per), wide(point), role)

    def rows(self, s: Site, d: int) -> Operand:
        """Whole numbers ``[gates * H, inputs]`` of a direction, in bslite's order of the gates."""

        def make(a: Array) -> Array:
            made = (a[d].astype(np.int32) - self.zero[d].astype(np.int32)).T
            made = np.ascontiguousarray(ordered("lstm_rounded", made, len(made) // 4))
            return made.astype(np.int8) if np.abs(made + 0.5).max(initial=0) < 128 else made

        key = ("rows of integers", d, self.zero[d].tobytes())
        return s.derived(self.numbers, f"{d}.{self.role}", key, make)

    def scales(self, s: Site, d: int) -> Operand:
        """What a row's numbers stand for."""
        scale = np.float32(self.scale[d])
        return s.const(ordered("lstm_rounded", scale, len(scale) // 4), f"{d}.{self.role}.scale")

    def as_lstm(self, s: Site) -> Operand:
        """The numbers as LSTM has its weights: ``[directions, gates * H, inputs]``."""
        return s.const(self.numbers.data.swapaxes(1, 2), self.role)


@onnx_op("com.microsoft:DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    s: Site, x: Operand, w: Operand, r: Operand, b: Operand | None, lengths: Operand | None,
    h: Operand | None, c: Operand | None, p: Operand | None, w_scale: Operand, w_zero: Operand,
    r_scale: Operand, r_zero: Operand, *, direction: str | None = None, hidden_size: int | None = None,
    clip: float | None = None, activations: Any = None, activation_alpha: Any = None,
    activation_beta: Any = None, input_forget: int = 0,
) -> Any:  # fmt: skip
    """An LSTM of products of integers; inputs and states are rounded to 8 bits.

    The scale of the inputs is that of all steps and sequences, the scale of the states that of all sequences
    at a step; onnxruntime on several threads may part a batch.
    """
    lstm = Site(s.store, s.name, "LSTM_rounded", s.opset, s.used)
    small, step, zero = dynamic_quantize_linear(s, x)
    seen, kept = Integers.of(s, w, w_scale, w_zero, "W"), Integers.of(s, r, r_scale, r_zero, "R")

    def side(s: Site, _: Operand, d: int, bias: Array | None) -> tuple[Operand, dict[str, Operand]]:
        sums = s.inner("int_linear", pairs_of(s, small, zero, -1), params={"weight": seen.rows(s, d)})
        made = s.inner("mul", s.store.floats(sums, s.name), s.inner("mul", seen.scales(s, d), step))
        if bias is not None:
            both = bias.reshape(2, -1).sum(0)
            made = s.inner("add", made, s.const(ordered("lstm_rounded", both, len(both) // 4), f"{d}.bias"))
        return made, {"weight_hh": kept.rows(s, d), "scale_hh": kept.scales(s, d)}

    return recurrent(
        lstm, x, seen.as_lstm(s), kept.as_lstm(s), b, lengths, h, c, p,
        direction=direction, hidden_size=hidden_size, clip=clip or None, activations=activations,
        activation_alpha=activation_alpha, activation_beta=activation_beta, input_forget=input_forget,
        side=side,
    )  # fmt: skip
