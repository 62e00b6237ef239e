"""Builders of onnxruntime's own float32 operators (of the set com.microsoft), written by its optimizers.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.integers import LEAST
from bslite.frontends.onnx.ops.layers import affine, gemm, matmul
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.ops.slices import gather
from bslite.frontends.onnx.ops.windows import conv
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.tensors import halves, unpacked
from bslite.frontends.onnx.values import Operand, fixed
from bslite.spec import Array

Ints = Sequence[int]
#: onnxruntime's name of an activation -> the op, and its attributes in the order of ``activation_params``.
ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Relu": ("relu", ()), "Sigmoid": ("sigmoid", ()), "Tanh": ("tanh", ()), "Softsign": ("softsign", ()),
    "LeakyRelu": ("leaky_relu", ("negative_slope",)), "Clip": ("clamp", ("low", "high")),
    "HardSigmoid": ("hardsigmoid", ("alpha", "beta")), "Elu": ("elu", ("alpha",)),
}  # fmt: skip


def activated(s: Site, x: Operand, name: str, numbers: Sequence[float]) -> Operand:
    """``x`` through the activation of that name; the identity for none."""
    if not name:
        return x
    if name not in ACTIVATIONS:
        raise Unsupported(f"with activation={name!r}")
    op, attrs = ACTIVATIONS[name]
    if len(numbers) > len(attrs):
        raise SpecError(f"{name} takes {len(attrs)} numbers, activation_params are {list(numbers)}")
    made: Operand = s.inner(op, x, **dict(zip(attrs, numbers, strict=False)))
    return made


@onnx_op("com.microsoft:FusedConv")
def fused_conv(
    s: Site, x: Operand, w: Operand, bias: Operand | None = None, z: Operand | None = None, *,
    activation: str = "", activation_params: Sequence[float] = (), auto_pad: str = "NOTSET",
    dilations: Ints | None = None, group: int = 1, kernel_shape: Ints | None = None, pads: Ints | None = None,
    strides: Ints | None = None,
) -> Operand:  # fmt: skip
    """``activation(conv(x) + z)``."""
    y = conv(
        s, x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape,
        pads=pads, strides=strides,
    )  # fmt: skip
    return activated(s, y if z is None else s.inner("add", y, z), activation, activation_params)


@onnx_op("com.microsoft:FusedGemm")
def fused_gemm(
    s: Site, a: Operand, b: Operand, c: Operand | None = None, *, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None, alpha: float = 1.0,
    beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Operand:  # fmt: skip
    y = gemm(s, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(s, y, activation, [n for n in (activation_alpha, activation_beta) if n is not None])


@onnx_op("com.microsoft:FusedMatMul", "com.microsoft:TransposeMatMul")
def fused_matmul(
    s: Site, a: Operand, b: Operand, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Operand:  # fmt: skip
    a, b = batch_first(s, a) if transBatchA else a, batch_first(s, b) if transBatchB else b
    y = matmul(s, turned(s, a) if transA else a, turned(s, b) if transB else b)
    return y if alpha == 1 else s.inner("mul", y, s.const(np.float32(alpha), "alpha"))


def batch_first(s: Site, x: Operand) -> Operand:
    """``[M, batch..., K]`` as ``[batch..., M, K]``."""
    order = [*range(1, x.rank - 1), 0, x.rank - 1]
    return x if x.rank < 3 else permuted(s, x, order, last=False)


def turned(s: Site, x: Operand) -> Operand:
    """``x`` with its last two axes swapped."""
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return x if x.rank < 2 else permuted(s, x, order, last=False)


@onnx_op("com.microsoft:Gelu")
def gelu(s: Site, x: Operand) -> Operand:
    return s.inner("gelu", x)


@onnx_op("com.microsoft:BiasGelu")
def bias_gelu(s: Site, x: Operand, bias: Operand) -> Operand:
    return s.inner("gelu", s.inner("add", x, bias))


@onnx_op("com.microsoft:FastGelu")
def fast_gelu(s: Site, x: Operand, bias: Operand | None = None) -> Operand:
    x = x if bias is None else s.inner("add", x, bias)
    return s.inner("gelu", x, approximate="tanh")


@onnx_op("com.microsoft:QuickGelu")
def quick_gelu(s: Site, x: Operand, *, alpha: float = 1.702) -> Operand:
    return s.inner("silu", x, beta=alpha)


def normalized(s: Site, op: str, x: Operand, gamma: Operand, beta: Operand | None, epsilon: float) -> Operand:
    """A norm over the last axis."""
    size = fixed(x.shape[-1], "what it normalises over")
    return affine(s, op, x, gamma, beta, normalized_shape=(size,), eps=epsilon)


@onnx_op("com.microsoft:SimplifiedLayerNormalization")
def rms_norm(
    s: Site, x: Operand, scale: Operand, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Operand:
    if axis not in (-1, x.rank - 1):
        raise Unsupported(f"along axis {axis}")
    s.used_only(0)
    return normalized(s, "rms_norm", x, scale, None, epsilon)


@onnx_op("com.microsoft:SkipLayerNormalization")
def skip_layer_norm(
    s: Site, x: Operand, skip: Operand, gamma: Operand, beta: Operand | None = None,
    bias: Operand | None = None, *, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """The norm of ``x + skip + bias``, and as its output 3 that sum."""
    return skipped(s, "layer_norm", x, skip, gamma, beta, bias, epsilon)


@onnx_op("com.microsoft:SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    s: Site, x: Operand, skip: Operand, gamma: Operand, bias: Operand | None = None, *, epsilon: float = 1e-12
) -> Any:
    return skipped(s, "rms_norm", x, skip, gamma, None, bias, epsilon)


def skipped(
    s: Site, op: str, x: Operand, skip: Operand, gamma: Operand, beta: Operand | None, bias: Operand | None,
    epsilon: float,
) -> Any:  # fmt: skip
    """The norm of a sum, and the sum where it is read."""
    s.used_only(0, 3)
    added: Any = s.inner("add", x, skip)
    added = added if bias is None else s.inner("add", added, bias)
    return normalized(s, op, added, gamma, beta, epsilon), None, None, added


@onnx_op("com.microsoft:EmbedLayerNormalization")
def embed_layer_norm(
    s: Site, ids: Operand, segments: Operand | None, words: Operand, positions: Operand,
    segment_table: Operand | None, gamma: Operand, beta: Operand, mask: Operand | None = None,
    position_ids: Operand | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> Any:  # fmt: skip
    """The norm of the sum of the embeddings of words, positions and, if there are any, segments; how many
    words of each sequence ``mask`` leaves; the sum.
    """
    added: Any = s.inner("gather", words, ids, axis=0)
    if position_ids is not None:
        added = s.inner("add", added, s.inner("gather", positions, position_ids, axis=0))
    else:
        length = fixed(ids.shape[1], "the length of its sequences")
        first = s.compute(lambda table: table[:length], positions)
        added = s.inner("add", added, first)
    if segments is not None and segment_table is not None:
        added = s.inner("add", added, s.inner("gather", segment_table, segments, axis=0))
    counts = _counts(s, ids, mask) if len(s.used) > 1 and s.used[1] else None
    return normalized(s, "layer_norm", added, gamma, beta, epsilon), counts, added


def _counts(s: Site, ids: Operand, mask: Operand | None) -> Operand:
    """[batch] int32: the ones of each row of ``mask``; without a mask, zeros."""
    if mask is None:
        ones: Any = s.inner("sub", ids, ids)
    else:
        ones = s.inner("cast", s.inner("equal", mask, s.const(np.array(1, mask.dtype), "one")), to="int32")
    made: Operand = s.inner("sum", ones, axes=(1,), keepdim=False)
    return made


@onnx_op("com.microsoft:MatMulNBits")
def matmul_of_bits(
    s: Site, a: Operand, b: Operand, scales: Operand, zeros: Operand | None = None,
    groups: Operand | None = None, bias: Operand | None = None, *, K: int, N: int, bits: int = 4,
    block_size: int, accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Operand:  # fmt: skip
    """``a`` times a matrix of blocks of integers of 2, 4 or 8 bits. ``b`` is [N, blocks, bytes]; ``groups``:
    the block that each of the K numbers has its scale of, instead of that in which it lies.
    """
    if bits not in (2, 4, 8) or weight_prepacked:
        raise Unsupported(f"of {bits} bits, or with weight_prepacked")
    if groups is not None and (bits != 4 or (zeros is not None and zeros.dtype == "uint8")):
        raise Unsupported(
            "with g_idx, of other than 4 bits or with zero points, which onnxruntime leaves out"
        )
    if a.shape[-1:] != (K,):
        raise SpecError(f"it takes {list(a.shape)}, its K is {K}")
    blocks = math.ceil(K / block_size)
    packed = s.array(b, "its weight").reshape(N, blocks, -1)[..., : block_size * bits // 8]
    middle = 2.0 ** (bits - 1)
    if zeros is None:
        zero = np.full((N, blocks), middle, np.float32)
    else:
        given = s.array(zeros, "its zero points").reshape(N, -1)
        zero = np.float32(given if given.dtype.kind == "f" else unpacked(given, bits))[:, :blocks]
    of = None if groups is None else s.array(groups, "its g_idx").reshape(-1)[:K]
    if of is not None and not np.array_equal(of, np.arange(K) // block_size):
        if of.shape != (K,) or of.min() < 0 or of.max() >= blocks:
            raise SpecError(f"g_idx {list(of.shape)}, expected {K} places of {blocks} blocks")
        scale = s.array(scales, "its scales").reshape(N, blocks)
        numbers = unpacked(packed.reshape(N, -1), bits)[:, :K]
        weight = (numbers - zero[:, of]) * scale[:, of]
        return s.emit("linear", a, params={"weight": s.const(np.float32(weight), "weight"), "bias": bias})
    if bits == 2:  # the engine has 4
        codes = unpacked(packed, bits)
        packed, bits = codes[..., ::2] | codes[..., 1::2] << 4, 4
    params: dict[str, Operand | None] = {
        "weight": s.const(np.ascontiguousarray(packed), "weight"),
        "scale": s.const(s.array(scales, "its scales").reshape(N, blocks), "scale"),
        "bias": bias,
    }
    if zeros is not None or middle != 2.0 ** (bits - 1):
        params["zero"] = s.const(np.ascontiguousarray(zero), "zero")
    return s.emit("block_linear", a, params=params, bits=bits)


@onnx_op("com.microsoft:GatherBlockQuantized")
def gather_of_bits(
    s: Site, x: Operand, indices: Operand, scales: Operand, zeros: Operand | None = None, *, bits: int = 4,
    block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Operand:  # fmt: skip
    """Rows of a table of blocks of integers, as float32. In uint8, integers of 4 bits lie two by two. A large
    table stays as small as it is, but for scales and zero points.
    """
    if bits not in (4, 8) or scales.dtype != "float32":
        raise Unsupported(f"of {bits} bits with scales of {scales.dtype}")
    table, scale = s.array(x, "its table"), s.array(scales, "its scales")
    packed = x.dtype == "uint8" and not halves(table)
    numbers = unpacked(table, bits) if packed else table
    axis = axis_of(quantize_axis, numbers.ndim)
    blocks = (*numbers.shape[:axis], -(-numbers.shape[axis] // block_size), *numbers.shape[axis + 1 :])
    if scale.shape != blocks:
        raise SpecError(
            f"scales {list(scale.shape)} of a table {list(numbers.shape)}, expected {list(blocks)}"
        )
    if zeros is None:
        zero = np.full(scale.shape, 2.0 ** (bits - 1) if packed else 0.0, np.float32)
    else:
        given = s.array(zeros, "its zero points")
        zero = given if halves(given) or not packed else unpacked(given, bits)[..., : scale.shape[-1]]
        if zero.shape != blocks:
            raise SpecError(f"zero points {list(given.shape)} of a table {list(numbers.shape)}")
    rows = numbers.ndim == 2 and (axis, axis_of(gather_axis, 2)) == (1, 0)
    if rows and numbers.size >= LEAST and numbers.shape[1] % block_size == 0 == block_size % (32 // bits):
        return _rows_of_words(s, numbers, scale, zero, bits, indices)
    wide = [
        p.astype(np.float32).repeat(block_size, axis).take(range(numbers.shape[axis]), axis)
        for p in (scale, zero)
    ]
    made = s.const(np.ascontiguousarray((numbers.astype(np.float32) - wide[1]) * wide[0]), "table")
    return gather(s, made, indices, axis=gather_axis)


def _rows_of_words(
    s: Site, numbers: Array, scale: Array, zero: Array, bits: int, indices: Operand
) -> Operand:
    """Rows of a matrix of integers, blocks along them, of which 32 bits hold as many as fit."""
    count, columns = numbers.shape
    blocks, each = scale.shape[1], 32 // bits
    least = min(0, int(numbers.min()))
    words = np.zeros((count, columns // each), np.uint32)
    for i in range(each):
        words |= (numbers[:, i::each].astype(np.int32) - least).astype(np.uint32) << np.uint32(bits * i)
    points = zero.astype(np.float32) - least

    def rows(table: Array, what: str, last: int) -> Any:
        found = s.inner("gather", s.const(table, what), indices, axis=0)
        return reshaped(s, found, (*indices.shape, table.shape[1], last), False)

    def digits(x: Any, base: int, count: int) -> Any:
        """The first digits of real numbers ``[..., 1]`` that are whole and exact."""
        parts = s.const(np.float32(base) ** -np.arange(count, dtype=np.float32), "parts")
        each = s.inner("floor", s.inner("mul", x, parts))
        whole = s.inner("floor", s.inner("mul", each, s.const(np.float32(1 / base), "inverse")))
        return s.inner("sub", each, s.inner("mul", whole, s.const(np.float32(base), "base")))

    # A quotient rounded down is a shift to the right, also of a word whose first bit is a sign. Of halves of
    # words real numbers hold all bits.
    halves_of = s.const(np.array([1, 1 << 16], np.int32), "halves")
    made = s.inner("floor_div", rows(words.view(np.int32), "table", 1), halves_of)
    made = s.inner(
        "cast", s.inner("remainder", made, s.const(np.array(1 << 16, np.int32), "half")), to="float32"
    )
    made = digits(reshaped(s, made, (*indices.shape, columns * bits // 16, 1), False), 2**bits, 16 // bits)
    made = reshaped(s, made, (*indices.shape, blocks, columns // blocks), False)
    made = s.inner("sub", made, rows(points, "zero", 1))
    made = s.inner("mul", made, rows(scale, "scale", 1))
    return reshaped(s, made, (*indices.shape, columns))
